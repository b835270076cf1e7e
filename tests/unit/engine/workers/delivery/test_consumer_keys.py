"""The instances of divided keys: the same from rows and from columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.grouping.epochs import KeyEpochs
from millwheel.core.model.failures import encodable
from millwheel.core.model.keys import fitting_key
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.tables import copy_key
from millwheel.engine.workers.delivery.consumer_keys import Consumer, keyed
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.errors import InvariantError, RecordError
from tests.unit.engine.workers.delivery.test_fanout import fanout
from tests.unit.engine.workers.delivery.test_routing import batch


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


_HALF = KeySpec(
    KeyKind.EXPRESSIONS, ("half", "a"), texts=("12 // (b - 1)", "concat(a, '!')"), nulls=True
)

_THIRD = replace(_HALF, texts=("(b - 1) // 3", "concat(a, '!')"))


@pytest.mark.parametrize(
    "key",
    [
        _THIRD,
        replace(_THIRD, nulls=False),
        replace(_THIRD, instances=3),
        KeySpec(KeyKind.FIELDS, ("a", "b"), nulls=True),
        KeySpec(KeyKind.FIELD, ("a",), nulls=True),
        KeySpec(KeyKind.ALL),
        KeySpec(KeyKind.ALL, instances=3),
    ],
)
@given(
    values=st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 2, 5, 1, None])),
        min_size=1,
    ),
    plain=st.booleans(),
)
def test_records_in_columns_get_the_keys_that_rows_get(
    key: KeySpec, values: list[tuple[str | None, int | None]], plain: bool
) -> None:
    """Also where an expression cannot be computed, or is null; and where all can."""
    records = [{"a": a, "b": b} for a, b in values]
    if plain:
        records = [{"a": each["a"] or "x", "b": 3} for each in records]
    made, order = fanout(n=key), np.arange(1, len(records) + 1)
    frame = pl.DataFrame(records, schema={"a": pl.String, "b": pl.Int64})
    in_rows, missing = made.split(batch(["p"] * len(records), records), records)
    found, gone = made.split_columns(ColumnBatch("s", order, order, frame["a"], frame))
    assert [(part.rows().keys, part.rows().seqs) for _, part in found] == [
        (part.rows().keys, part.rows().seqs) for _, part in in_rows
    ]
    assert gone == missing
    if plain or key.kind is KeyKind.ALL:
        assert [type(part) for _, part in found] == [ColumnBatch]


def test_a_key_that_cannot_be_computed_is_a_letter_with_the_reason() -> None:
    values = [{"a": "x", "b": 1}, {"a": "x", "b": 3}]
    [(_, part)], [refused] = fanout(n=_HALF).split(batch(["p"] * 2, values), values)
    assert part.rows().keys == [(6, "x!")]
    assert refused.index == 0
    assert refused.reason.startswith("`12 // (b - 1)` cannot be computed: ")


PARTS = (
    st.integers(-(2**64), 2**65)
    | st.text(max_size=12)
    | st.binary(max_size=9)
    | st.none()
    | st.booleans()
    | st.floats()
    | st.just(())
    | st.sampled_from(["\ud800", 2**63, 2**64 - 1])
)


@given(values=st.lists(PARTS | st.tuples(PARTS, PARTS) | st.lists(PARTS, max_size=4)))
@example(values=[(1, "a" * 28), (1, "a" * 29), (1, "a" * 60), ("a" * 14, "b" * 14), (7,), ()])
def test_keys_that_are_made_one_by_one_are_what_fits(values: list[Any]) -> None:
    """Tuples of small numbers and short texts take a shorter way."""
    most = 40
    consumer = Consumer(NodeName("n"), (), lambda value: value)
    found, missing = keyed(consumer, batch(["p"] * len(values), values), values, most)
    reasons = {each.index: each.reason for each in missing}
    assert [
        (None, reasons[index]) if index in reasons else (repr(key), None)
        for index, key in enumerate(found.keys)
    ] == [_fitting(value, most) for value in values]


def _fitting(value: Any, most: int) -> tuple[str | None, str | None]:
    """The key of a value, or why there is none."""
    try:
        return repr(fitting_key(value, most)), None
    except RecordError as ex:
        return None, encodable(str(ex))


_parts = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.text(max_size=3), st.none(), st.booleans(), st.binary()
)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "bc"])), min_size=33, max_size=40),
    st.lists(st.tuples(st.integers(0, 32), st.sampled_from("ab"), _parts), max_size=2),
    st.sampled_from([30, 1000]),
)
@example([(1, "a")] * 33, [(3, "b", "x" * 40)], 30)
@example([(1, "a")] * 33, [(3, "b", "\ud800")], 1000)
@example([(1, "a")] * 33, [(3, "a", 2**63)], 1000)
def test_keys_of_several_fields_together_are_those_one_by_one(
    rows: list[tuple[int, str]], odd: list[tuple[int, str, Any]], most: int
) -> None:
    records: list[dict[str, Any]] = [{"a": number, "b": text} for number, text in rows]
    for at, name, value in odd:
        records[at] = {**records[at], name: value}
    made = fanout(n=KeySpec(KeyKind.FIELDS, ("b", "a")))
    [consumer] = made._of("s")
    found, missing = keyed(consumer, batch(["p"] * len(records), records), records, most)
    single = [keyed(consumer, batch(["p"], [record]), [record], most) for record in records]
    assert found.keys == [key for each, _ in single for key in (each.keys[0],)]
    assert [each.index for each in missing] == [at for at, (_, none) in enumerate(single) if none]


@pytest.mark.parametrize("own", [["a", "b", "a", "c"], [3, 4, 3, 5]])
def test_records_go_to_the_copy_for_their_key_in_rows_and_in_columns(own: list[Any]) -> None:
    made = fanout(e=KeySpec(KeyKind.RECORD, copies=3))
    frame, order = pl.DataFrame({"v": [1, 2, 3, 4]}), np.arange(4)
    [(_, columns)], _ = made.split_columns(ColumnBatch("s", order, order, pl.Series(own), frame))
    wanted = [copy_key(key, 3) for key in own]
    assert isinstance(columns, ColumnBatch)
    assert columns.keys.to_list() == wanted
    given = batch(own)
    [(_, rows)], _ = made.split(given, given.values)
    assert isinstance(rows, Batch)
    assert list(rows.keys) == wanted
