from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.formats.codec import (
    MOST_NESTING,
    Commit,
    all_nest_little,
    commits_prefix,
    decode_batch,
    decode_commit,
    encode_batch,
    encode_commit,
    encode_value,
    nests_too_deeply,
    number_of_commit,
    pack_ints,
    shard_of_commit,
    stream_decoder,
    unpack_ints,
)
from millwheel.core.model.records import Batch
from millwheel.errors import CorruptionError

INT64 = st.integers(-(2**63), 2**63 - 1)
KEYS = st.recursive(
    st.one_of(st.text(max_size=5), INT64, st.binary(max_size=5)),
    lambda parts: st.lists(parts, max_size=3).map(tuple),
    max_leaves=4,
)
VALUES = st.one_of(
    st.none(), st.text(max_size=5), INT64, st.dictionaries(st.text(max_size=3), INT64, max_size=3)
)
COMMITS = st.builds(
    Commit,
    shard=st.text(max_size=8),
    token=st.integers(0, 2**40),
    number=st.integers(0, 2**40),
    puts=st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=4),
    deletes=st.lists(st.binary(max_size=8), max_size=4),
)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    rows = draw(
        st.lists(
            st.tuples(INT64, KEYS, VALUES, st.one_of(st.none(), st.text(max_size=3))), max_size=5
        )
    )
    seqs = list(range(1, len(rows) + 1)) if draw(st.booleans()) else []
    ids = [row[3] for row in rows] if draw(st.booleans()) else None
    return Batch(
        "s",
        seqs,
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        ids,
        draw(INT64),
    )


def plain(batch: Batch) -> tuple[Any, ...]:
    values = [msgspec.msgpack.decode(v) if type(v) is msgspec.Raw else v for v in batch.values]
    return batch.stream, batch.seqs, batch.timestamps, batch.keys, values, batch.ids, batch.born_us


@given(batches())
def test_a_batch_arrives_as_it_was_sent(batch: Batch) -> None:
    assert plain(decode_batch(encode_batch(batch))) == plain(batch)


@pytest.mark.parametrize("count", [1, 100])
def test_labels_travel_with_their_records_and_hold_the_watermark(count: int) -> None:
    numbers = list(range(1, count + 1))
    batch = Batch(
        "s", numbers, [9 + each for each in numbers], ["k"] * count, [None] * count, labels=numbers
    )
    found = decode_batch(encode_batch(batch))
    assert isinstance(found, Batch)
    assert (
        found.labels is not None and [int(label) for label in found.labels],
        found.earliest,
    ) == (numbers, 1)


@given(batches())
def test_a_batch_that_is_passed_on_has_the_same_bytes(batch: Batch) -> None:
    data = encode_batch(batch)
    assert encode_batch(decode_batch(data)) == data


@given(st.lists(st.tuples(INT64, INT64, VALUES), max_size=200), st.data())
def test_arrays_travel_as_arrays_and_damage_is_found(
    rows: list[tuple[int, int, Any]], data: st.DataObject
) -> None:
    times, keys = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    batch = Batch("s", np.arange(len(rows)), times, keys, [row[2] for row in rows], None, 5)
    sent = encode_batch(batch)
    come = decode_batch(sent)
    assert isinstance(come, Batch)
    assert stream_decoder({})("s", come.held_values) == [row[2] for row in rows]
    assert encode_batch(come) == sent
    assert plain(come) == plain(batch)
    with contextlib.suppress(CorruptionError):
        found = decode_batch(damage(sent, data))
        assert len(found.rows().keys) == len(found.rows().values) == len(found.rows().timestamps)


@given(COMMITS)
def test_a_commit_is_read_as_it_was_written(commit: Commit) -> None:
    assert decode_commit(encode_commit(commit)) == commit


@given(st.lists(INT64))
def test_numbers_are_packed_without_loss(numbers: list[int]) -> None:
    assert unpack_ints(pack_ints(numbers)) == numbers


@given(st.binary(max_size=60))
def test_bytes_that_are_no_batch_are_corrupt_and_nothing_else(data: bytes) -> None:
    for decode in (decode_batch, decode_commit):
        with contextlib.suppress(CorruptionError):
            decode(data)


@given(batches(), st.data())
def test_a_damaged_batch_is_corrupt_or_a_batch(batch: Batch, data: st.DataObject) -> None:
    damaged = damage(encode_batch(batch), data)
    try:
        found = decode_batch(damaged)
    except CorruptionError:
        return
    assert len(found.keys) == len(found.values) == len(found.timestamps)
    assert not found.seqs or len(found.seqs) == len(found.timestamps)
    assert found.ids is None or len(found.ids) == len(found.timestamps)


@given(COMMITS, st.data())
def test_a_damaged_commit_is_corrupt_or_a_commit(commit: Commit, data: st.DataObject) -> None:
    with contextlib.suppress(CorruptionError):
        decode_commit(damage(encode_commit(commit), data))


