"""From a stream to the shards of its consumers: each consumer's own key, then the shard that owns it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_column, key_list
from millwheel.core.columns.lazy_polars import pl
from millwheel.core.grouping.hot_keys import HotKeys, counted_of
from millwheel.core.model.keys import Key, KeyHash, fitting_key, key_hash
from millwheel.core.model.limits import DEFAULTS
from millwheel.core.model.names import NodeName, ShardName, groups_of
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.dictionaries import partitions_of_numbers, partitions_of_text
from millwheel.core.pipeline.graph import Graph, Node
from millwheel.core.pipeline.skew import divided_keys, instances_of
from millwheel.core.pipeline.spec import INSTANCE, Divided, KeyKind, KeySpec
from millwheel.errors import RecordError
from millwheel.workers.delivery.timestamps import ints_of, numbers_of, plain_column

Extractor = Callable[[Any], Key]
_TEXT_KEYS = {str, bytes}
_ROUTES_KEPT = 200_000  # keys whose shards are remembered
_DENSE_KEYS = 1 << 22
"""Below this, whole numbers are looked up by their index in an array."""
_FEW_ROWS = 32  # up to here a loop is faster than arrays
_BYTES_PER_CHARACTER = 4  # Fixed: at most, in UTF-8
_KEY_HEAD = 5
"""So many bytes go before those of a text, at most."""
_PART_HEAD = 2 * _KEY_HEAD
"""The same for a part of a tuple, with its share of the tuple's own head."""
_INT_BYTES = 8  # Fixed: of a number
_FOUND = "\0found"  # no field of a record has this name


@dataclass(frozen=True, slots=True)
class Keyless:
    """A record that a consumer's extractor could give no key; ``index`` is its index in the batch."""

    index: int
    node: NodeName
    reason: str
    exception: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a stream: ``fields`` are those of its key when it consists of plain fields, ``extract`` is None
    when it takes the key the producer gave. ``wants_late`` when it has a policy of its own for late records.
    ``columns`` are all the fields that it looks at, None for one that may look at any. ``divided`` is the key of one
    whose keys are divided over instances. ``partitions``: of a dictionary, which has the partition of a value of the
    field ``of`` as its key."""

    node: NodeName
    fields: tuple[str, ...]
    extract: Extractor | None
    wants_late: bool = False
    columns: Sequence[str] | None = None
    divided: KeySpec | None = None
    of: str = ""
    partitions: int = 0


class Fanout:
    """Computes, for every consumer of a stream, the records with that consumer's keys."""

    def __init__(
        self,
        graph: Graph,
        load_extractor: Callable[[KeySpec], Extractor],
        columns: Mapping[str, Sequence[str]] | None = None,
        most_key: int = DEFAULTS.key,
        combined: Collection[str] = (),
    ) -> None:
        """``combined``: the nodes to which sources may send groups, under their keys, in place of records."""
        self._most_key = most_key
        self._consumers: dict[str, list[Consumer]] = {}
        for stream, names in graph.consumers.items():
            for name in names:
                spec = next(given.key for given in graph.nodes[name].inputs if given.stream == stream)
                fields = spec.names if spec.kind in (KeyKind.FIELD, KeyKind.FIELDS) else ()
                extract = None if spec.kind is KeyKind.RECORD else load_extractor(spec)
                wants_late = _wants_late(graph.nodes[name])
                consumer = Consumer(NodeName(name), fields, extract, wants_late, (columns or {}).get(name))
                if spec.instances > 1:
                    consumer = replace(consumer, divided=spec)
                if spec.partitions:
                    consumer = replace(consumer, fields=(), of=spec.names[0], partitions=spec.partitions)
                self._consumers.setdefault(stream, []).append(consumer)
        for name in combined:
            self._consumers[groups_of(name)] = [Consumer(NodeName(name), (), None)]

    def consumed(self, stream: str) -> bool:
        """True when this stream has a consumer."""
        return stream in self._consumers

    def drops_late(self, stream: str) -> bool:
        """True when some consumer does not get the late records of this stream."""
        return any(not consumer.wants_late for consumer in self._consumers.get(stream, ()))

    def hot(self, stream: str) -> dict[str, int]:
        """The consumers of a stream that divide only hot keys, and over how many instances."""
        divided = {consumer.node: consumer.divided for consumer in self._consumers.get(stream, ())}
        return {node: key.instances for node, key in divided.items() if key is not None and key.divided is Divided.HOT}

    def split_columns(
        self, batch: ColumnBatch, late: npt.NDArray[np.bool_] | None = None, hot: HotKeys | None = None
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]:
        """:meth:`split` for records in columns; ``late`` says which are late (None: none is). A consumer whose key does
        not consist of columns gets them as rows."""
        if late is None:
            return self._split_columns(batch, self._consumers.get(batch.stream, ()), hot)
        out: list[tuple[NodeName, AnyBatch]] = []
        refused: list[Keyless] = []
        in_time = batch.where(~late)
        for consumer in self._consumers.get(batch.stream, ()):
            mine = batch if consumer.wants_late else in_time
            if len(mine):
                found, missing = self._split_columns(mine, [consumer], hot)
                out += found
                refused += missing
        return out, refused

    def _split_columns(
        self, batch: ColumnBatch, consumers: Sequence[Consumer], hot: HotKeys | None
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]:
        out: list[tuple[NodeName, AnyBatch]] = []
        rows: Batch | None = None
        refused: list[Keyless] = []
        for consumer in consumers:
            if consumer.extract is None and consumer.divided is None:
                out.append((consumer.node, batch))
            elif (keys := _key_column(batch, consumer, self._most_key, hot)) is not None:
                frame = batch.frame if consumer.columns is None else batch.frame.select(consumer.columns)
                out.append((consumer.node, replace(batch, keys=keys, frame=frame)))
            else:
                rows = batch.rows() if rows is None else rows
                mine, missing = self._split_for(consumer, rows, rows.values, (), hot)
                refused += missing
                out += [(consumer.node, mine)] if len(mine) else []
        return out, refused

    def split(
        self, batch: Batch, decoded: Sequence[Any], late: Collection[int] = (), hot: HotKeys | None = None
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]:
        """(consumer, batch under its keys) for every consumer, and the records that had no key for one. The indexes in
        ``late`` go only to consumers that want late records. ``hot``: the hot keys of the partition that they were read
        from; without it none are."""
        out: list[tuple[NodeName, AnyBatch]] = []
        refused: list[Keyless] = []
        for consumer in self._consumers.get(batch.stream, ()):
            mine, missing = self._split_for(consumer, batch, decoded, late, hot)
            refused += missing
            if len(mine):
                out.append((consumer.node, mine))
        return out, refused

    def _split_for(
        self, consumer: Consumer, batch: Batch, decoded: Sequence[Any], late: Collection[int], hot: HotKeys | None
    ) -> tuple[Batch, list[Keyless]]:
        """One consumer's records under its keys, and those that have none."""
        indexes = _indexes(batch, consumer, late)
        part = batch if indexes is None else batch.pick(indexes)
        values = decoded if indexes is None else [decoded[i] for i in indexes]
        mine, missing = _keyed(consumer, part, values, self._most_key)
        if missing:
            gone = {bad.index for bad in missing}
            mine = mine.pick([i for i in range(len(mine)) if i not in gone])
            missing = missing if indexes is None else [replace(bad, index=indexes[bad.index]) for bad in missing]
        if consumer.divided is not None:
            divided = _are_divided(consumer, consumer.divided, mine, hot)
            mine = mine.under(divided_keys(consumer.divided, mine.keys, mine.seqs, mine.ids, mine.timestamps, divided))
        return mine, missing


