"""The way from the keys of a consumer to the shards that own them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.grouping.tables import Network
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key, KeyHash, key_hash, key_hashes
from millwheel.core.model.names import NodeName, ShardName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.records import Batch

_ROUTES_KEPT = 200_000  # keys whose shards are remembered
_DENSE_KEYS = 1 << 22
"""Below this, whole numbers are looked up by their index in an array."""
_DENSE_SHARE = 8
"""Where one in so many numbers is new, counting finds the different ones in a fifth of the time of
a hash table."""
_FEW_ROWS = 32  # up to here a loop is faster than arrays
_SAMPLE = 512
"""Keys of a column that are sampled to judge whether most of its keys are different."""
_FOUND = "\0found"  # no field of a record has this name


class _Edges:
    """The shards of one table by their lower edges, with a memory of where keys went."""

    def __init__(self, table: RangeTable, hashed: KeyHash) -> None:
        self._hashed = hashed
        ordered = sorted(table.shards, key=lambda entry: entry.range.lo)
        self.shards = [entry.shard for entry in ordered]
        self._los = [entry.range.lo for entry in ordered]
        self._memo: dict[Key, int] = {}
        self._dense = np.full(1024, -1, np.int32)

    def shard_of(self, key: Key) -> ShardName:
        """The shard of one key."""
        index = self._memo.get(key)
        return self.shards[self.indexes([key])[0] if index is None else index]

    def row_indexes(self, batch: Batch) -> npt.NDArray[np.int32]:
        """:meth:`indexes` of the keys of a batch."""
        if batch.numbers is not None and _are_dense(batch.numbers):
            return self._dense_indexes(batch.numbers)
        return np.array(self.indexes(batch.keys), np.int32)

    def column_indexes(self, keys: pl.Series) -> npt.NDArray[np.int32]:
        """:meth:`indexes` of a column, whose different keys are looked up once."""
        if keys.dtype == pl.Int64 and _are_dense(numbers := keys.to_numpy()):
            return self._dense_indexes(numbers)
        if _mostly_different(keys):
            return self._hashed_indexes(key_list(keys))
        if isinstance(keys.dtype, pl.Struct):
            return self._tuple_indexes(keys.struct.unnest())
        different = keys.unique()
        column = pl.Series(self.indexes(different.to_list()), dtype=pl.Int32)
        indexes: npt.NDArray[np.int32] = keys.replace_strict(
            different, column, return_dtype=pl.Int32
        ).to_numpy()
        return indexes

    def _tuple_indexes(self, parts: pl.DataFrame) -> npt.NDArray[np.int32]:
        different = parts.unique()
        column = pl.Series(_FOUND, self.indexes(key_list(different.to_struct())), dtype=pl.Int32)
        looked_up = parts.join(
            different.with_columns(column), on=parts.columns, how="left", maintain_order="left"
        )
        indexes: npt.NDArray[np.int32] = looked_up[_FOUND].to_numpy()
        return indexes

    def _hashed_indexes(self, keys: list[Key]) -> npt.NDArray[np.int32]:
        """The same without the memory: looking there takes longer than hashing a key, and new keys
        push out those that return."""
        each = key_hashes(keys) if self._hashed is key_hash else map(self._hashed, keys)
        hashes = np.fromiter(each, np.uint64, len(keys))
        indexes = np.searchsorted(np.array(self._los, np.uint64), hashes, side="right") - 1
        return indexes.astype(np.int32)

    def _dense_indexes(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        most = int(numbers.max())
        if most >= len(self._dense):
            grown = np.full(min(2 * most + 2, _DENSE_KEYS), -1, np.int32)
            grown[: len(self._dense)] = self._dense
            self._dense = grown
        indexes = self._dense[numbers]
        if indexes.min() < 0:
            missing = numbers[indexes < 0]
            many = most < _DENSE_SHARE * len(missing)
            fresh = np.flatnonzero(np.bincount(missing)) if many else np.unique(missing)
            self._dense[fresh] = self._hashed_indexes(fresh.tolist())
            indexes = self._dense[numbers]
        return indexes

    def _are_new(self, sample: list[Key]) -> bool:
        """Whether most keys are seen for the first time."""
        return 2 * sum([key not in self._memo for key in set(sample)]) > len(sample)

    def indexes(self, keys: list[Key]) -> list[int]:
        """The index of the shard of each key."""
        memo = self._memo
        try:
            return list(map(memo.__getitem__, keys))
        except KeyError:
            pass
        if len(memo) > _ROUTES_KEPT:
            memo.clear()
        if len(keys) > _FEW_ROWS and self._are_new(keys[:_SAMPLE]):
            indexes: list[int] = self._hashed_indexes(keys).tolist()
            memo.update(zip(keys, indexes, strict=True))
            return indexes
        los, hashed = self._los, self._hashed
        for key in keys:
            if key not in memo:
                memo[key] = bisect_right(los, hashed(key)) - 1
        return list(map(memo.__getitem__, keys))


def _mostly_different(keys: pl.Series) -> bool:
    sample = keys.head(_SAMPLE)
    return sample.n_unique() * 2 > len(sample) >= _FEW_ROWS


def _are_dense(numbers: npt.NDArray[np.int64]) -> bool:
    return bool(numbers.min() >= 0 and numbers.max() < _DENSE_KEYS)


class TableRouter:
    """The router of batches to the shards of their consumers, by the newest tables seen."""

    def __init__(self, hash_of: Callable[[str], KeyHash] = lambda node: key_hash) -> None:
        self._hash_of = hash_of
        self._edges: dict[str, _Edges] = {}
        self.distance: Callable[[ShardName], Network] = lambda shard: Network.HOST
        """The distance to the owner of a shard."""

    def update(self, table: RangeTable) -> None:
        """Follow a new version of a table."""
        edges = _Edges(table, self._hash_of(table.computation))
        before = self._edges.get(table.computation)
        if before is None or before.shards != edges.shards:
            self._edges[table.computation] = edges

    def has_tables(self, nodes: Iterable[str]) -> bool:
        """True once the tables of all ``nodes`` have been seen."""
        return all(node in self._edges for node in nodes)

    def shard_of(self, node: NodeName, key: Key) -> ShardName | None:
        """The shard of a key; None before the table of ``node`` was seen."""
        edges = self._edges.get(node)
        return None if edges is None else edges.shard_of(key)

    def route(self, node: NodeName, batch: AnyBatch) -> list[tuple[ShardName, AnyBatch]]:
        """(shard, its records in order) for the shards of ``node`` that get any."""
        edges = self._edges[node]
        if len(edges.shards) == 1:
            return [(edges.shards[0], batch)]
        if isinstance(batch, ColumnBatch):
            return _route_columns(edges, batch)
        if len(batch) <= _FEW_ROWS:
            return _route_few(edges, batch)
        indexes = edges.row_indexes(batch)
        counts = np.bincount(indexes)
        present = np.flatnonzero(counts).tolist()
        if len(present) == 1:
            return [(edges.shards[present[0]], batch)]
        ends = np.cumsum(counts).tolist()
        rows = np.argsort(indexes, kind="stable")
        return [
            (edges.shards[at], batch.pick(rows[ends[at] - counts[at] : ends[at]])) for at in present
        ]


def _route_few(edges: _Edges, batch: Batch) -> list[tuple[ShardName, AnyBatch]]:
    """Route few rows, which takes less time than to make an array of them."""
    indexes = edges.indexes(batch.keys)
    different = set(indexes)
    if len(different) == 1:
        return [(edges.shards[indexes[0]], batch)]
    rows_by_index: dict[int, list[int]] = {index: [] for index in sorted(different)}
    for row, index in enumerate(indexes):
        rows_by_index[index].append(row)
    return [(edges.shards[index], batch.pick(rows)) for index, rows in rows_by_index.items()]


def _route_columns(edges: _Edges, batch: ColumnBatch) -> list[tuple[ShardName, AnyBatch]]:
    indexes = edges.column_indexes(batch.keys)
    present = np.flatnonzero(np.bincount(indexes)).tolist()
    if len(present) == 1:
        return [(edges.shards[present[0]], batch)]
    return [(edges.shards[index], part) for index, part in batch.split(indexes)]
