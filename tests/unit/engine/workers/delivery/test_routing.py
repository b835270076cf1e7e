"""Every record goes to the shard that owns its key, in rows and in columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.model.keys import key_hash
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.engine.workers.delivery.routing import TableRouter

KEYS = st.one_of(
    st.text(max_size=3), st.integers(-5, 5), st.binary(max_size=2), st.tuples(st.text(max_size=2))
)


def table(shards: int, version: int = 0, node: str = "n") -> RangeTable:
    return RangeTable(
        node,
        tuple(ShardEntry(f"{node}-{i}", piece, "", 0) for i, piece in enumerate(tile(shards))),
        version,
    )


def batch(keys: list[Any], values: list[Any] | None = None) -> Batch:
    count = len(keys)
    return Batch("s", list(range(1, count + 1)), list(range(count)), keys, values or [None] * count)


def router(*tables: RangeTable) -> TableRouter:
    made = TableRouter()
    for one in tables:
        made.update(one)
    return made


# --- from keys to shards --------------------------------------------------------------------------


@given(st.lists(KEYS, min_size=1, max_size=20), st.integers(1, 7))
def test_every_record_goes_to_the_shard_that_owns_its_hash_and_keeps_its_order(
    keys: list[Any], shards: int
) -> None:
    routed = router(table(shards)).route("n", batch(keys))
    pieces = tile(shards)
    for shard, mine in routed:
        want = [
            i
            for i, key in enumerate(keys)
            if key_hash(key) in pieces[int(shard.rpartition("-")[2])]
        ]
        assert mine.seqs == [i + 1 for i in want]
        assert mine.keys == [keys[i] for i in want]
    assert sum(len(mine) for _, mine in routed) == len(keys)
    assert all(len(mine) for _, mine in routed)


@given(st.lists(KEYS, min_size=1, max_size=10), st.lists(KEYS, min_size=1, max_size=10))
def test_what_was_routed_before_changes_no_route(first: list[Any], second: list[Any]) -> None:
    remembering = router(table(4))
    remembering.route("n", batch(first))
    assert remembering.route("n", batch(second)) == router(table(4)).route("n", batch(second))


def test_a_split_table_is_followed() -> None:
    keys = [f"k{i}" for i in range(50)]
    made = router(table(1))
    assert [shard for shard, _ in made.route("n", batch(keys))] == ["n-0"]
    made.update(table(3, version=1))
    assert [shard for shard, _ in made.route("n", batch(keys))] == ["n-0", "n-1", "n-2"]


def test_a_router_knows_the_nodes_whose_tables_it_has_seen() -> None:
    made = router(table(1, node="a"))
    assert made.has_tables(["a"])
    assert not made.has_tables(["a", "b"])


# --- from streams to consumers --------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.one_of(st.integers(0, 5_000), st.integers(-(2**63), 2**63 - 1)), min_size=1),
        min_size=1,
    )
)
def test_columns_go_where_rows_go(batches: list[list[int]]) -> None:
    for kind, convert in ((pl.Int64, int), (pl.String, str)):
        rows, columns = router(table(3)), router(table(3))
        for numbers in batches:
            keys = [convert(number) for number in numbers]
            order = np.arange(1, len(keys) + 1)
            frame = pl.DataFrame({"a": keys}, schema={"a": kind})
            routed = columns.route("n", ColumnBatch("s", order, order, frame["a"], frame))
            found = [(shard, part.seqs.tolist(), part.keys.to_list()) for shard, part in routed]
            assert found == [
                (shard, part.seqs, part.keys) for shard, part in rows.route("n", batch(keys))
            ]


@pytest.mark.parametrize(
    "make",
    [str, lambda number: number - 2**62, lambda number: (f"{number:x}", number)],
    ids=["text", "int", "tuples"],
)
@pytest.mark.parametrize("repeated", [1, 3])
def test_columns_of_many_keys_go_where_each_of_them_goes(
    make: Callable[[int], Any], repeated: int
) -> None:
    keys = [make(number * number) for number in range(1000) for _ in range(repeated)]
    column = (
        pl.Series(keys)
        if not isinstance(keys[0], tuple)
        else pl.DataFrame(keys, orient="row").to_struct()
    )
    numbers = np.arange(len(keys))
    given = ColumnBatch("s", numbers, numbers, column, pl.DataFrame({"n": numbers}))
    known = router(table(5))
    for _ in range(2):
        found = {key: shard for shard, part in known.route("n", given) for key in part.rows().keys}
        assert found == {key: known.shard_of("n", key) for key in keys}
        assert [len(part) for _, part in known.route("n", given)] == [
            sum(shard == found[key] for key in keys) for shard, _ in known.route("n", given)
        ]