def _indexes(batch: Batch, consumer: Consumer, late: Collection[int]) -> list[int] | None:
    """The indexes of the records that a consumer gets; None for all of them."""
    if not late or consumer.wants_late:
        return None
    return [index for index in range(len(batch)) if index not in late]


def _are_divided(consumer: Consumer, key: KeySpec, batch: Batch, hot: HotKeys | None) -> list[bool] | None:
    """Which records have keys that are divided, None for all; and count them for the next table."""
    if key.divided is Divided.ALL:
        return None
    if hot is None:
        return [False] * len(batch)
    hot.count(consumer.node, batch.keys[counted_of(len(batch))])
    return hot.are_hot(consumer.node, batch.keys, batch.seqs)


def _instances(
    batch: ColumnBatch, consumer: Consumer, key: KeySpec, parts: Sequence[pl.Series], hot: HotKeys | None
) -> npt.NDArray[np.int64]:
    """The instance of each record in columns; ``parts`` are those of its key."""
    found = instances_of(batch.seqs if len(batch.seqs) else batch.timestamps, key.instances)
    if key.divided is Divided.ALL:
        return found
    divided = np.zeros(len(batch), np.bool_)
    if hot is not None:
        hot.count(consumer.node, key_list(key_column([part[counted_of(len(batch))] for part in parts])))
        for keys, rows in hot.stretches(consumer.node, batch.seqs):
            divided[rows] = _among([part[rows] for part in parts], keys)
    found[~divided] = 0
    return found


