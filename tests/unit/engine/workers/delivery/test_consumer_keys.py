"""The instances of divided keys: the same from rows and from columns."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.grouping.epochs import KeyEpochs
from millwheel.core.pipeline.spec import Divided, KeyKind, KeySpec
from millwheel.engine.workers.delivery.routing import Fanout
from millwheel.errors import InvariantError
from tests.unit.engine.workers.delivery.test_routing import batch, fanout


def grouped(rule: str = "pkg", *fields: str) -> tuple[Fanout, KeyEpochs]:
    kind = KeyKind.FIELD if len(fields) == 1 else KeyKind.FIELDS
    made = fanout(n=KeySpec(kind, fields, 3, divided=Divided(rule)))
    epochs = KeyEpochs(made.rules("s"))
    epochs.extended(1000)
    return made, epochs


@pytest.mark.parametrize("fields", [("a",), ("b", "a")])
@given(
    values=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.booleans()), min_size=1
    ),
    keyless=st.sets(st.integers(0, 9)),
)
def test_records_in_columns_get_the_instances_that_rows_get(
    fields: tuple[str, ...], values: list[tuple[str, int, bool]], keyless: set[int]
) -> None:
    """Also where some are late, and where some have no key."""
    records = [
        {"a": None if at in keyless else text, "b": number}
        for at, (text, number, _) in enumerate(values)
    ]
    late = np.array([each for _, _, each in values], np.bool_)
    order = np.arange(1, len(values) + 1)
    frame = pl.DataFrame(records, schema={"a": pl.String, "b": pl.Int64})
    made, epochs = grouped("pkg", *fields)
    as_rows, missing = made.split(
        batch(["p"] * len(values), records), records, set(np.flatnonzero(late)), epochs
    )
    made, again = grouped("pkg", *fields)
    given_late = late if late.any() else None
    found, gone = made.split_columns(
        ColumnBatch("s", order, order, frame["a"], frame), given_late, again
    )
    plain = [(str(name), part.rows().keys, part.rows().seqs) for name, part in found]
    assert plain == [(str(name), part.keys, part.seqs) for name, part in as_rows]
    assert [each.index for each in gone] == [each.index for each in missing]
    epochs.moved(1000)
    again.moved(1000)
    assert epochs.counts() == again.counts()


def test_late_records_are_counted_so_that_the_others_keep_their_instances() -> None:
    values = [{"a": "x"} for _ in range(6)]
    made, epochs = grouped("shuffle", "a")
    [(_, part)], _ = made.split(batch(["p"] * 6, values), values, {1, 2}, epochs)
    assert part.rows().keys == [("x", 0), ("x", 0), ("x", 1), ("x", 2)]


def test_records_that_no_source_has_read_are_not_guessed_at() -> None:
    made, _ = grouped("tag", "a")
    with pytest.raises(InvariantError, match="n divides keys by tables"):
        made.split(batch(["p"], [{"a": "x"}]), [{"a": "x"}])
