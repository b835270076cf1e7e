"""A batch is parallel columns: whatever is taken out of it keeps them parallel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.limits import CREDIT_BYTES
from millwheel.core.model.records import Batch, Domain, Timer, Values, without
from millwheel.core.model.times import MAX_TIME


@st.composite
def batches(draw: Any) -> Batch:
    count = draw(st.integers(0, 8))
    rising = sorted(draw(st.sets(st.integers(1, 50), min_size=count, max_size=count)))
    numbered, named = draw(st.booleans()), draw(st.booleans())
    return Batch(
        "s",
        rising if numbered else [],
        draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count)),
        [f"k{n}" for n in range(count)],
        [f"v{n}" for n in range(count)],
        [f"i{n}" for n in range(count)] if named else None,
        7,
        draw(st.integers(0, 10_000)),
    )


@st.composite
def held_both_ways(draw: Any) -> tuple[Batch, Batch]:
    """The same records as lists, and as arrays with their values encoded together."""
    count = draw(st.integers(0, 6))
    seqs = (
        sorted(draw(st.sets(st.integers(1, 50), min_size=count, max_size=count)))
        if draw(st.booleans())
        else []
    )
    times = draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
    keys = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count))
    encode = msgspec.msgpack.encode
    values = [msgspec.Raw(encode(f"v{n}")) for n in range(count)]
    arrays = (np.array(column, np.int64) for column in (seqs, times, keys))
    return Batch("s", seqs, times, keys, values, None, 7, 60), Batch(
        "s", *arrays, msgspec.Raw(encode(values)), None, 7, 60
    )


@given(held_both_ways(), st.data())
def test_arrays_are_the_same_records_as_lists(held: tuple[Batch, Batch], data: Any) -> None:
    lists, arrays = held
    seq = data.draw(st.integers(0, 51))
    indexes = data.draw(
        st.lists(st.sampled_from(range(len(lists))), unique=True) if len(lists) else st.just([])
    )
    start = data.draw(st.integers(0, 6))
    whole = (len(arrays), arrays.last_seq, arrays.earliest, arrays.weight)
    assert whole == (len(lists), lists.last_seq, lists.earliest, lists.weight)
    for part in (
        lambda batch: batch.after(seq),
        lambda batch: batch.pick(indexes),
        lambda batch: batch.pick(np.array(indexes, np.int64)),
        lambda batch: batch.tail(start),
        lambda batch: without(batch, sorted(indexes)),
        lambda batch: batch.named("other"),
        lambda batch: batch.numbered(list(range(len(batch))), 3),
        lambda batch: batch.under(["x"] * len(batch)),
        lambda batch: batch,
    ):
        assert part(arrays) == part(lists)
        assert {type(number) for number in (*part(arrays).seqs, *part(arrays).timestamps)} <= {int}
    assert arrays != Batch("other", [], [], [], [])
    assert repr(arrays).startswith("Batch('s', [")


def rows(batch: Batch) -> list[tuple[Any, ...]]:
    count = len(batch)
    columns = [
        batch.seqs or [0] * count,
        batch.timestamps,
        batch.keys,
        batch.values,
        batch.ids or [None] * count,
    ]
    return list(zip(*columns, strict=True))


@given(batches(), st.data())
def test_what_is_picked_are_whole_records_in_the_order_asked_for(batch: Batch, data: Any) -> None:
    indexes = data.draw(
        st.lists(st.sampled_from(range(len(batch))), unique=True) if len(batch) else st.just([])
    )
    picked = batch.pick(indexes)
    assert rows(picked) == [rows(batch)[index] for index in indexes]
    assert (picked.stream, picked.born_us, picked.ids is None) == (
        batch.stream,
        batch.born_us,
        batch.ids is None,
    )
    assert picked.size <= batch.size


@given(st.integers(0, 99), st.sets(st.integers(0, 98), max_size=20))
def test_whatever_is_left_out_the_rest_stays_as_it_is(count: int, gone: set[int]) -> None:
    rows_of = range(count)
    batch = Batch(
        "s",
        list(rows_of),
        np.arange(count),
        [f"k{n}" for n in rows_of],
        list(rows_of),
        list(rows_of),
        1,
        99,
    )
    left = [n for n in rows_of if n not in gone]
    rest = without(batch, sorted(gone & set(rows_of)))
    assert rest == batch.pick(left)
    assert rest.size <= 99


@given(batches(), st.integers(0, 51))
def test_after_a_number_come_those_beyond_it_and_all_that_have_none(batch: Batch, seq: int) -> None:
    wanted = [row for row in rows(batch) if not batch.seqs or row[0] > seq]
    assert rows(batch.after(seq)) == wanted
    assert batch.after(seq).last_seq == (wanted[-1][0] if wanted and batch.seqs else 0)


@given(batches())
def test_a_batch_weighs_its_records_or_its_bytes(batch: Batch) -> None:
    assert batch.weight == max(len(batch), batch.size // CREDIT_BYTES)
    assert batch.earliest == min(batch.timestamps, default=MAX_TIME)


@given(batches())
def test_under_other_keys_everything_else_stays(batch: Batch) -> None:
    other = batch.under(["x"] * len(batch))
    assert [row[:2] + row[3:] for row in rows(other)] == [row[:2] + row[3:] for row in rows(batch)]
    assert set(other.keys) <= {"x"}
    assert (other.size, other.born_us) == (batch.size, batch.born_us)


def test_a_timer_is_read_as_what_it_is() -> None:
    assert repr(Timer("a", "t", 5, Domain.EVENT)) == "Timer(key='a', tag='t', at=5, domain=event)"


def test_a_field_of_values_that_were_read_together_is_taken_out_once() -> None:
    values = Values([{"a": 1, "b": "x"}, {"a": 2}])
    assert values.column("a") == [1, 2]
    assert values.column("a") is values.column("a")
    assert values.column("b") is None
    assert Values([]).column("a") == []
    assert Values([SimpleNamespace(a=3)]).column("a") == [3]


def test_a_field_of_values_is_looked_at_once_until_somebody_changes_it() -> None:
    rows = [{"a": 1, "b": "x", "c": 1}, {"a": 2, "c": 2.5}]
    values = Values(rows)
    numbers = values.numbers("a")
    assert numbers is not None
    assert numbers.tolist() == [1, 2]
    assert values.numbers("a") is numbers
    assert (values.numbers("b"), values.numbers("c"), Values([]).numbers("a")) == (None, None, None)
    assert Values([{"a": 2**63}]).numbers("a") is None
    assert (values.kinds("c"), values.kinds("b")) == ({int, float}, set())
    column = values.column("c")
    assert column is not None
    column[0] = 1.0
    values.changed("c")
    assert values.kinds("c") == {float}