def _among(parts: Sequence[pl.Series], keys: Iterable[Key]) -> npt.NDArray[np.bool_]:
    """Which of the keys in columns are among some. Those are few, so each is looked for in whole columns."""
    found = np.zeros(len(parts[0]), np.bool_)
    for key in keys:
        values = (key,) if len(parts) == 1 else key
        if all(_fits(part, value) for part, value in zip(parts, values, strict=True)):
            same = [(part == value).to_numpy() for part, value in zip(parts, values, strict=True)]
            found |= np.logical_and.reduce(same)
    return found


def _fits(part: pl.Series, value: Any) -> bool:
    """Whether a column of keys can have this value: what was counted in rows may be of another type."""
    return type(value) is str if part.dtype == pl.String else type(value) is int and value < 2**63


def _key_column(batch: ColumnBatch, consumer: Consumer, most: int, hot: HotKeys | None = None) -> pl.Series | None:
    """Fields as a column of keys; None when their values cannot all be keys, or not all of up to ``most`` bytes."""
    fields = consumer.fields
    if consumer.partitions:
        return _partition_column(batch, consumer, most)
    if not fields or len(set(fields)) < len(fields) or not set(fields) <= set(batch.frame.columns):
        return None
    parts = [batch.frame[name] for name in fields]
    if any(part.dtype not in (pl.Int64, pl.String) or part.null_count() for part in parts):
        return None
    if len(batch) and sum(_most_bytes(part) + _PART_HEAD for part in parts) > most:
        return None  # perhaps: rows are measured exactly
    if consumer.divided is not None:
        if batch.ids is not None:
            return None  # a copy goes to the instance of its id, which rows know
        parts.append(pl.Series(INSTANCE, _instances(batch, consumer, consumer.divided, parts, hot)))
    return key_column(parts)


def _partition_column(batch: ColumnBatch, consumer: Consumer, most: int) -> pl.Series | None:
    """The partitions of a column; None for values that are looked at one by one."""
    if consumer.of not in batch.frame.columns:
        return None
    values = batch.frame[consumer.of]
    if values.dtype not in (pl.Int64, pl.String) or values.null_count():
        return None
    if values.dtype == pl.Int64:
        return pl.Series(consumer.of, partitions_of_numbers(values.to_numpy(), consumer.partitions))
    if len(batch) and _most_bytes(values) + _KEY_HEAD > most:
        return None
    return pl.Series(consumer.of, partitions_of_text(values.to_list(), consumer.partitions), pl.Int64)


def _most_bytes(part: pl.Series) -> int:
    """The bytes of the longest text of a column, or those of a number."""
    return int(part.str.len_bytes().to_numpy().max()) if part.dtype == pl.String else _INT_BYTES


def _wants_late(node: Node) -> bool:
    if node.sink is not None:
        return node.sink.takes_late
    computation = node.computation
    return computation is not None and computation.takes_late


def _keyed(consumer: Consumer, batch: Batch, decoded: Sequence[Any], most: int) -> tuple[Batch, list[Keyless]]:
    """The batch under a consumer's keys, and its records that have none."""
    if consumer.extract is None:
        return batch, []
    keys = plain_column(decoded, consumer.fields[0]) if len(consumer.fields) == 1 else None
    if keys and len(keys) > _FEW_ROWS and type(keys[0]) is int:
        ints = ints_of(keys)
        if ints and (numbers := numbers_of(ints)) is not None:
            return batch.under(ints, numbers), []
    if keys and _are_plain(keys, most):
        return batch.under(keys), []
    keys, missing = _keys_one_by_one(consumer, decoded, most)
    return batch.under(keys), missing


def _are_plain(keys: list[Key], most: int) -> bool:
    """True when all of them can be keys as they are. A mixture with integers is looked at one by one, and so are long
    ones."""
    kinds = set(map(type, keys))
    if kinds == {int}:
        return bool(min(keys) >= -(2**63) and max(keys) < 2**64)
    return kinds <= _TEXT_KEYS and max(map(len, keys), default=0) * _BYTES_PER_CHARACTER <= most - _KEY_HEAD


def _keys_one_by_one(consumer: Consumer, decoded: Sequence[Any], most: int) -> tuple[list[Key], list[Keyless]]:
    extract = consumer.extract
    assert extract is not None
    keys: list[Key] = []
    refused: list[Keyless] = []
    for index, value in enumerate(decoded):
        try:
            keys.append(fitting_key(extract(value), most))
        except RecordError as ex:
            refused.append(Keyless(index, consumer.node, str(ex), ""))
            keys.append(None)
        except Exception as ex:  # the extractor may be the user's: any exception concerns this record
            refused.append(Keyless(index, consumer.node, f"the key extractor failed: {ex}", repr(ex)))
            keys.append(None)
    return keys, refused


