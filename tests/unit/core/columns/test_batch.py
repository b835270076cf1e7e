"""Records in columns: the same as in rows, over the wire too."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import polars as pl
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.batch import (
    COLUMNS_MARK,
    ColumnBatch,
    encode_columns,
    joined,
    key_column,
)
from millwheel.core.formats.codec import decode_batch, encode_batch
from millwheel.core.model.times import MAX_TIME
from millwheel.errors import CorruptionError


def batch_of(seqs: list[int], stamps: list[int]) -> ColumnBatch:
    count = len(stamps)
    frame = pl.DataFrame(
        {
            "ad": list(range(count)),
            "cost": [0.5] * count,
            "type": ["click", None][:count] + ["x"] * (count - 2),
        },
        schema={"ad": pl.Int64, "cost": pl.Float64, "type": pl.String},
    )
    return ColumnBatch(
        "events", np.array(seqs, np.int64), np.array(stamps, np.int64), frame["ad"], frame, 7
    )


def test_a_batch_comes_back_as_it_was_sent() -> None:
    sent = batch_of([3, 5, 9], [30, -50, 90])
    got = decode_batch(encode_batch(sent))
    assert isinstance(got, ColumnBatch)
    assert got.rows() == sent.rows()
    assert got.rows().values == [
        {"ad": 0, "cost": 0.5, "type": "click"},
        {"ad": 1, "cost": 0.5, "type": None},
        {"ad": 2, "cost": 0.5, "type": "x"},
    ]
    assert (got.last_seq, got.earliest, len(got)) == (9, -50, 3)


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=9, unique=True).map(sorted),
    st.integers(0, 51),
)
def test_what_was_taken_before_is_cut_off_as_in_rows(seqs: list[int], accepted: int) -> None:
    batch = batch_of(seqs, seqs)
    assert batch.after(accepted).rows() == batch.rows().after(accepted)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.booleans())
def test_a_split_gives_each_place_its_records_in_order(indexes: list[int], numbered: bool) -> None:
    numbers = list(range(1, len(indexes) + 1))
    batch = batch_of(numbers if numbered else [], numbers)
    where = np.array(indexes, np.int32)
    parts = batch.split(where)
    assert [index for index, _ in parts] == sorted(set(indexes))
    for index, part in parts:
        assert part.rows() == batch.where(where == index).rows()
        assert (part.keys.name, part.frame.columns) == (batch.keys.name, batch.frame.columns)


def test_keys_of_several_fields_are_tuples_in_rows_and_travel_and_split_as_others_do() -> None:
    batch = batch_of([1, 2, 3], [10, 20, 30])
    keyed = replace(batch, keys=key_column([batch.frame["ad"], pl.Series("type", ["x", "x", "y"])]))
    assert keyed.rows().keys == [(0, "x"), (1, "x"), (2, "y")]
    got = decode_batch(encode_batch(keyed))
    assert isinstance(got, ColumnBatch)
    assert got.rows() == keyed.rows()
    indexes = np.array([1, 0, 1], np.int32)
    assert [(index, part.rows().keys) for index, part in got.split(indexes)] == [
        (0, [(1, "x")]),
        (1, [(0, "x"), (2, "y")]),
    ]
    assert joined([got, got.after(2)]).rows().keys == [(0, "x"), (1, "x"), (2, "y"), (2, "y")]
    assert got.after(3).rows().keys == []


IDS = pl.Series("id", ["x", None, "y", "x"])


@pytest.mark.parametrize(
    "ids", [IDS, IDS.cast(pl.Categorical).to_physical().cast(pl.Int64)], ids=["text", "numbers"]
)
def test_ids_stay_with_their_records(ids: pl.Series) -> None:
    plain = batch_of([1, 2, 3, 4], [10, 20, 30, 40])
    batch = replace(plain, ids=ids)
    got = decode_batch(encode_batch(batch))
    assert isinstance(got, ColumnBatch)
    assert got.rows() == batch.rows() != plain.rows()
    assert got.rows().ids == ids.to_list()
    assert got.after(2).rows() == got.rows().after(2)
    assert got.where(np.array([True, False, False, True])).rows() == got.rows().pick([0, 3])
    assert [part.rows() for _, part in got.split(np.array([1, 0, 0, 1], np.int32))] == [
        got.rows().pick([1, 2]),
        got.rows().pick([0, 3]),
    ]
    large = replace(batch_of([*range(3000)], [*range(3000)]), ids=pl.Series("id", range(3000)))
    pieces = list(large.pieces(large.frame.estimated_size() // 3))
    assert len(pieces) > 2
    assert [given for piece in pieces for given in piece.rows().ids or ()] == list(range(3000))
    assert joined([got, got]).ids is None


def test_a_batch_from_before_columns_had_ids_is_read() -> None:
    batch = replace(batch_of([1, 2], [10, 20]), keys=pl.Series([7, 8]))
    body = msgspec.msgpack.decode(memoryview(encode_columns(batch, packed=True))[9:])
    assert [body.pop() for _ in range(4)] == [[], [], [], b""]
    old = msgspec.msgpack.encode(body)
    got = decode_batch(COLUMNS_MARK + xxhash.xxh3_64_digest(old) + old)
    assert got.rows() == batch.rows()


@pytest.mark.parametrize("names", [["ad"], ["ad", "type"]])
def test_keys_that_are_fields_travel_once(names: list[str]) -> None:
    batch = batch_of([1, 2, 3], [10, 20, 30])
    batch = replace(batch, frame=batch.frame.with_columns(pl.col("type").fill_null("y")))
    keyed = replace(batch, keys=key_column([batch.frame[name] for name in names]))
    others = replace(keyed, keys=keyed.keys.reverse())
    assert len(encode_batch(keyed)) < len(encode_batch(others))
    for sent in (keyed, others):
        got = decode_batch(encode_batch(sent))
        assert isinstance(got, ColumnBatch)
        assert got.rows() == sent.rows()
        assert decode_batch(encode_batch(got)).rows() == sent.rows()


def test_numbers_without_nulls_travel_as_they_lie_in_memory() -> None:
    frame = pl.DataFrame(
        {"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5], "d": [None, 3], "e": [True, False]}
    )
    for keys in (pl.Series("key", [7, 8]), pl.Series("key", ["k", "l"]), frame["a"]):
        batch = ColumnBatch("s", np.array([3, 4]), np.array([5, 6]), keys, frame, 9)
        data = encode_batch(batch)
        for sent in (
            data,
            memoryview(bytearray(b"." + data))[1:],
            encode_columns(batch, packed=True),
        ):
            got = decode_batch(sent)
            assert isinstance(got, ColumnBatch)
            assert (got.rows(), got.frame.schema) == (batch.rows(), frame.schema)
    numbers = replace(batch, keys=frame["a"], frame=frame.select("c", "a"))
    assert decode_batch(encode_batch(numbers)).rows() == numbers.rows()


def test_columns_of_different_lengths_are_reported() -> None:
    body = msgspec.msgpack.decode(memoryview(encode_batch(batch_of([1, 2], [10, 20])))[9:])
    body[8][0][3] = body[8][0][3][:8]
    damaged = msgspec.msgpack.encode(body)
    with pytest.raises(
        CorruptionError, match="is not a batch of columns: its columns are not a frame"
    ):
        decode_batch(COLUMNS_MARK + xxhash.xxh3_64_digest(damaged) + damaged)


def test_a_key_that_is_no_field_of_the_records_is_reported() -> None:
    body = msgspec.msgpack.decode(memoryview(encode_batch(batch_of([1, 2], [10, 20])))[9:])
    assert body[7] == ["ad"]
    damaged = msgspec.msgpack.encode([*body[:7], ["gone"], *body[8:]])
    with pytest.raises(CorruptionError, match="no field 'gone', which is a key"):
        decode_batch(COLUMNS_MARK + xxhash.xxh3_64_digest(damaged) + damaged)


def test_a_part_of_records_with_text_in_structs_travels_without_the_rest() -> None:
    text = pl.DataFrame({"id": [f"{number:020}" for number in range(10_000)]}).to_struct("record")
    frame = text.to_frame().filter(pl.Series(range(10_000)) % 100 == 0)
    batch = ColumnBatch("s", np.array([], np.int64), np.arange(100), pl.Series(range(100)), frame)
    assert len(encode_batch(batch)) < 10_000


def test_an_empty_batch_says_so() -> None:
    empty = batch_of([1, 2], [1, 2]).after(2)
    assert (len(empty), empty.last_seq, empty.earliest) == (0, 0, MAX_TIME)
    assert len(decode_batch(encode_batch(empty))) == 0


def test_a_mask_picks_records_with_all_their_parts() -> None:
    picked = batch_of([1, 2, 3], [10, 20, 30]).where(np.array([True, False, True]))
    assert picked.rows() == batch_of([1, 2, 3], [10, 20, 30]).rows().pick([0, 2])


@given(st.integers(0), st.integers(0, 255))
def test_damaged_bytes_are_reported(index: int, byte: int) -> None:
    data = bytearray(encode_batch(batch_of([1, 2, 3], [10, 20, 30])))
    index %= len(data)
    if data[index] == byte:
        return
    data[index] = byte
    with pytest.raises(CorruptionError):
        decode_batch(bytes(data))


@pytest.mark.parametrize("cut", [1, 2, 40, 200])
def test_a_batch_that_was_cut_short_is_reported(cut: int) -> None:
    with pytest.raises(CorruptionError, match="not a batch"):
        decode_batch(encode_batch(batch_of([1, 2, 3], [10, 20, 30]))[:-cut])