def damage(encoded: bytes, data: st.DataObject) -> bytes:
    at = data.draw(st.integers(0, len(encoded) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    if kind == "cut":
        return encoded[:at]
    byte = data.draw(st.binary(min_size=1, max_size=1))
    return encoded[:at] + byte + encoded[at + (kind == "flip") :]


@pytest.mark.parametrize("decode", [decode_batch, decode_commit])
@pytest.mark.parametrize(
    "data", [b"\x91" * 5000, b"\x97\xa1\xff", b"\x95\xa1\xff\x01\x01\x90\x90", b"", b"\xc1"]
)
def test_nesting_and_broken_text_are_corruption_too(decode: Any, data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode(data)


def test_deep_nesting_in_a_key_is_corruption() -> None:
    head = msgspec.msgpack.encode(["s", b"", pack_ints([1])])[1:]
    with pytest.raises(CorruptionError):
        decode_batch(b"\x97" + head + b"\x91" * 5000 + b"\x01\x91\x01\xc0\x00")


def test_columns_of_different_lengths_are_told_with_the_stream() -> None:
    good = encode_batch(Batch("clicks", [1], [1], ["k"], [1]))
    form = msgspec.msgpack.decode(good)
    for column, wrong in (
        (1, pack_ints([1, 2])),
        (3, []),
        (3, b"\0" * 16),
        (4, [1, 2]),
        (4, {1: 2}),
        (5, ["a", "b"]),
    ):
        bad = [*form]
        bad[column] = wrong
        with pytest.raises(CorruptionError, match="clicks"):
            decode_batch(msgspec.msgpack.encode(bad))


def test_values_are_decoded_by_the_schema_of_their_stream() -> None:
    class Point(msgspec.Struct):
        x: int

    decode = stream_decoder({"points": Point})
    raw = msgspec.Raw(encode_value({"x": 3}))
    assert decode("points", [raw]) == [Point(3)]
    assert decode("others", [raw]) == [{"x": 3}]
    untouched = [Point(4)]
    assert decode("points", untouched) is untouched
    assert decode("points", []) == []


@given(
    st.lists(
        st.tuples(st.text(max_size=300), st.integers(0, 2**63 - 1), st.integers(1, 2**40)),
        max_size=8,
    )
)
def test_a_commit_tells_its_shard_and_token_without_being_decoded(
    made: list[tuple[str, int, int]],
) -> None:
    commits = [
        Commit(shard, token, number, [(b"k", b"v")], [b"d"]) for shard, token, number in made
    ]
    entries = [encode_commit(commit) for commit in commits]
    for one, entry in zip(commits, entries, strict=True):
        assert entry.startswith(commits_prefix(one.shard, one.token))
        assert shard_of_commit(entry) == shard_of_commit(commits_prefix(one.shard, one.token))
        assert number_of_commit(entry, commits_prefix(one.shard, one.token)) == one.number
        for other, its in zip(commits, entries, strict=True):
            assert (shard_of_commit(entry) == shard_of_commit(its)) == (one.shard == other.shard)


@pytest.mark.parametrize(
    "number", [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63]
)
def test_the_number_of_a_commit_is_read_without_the_rest(number: int) -> None:
    entry = encode_commit(Commit("a-0", 3, number, [(b"k", b"v")], []))
    prefix = commits_prefix("a-0", 3)
    assert number_of_commit(entry, prefix) == number
    assert number_of_commit(prefix, prefix) == -1
    assert number_of_commit(prefix + b"\xc0", prefix) == -1
    assert number_of_commit(prefix + b"\x95", prefix) == -1


def deep(levels: int, around: Any = None) -> Any:
    value: Any = around
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("levels", [0, 1, 50, MOST_NESTING - 1, MOST_NESTING])
def test_values_up_to_the_limit_are_taken(levels: int) -> None:
    assert not nests_too_deeply(encode_value(deep(levels)))


@pytest.mark.parametrize("levels", [MOST_NESTING + 1, MOST_NESTING + 50])
def test_values_beyond_are_not(levels: int) -> None:
    assert nests_too_deeply(encode_value(deep(levels)))


def test_a_value_with_many_parts_is_not_deep() -> None:
    assert not nests_too_deeply(encode_value([[n] for n in range(5 * MOST_NESTING)]))
    assert not nests_too_deeply("ü".encode() * 10 * MOST_NESTING)
    assert not nests_too_deeply(encode_value(deep(400, [[n] for n in range(1_000)])))


def test_a_value_that_cannot_be_decoded_is_deep() -> None:
    assert nests_too_deeply(b"\x91" * 100_000 + b"\xc0")


def test_shallow_values_are_known_together() -> None:
    assert all_nest_little([{"a": [1, {"b": 2}]}] * 100)
    assert not all_nest_little([1, deep(MOST_NESTING + 1)])