class _Edges:
    """The shards of one table by their lower edges, with a memory of where keys went."""

    def __init__(self, table: RangeTable, hashed: KeyHash) -> None:
        self._hashed = hashed
        ordered = sorted(table.shards, key=lambda entry: entry.range.lo)
        self.shards = [entry.shard for entry in ordered]
        self._los = [entry.range.lo for entry in ordered]
        self._known: dict[Key, int] = {}
        self._dense = np.full(1024, -1, np.int32)

    def shard_of(self, key: Key) -> ShardName:
        """The shard of one key."""
        known = self._known.get(key)
        return self.shards[self.indexes([key])[0] if known is None else known]

    def row_indexes(self, batch: Batch) -> npt.NDArray[np.int32]:
        """:meth:`indexes` of the keys of a batch."""
        if batch.numbers is not None and _are_dense(batch.numbers):
            return self._dense_indexes(batch.numbers)
        return np.array(self.indexes(batch.keys), np.int32)

    def column_indexes(self, keys: pl.Series) -> npt.NDArray[np.int32]:
        """:meth:`indexes` of a column, whose different keys are looked up once."""
        if keys.dtype == pl.Int64 and _are_dense(numbers := keys.to_numpy()):
            return self._dense_indexes(numbers)
        if isinstance(keys.dtype, pl.Struct):
            return self._tuple_indexes(keys.struct.unnest())
        different = keys.unique()
        found = pl.Series(self.indexes(different.to_list()), dtype=pl.Int32)
        indexes: npt.NDArray[np.int32] = keys.replace_strict(different, found, return_dtype=pl.Int32).to_numpy()
        return indexes

    def _tuple_indexes(self, parts: pl.DataFrame) -> npt.NDArray[np.int32]:
        different = parts.unique()
        found = pl.Series(_FOUND, self.indexes(key_list(different.to_struct())), dtype=pl.Int32)
        looked_up = parts.join(different.with_columns(found), on=parts.columns, how="left", maintain_order="left")
        indexes: npt.NDArray[np.int32] = looked_up[_FOUND].to_numpy()
        return indexes

    def _dense_indexes(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        most = int(numbers.max())
        if most >= len(self._dense):
            grown = np.full(min(2 * most + 2, _DENSE_KEYS), -1, np.int32)
            grown[: len(self._dense)] = self._dense
            self._dense = grown
        found = self._dense[numbers]
        if found.min() < 0:
            fresh = np.unique(numbers[found < 0])
            self._dense[fresh] = self.indexes(fresh.tolist())
            found = self._dense[numbers]
        return found

    def indexes(self, keys: list[Key]) -> list[int]:
        known = self._known
        try:
            return list(map(known.__getitem__, keys))
        except KeyError:
            pass
        if len(known) > _ROUTES_KEPT:
            known.clear()
        los, hashed = self._los, self._hashed
        for key in keys:
            if key not in known:
                known[key] = bisect_right(los, hashed(key)) - 1
        return list(map(known.__getitem__, keys))


def _are_dense(numbers: npt.NDArray[np.int64]) -> bool:
    return bool(numbers.min() >= 0 and numbers.max() < _DENSE_KEYS)


class TableRouter:
    """Splits a consumer's batch over its shards, by the newest table seen."""

    def __init__(self, hash_of: Callable[[str], KeyHash] = lambda node: key_hash) -> None:
        self._hash_of = hash_of
        self._edges: dict[str, _Edges] = {}

    def update(self, table: RangeTable) -> None:
        """Follow a new version of a table."""
        edges = _Edges(table, self._hash_of(table.computation))
        before = self._edges.get(table.computation)
        if before is None or before.shards != edges.shards:
            self._edges[table.computation] = edges

    def knows(self, nodes: Iterable[str]) -> bool:
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
        present = np.flatnonzero(np.bincount(indexes)).tolist()
        if len(present) == 1:
            return [(edges.shards[present[0]], batch)]
        return [(edges.shards[index], batch.pick(np.flatnonzero(indexes == index).tolist())) for index in present]


def _route_few(edges: _Edges, batch: Batch) -> list[tuple[ShardName, AnyBatch]]:
    """So few rows are dealt out before an array of them is made."""
    indexes = edges.indexes(batch.keys)
    different = set(indexes)
    if len(different) == 1:
        return [(edges.shards[indexes[0]], batch)]
    mine: dict[int, list[int]] = {index: [] for index in sorted(different)}
    for row, index in enumerate(indexes):
        mine[index].append(row)
    return [(edges.shards[index], batch.pick(rows)) for index, rows in mine.items()]


def _route_columns(edges: _Edges, batch: ColumnBatch) -> list[tuple[ShardName, AnyBatch]]:
    indexes = edges.column_indexes(batch.keys)
    present = np.flatnonzero(np.bincount(indexes)).tolist()
    if len(present) == 1:
        return [(edges.shards[present[0]], batch)]
    return [(edges.shards[index], part) for index, part in batch.split(indexes)]
