"""Answers from slices in a plain store: which accumulators are read, and what is said of the
span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import EXPIRED, number8, slice_prefix
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.work import AggregateSpec, SlicesSpec
from millwheel.core.slices.slots import slot_stored_key
from millwheel.engine.queries.model import Mode, Query, QueryError
from millwheel.engine.queries.slices import SliceAnswers, StoredSlice, encode_slice

S = 1_000_000
SPEC = SlicesSpec((10 * S, 60 * S), 3_600 * S)
ANSWERS = SliceAnswers.of(
    SPEC, compile_aggregation([AggregateSpec("n", "count")], compile_expression)
)


class Plain:
    """A view over a dict; counts what is read."""

    def __init__(self, *slices: tuple[int, int, int, int]) -> None:
        self.data = {
            slice_prefix(level, start * S) + slot_stored_key("k"): encode_slice(
                StoredSlice(newest * S, [n])
            )
            for level, start, newest, n in slices
        }
        self.reads: list[int] = []

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads.append(len(keys))
        return [self.data.get(key) for key in keys]

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        raise AssertionError("an answer scans nothing")


def ask(
    view: Plain, window: int, until: int, watermark: int = 0, mode: Mode = Mode.COVERING
) -> tuple[object, ...]:
    found = ANSWERS.answer(Query("c", "k", window * S, until * S, mode), view, watermark * S)
    assert found.covered_start_us is not None
    assert found.covered_end_us is not None
    return found.values["n"], found.covered_start_us // S, found.covered_end_us // S, found.complete


def test_the_slice_that_runs_counts_as_far_as_it_was_asked_when_nothing_lies_behind() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2), (1, 0, 5, 3), (0, 0, 5, 3))
    assert ask(view, 65, 65) == (5, 0, 65, False)
    assert view.reads == [2]


def test_a_slice_with_records_behind_the_end_is_covered_whole_and_said_so() -> None:
    assert ask(Plain((0, 60, 67, 2), (1, 60, 67, 2)), 5, 65) == (2, 60, 70, False)


def test_a_longer_slice_that_reaches_beyond_the_span_is_read_again_in_shorter_ones() -> None:
    view = Plain((0, 60, 63, 2), (0, 90, 95, 7), (1, 60, 95, 9))
    assert ask(view, 5, 65) == (2, 60, 65, False)
    assert ask(view, 60, 120) == (9, 60, 120, False)


def test_an_answer_is_complete_once_the_watermark_has_passed_its_span() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    assert ask(view, 10, 70, 69) == (2, 60, 70, False)
    assert ask(view, 10, 70, 70) == (2, 60, 70, True)


def test_what_has_expired_is_refused_and_never_answered_with_less() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    assert ask(view, 10, 70, 3_669)[0] == 2
    with pytest.raises(QueryError) as caught:
        ask(view, 10, 70, 3_670)
    assert caught.value.code == "beyond_keep"


def test_at_the_end_of_input_what_was_kept_until_then_is_still_answered() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    at_end = Query("c", "k", 10 * S, 70 * S)
    assert ANSWERS.answer(at_end, view, MAX_TIME).values == {"n": 2}
    view.data[EXPIRED] = number8(70 * S)
    with pytest.raises(QueryError):
        ANSWERS.answer(at_end, view, MAX_TIME)


def test_a_window_longer_than_what_is_kept_is_refused() -> None:
    with pytest.raises(QueryError) as caught:
        ask(Plain(), 3_601, 4_000)
    assert caught.value.code == "beyond_keep"


def test_one_value_can_be_asked_for_and_an_unknown_one_is_named_with_those_there_are() -> None:
    view = Plain((0, 60, 63, 2), (1, 60, 63, 2))
    assert ANSWERS.answer(Query("c.n", "k", 10 * S, 70 * S), view, 0).values == {"n": 2}
    with pytest.raises(QueryError, match="c has no 'm'; it has n"):
        ANSWERS.answer(Query("c.m", "k", 10 * S, 70 * S), view, 0)
