"""Answers of computations from a store, without their operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from millwheel.api import Computation, ValueState
from millwheel.core.formats.store_layout import slice_prefix
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.work import AggregateSpec, SlicesSpec
from millwheel.core.slices.slots import slot_stored_key
from millwheel.engine.queries.model import Query, QueryError
from millwheel.engine.queries.slices import StoredSlice, encode_slice
from millwheel.engine.workers.queries.store_answers import StoreAnswers
from tests.computations import computation_spec

S = 1_000_000


class Seen(Computation):
    count = ValueState(int, default=4)


class Plain:
    def __init__(self, **data: bytes) -> None:
        self.data = {
            slice_prefix(0, 60 * S) + slot_stored_key(key): value for key, value in data.items()
        }

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.data.get(key) for key in keys]

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(())


PIPELINE = PipelineSpec(
    "p",
    (),
    (
        computation_spec(
            "clicks",
            (),
            (),
            slices=SlicesSpec((10 * S,), 3_600 * S),
            aggregates=(AggregateSpec("n", "count"),),
        ),
        computation_spec("seen", (), (), callback="m:Seen"),
        computation_spec("steps", (), ()),
    ),
    (),
    "/nowhere",
)
ANSWERS = StoreAnswers(PIPELINE, lambda path, folder: Seen)


def test_slices_and_state_are_answered_as_their_operators_do() -> None:
    view = Plain(k=encode_slice(StoredSlice(63 * S, [5])))
    assert ANSWERS.answer(Query("clicks.n", "k", 10 * S, 70 * S), view, 0).values == {"n": 5}
    assert ANSWERS.answer(Query("seen.count", "k"), view, 0).values == {"count": 4}


@pytest.mark.parametrize("name", ["steps", "unknown"])
def test_what_keeps_nothing_with_a_name_is_not_asked(name: str) -> None:
    with pytest.raises(QueryError, match=f"{name} cannot be asked of a standby"):
        ANSWERS.answer(Query(name, "k"), Plain(), 0)
