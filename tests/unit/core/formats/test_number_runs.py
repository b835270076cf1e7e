"""Runs of the values of dictionaries: what goes in comes out, and a share of the partitions is cut
out of it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.formats import id_runs
from millwheel.core.formats.id_runs import marks_from, marks_of, runs_within
from millwheel.core.formats.number_runs import (
    ROW,
    heads_of,
    numbers_of_heads,
    numbers_within,
    parsed_run_key,
    partitions_of_heads,
    rows_from,
    rows_of,
    run_key,
    words_of,
    words_of_column,
)
from millwheel.core.formats.store_layout import number_from8
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import SPACE, KeyRange
from millwheel.core.model.times import MIN_TIME


@given(st.lists(st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 2**48 - 2)), min_size=1))
def test_a_head_is_a_partition_and_a_number(pairs: list[tuple[int, int]]) -> None:
    partitions, numbers = (np.array(part, np.int64) for part in zip(*pairs, strict=True))
    heads = heads_of(partitions, numbers)
    assert partitions_of_heads(heads).tolist() == partitions.tolist()
    assert numbers_of_heads(heads).tolist() == numbers.tolist()


@pytest.mark.parametrize(
    "values", [["", "a", "é", "device-1" * 40], [0, 5, -1, 2**63 - 1, -(2**63)]]
)
def test_columns_and_rows_know_a_value_by_the_same(values: list[str] | list[int]) -> None:
    rows, columns = words_of(values), words_of_column(pl.Series(values))
    assert [part.tolist() for part in rows] == [part.tolist() for part in columns]
    assert len({*zip(*(part.tolist() for part in rows), strict=True)}) == len(values)


def test_text_numbers_and_bytes_are_different_values() -> None:
    low, high = words_of(["5", 5, b"5", "\ud800"])
    assert len({*zip(low.tolist(), high.tolist(), strict=True)}) == 4
    digest = xxhash.xxh3_128_digest(b"5")
    assert (int(low[0]), int(high[0])) == (
        int.from_bytes(digest[:8], "little"),
        int.from_bytes(digest[8:], "little"),
    )


def test_runs_lie_in_the_order_of_time_and_number() -> None:
    keys = [run_key(at, number, "n-1") for at in (MIN_TIME, -60, 0, 60) for number in (0, 1, 300)]
    assert keys == sorted(keys)
    assert parsed_run_key(keys[4]) == (-60, 1)


def test_a_share_gets_the_rows_of_its_partitions_and_no_empty_run() -> None:
    partitions = np.arange(8)
    heads, words = heads_of(partitions, partitions + 10), np.arange(8).astype(np.uint64)
    run = rows_of(heads, words, words).tobytes()
    half = SPACE // 2
    upper = [at for at in range(8) if key_hash(at) >= half]
    assert 0 < len(upper) < 8
    one, two = run_key(60, 1, "n-1"), run_key(120, 2, "n-1")
    [low] = [at for at in range(8) if at not in upper][:1]
    entries = [(one, run), (two, run[low * ROW.itemsize :][: ROW.itemsize])]
    [(store_key, mine)] = numbers_within(entries, KeyRange(half, SPACE))
    assert store_key == one
    assert partitions_of_heads(rows_from(mine)["head"]).tolist() == upper
    assert [store_key for store_key, _ in numbers_within(entries, KeyRange(0, half))] == [one, two]


# id_runs.py: Runs of ids: what goes in comes out, and a share of the keys is cut out of it.

HEADS = [5, 2**63, 2**64 - 1]
DIGESTS = [bytes(range(n, n + 16)) for n in (0, 100, 7)]


def test_a_mark_is_the_hash_of_the_key_and_the_digest() -> None:
    run = marks_of(HEADS, DIGESTS).tobytes()
    expected = [
        head.to_bytes(8, "big") + digest for head, digest in zip(HEADS, DIGESTS, strict=True)
    ]
    assert run == b"".join(expected)
    assert [mark.tobytes() for mark in marks_from(run)] == expected


def test_runs_of_ids_lie_in_the_order_of_time_and_number() -> None:
    keys = [id_runs.run_key(at, number, "n-1") for at in (-60, 0, 60) for number in (0, 1, 300)]
    assert keys == sorted(keys)
    assert (number_from8(keys[1][1:9]), number_from8(keys[1][9:17])) == (-60, 1)


def test_a_share_gets_the_marks_of_its_keys_and_no_empty_run() -> None:
    run = marks_of(HEADS, DIGESTS).tobytes()
    one, two = id_runs.run_key(60, 1, "n-1"), id_runs.run_key(120, 2, "n-1")
    entries = [(one, run), (two, run[:24])]
    upper = KeyRange(2**63, 2**64)
    assert list(runs_within(entries, upper)) == [(one, run[24:])]
    assert list(runs_within(entries, KeyRange(0, 2**63))) == [(one, run[:24]), (two, run[:24])]
