"""From a stream to the shards of its consumers: each consumer's own key, then the shard that owns
it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.columns.key_columns import KeyColumns
from millwheel.core.expressions.language import BUILT_IN, Language
from millwheel.core.formats.codec import apart, are_objects
from millwheel.core.grouping.epochs import Rule
from millwheel.core.grouping.tables import Network
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key, KeyHash, key_hash, key_hashes
from millwheel.core.model.limits import DEFAULTS
from millwheel.core.model.names import NodeName, ShardName, groups_of, is_rest, left_out, whole_of
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.records import Batch, Values, unlabelled, without
from millwheel.core.pipeline.graph import Graph, Node, runs_user_code
from millwheel.core.pipeline.spec import KeyKind, KeySpec
from millwheel.engine.workers.delivery.combining import Combining, whole
from millwheel.engine.workers.delivery.consumer_keys import (
    Consumer,
    Dividing,
    Extractor,
    Keyless,
    key_column_of,
    keyed,
    with_instances_of,
)

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


class Fanout:
    """Computes, for every consumer of a stream, the records with that consumer's keys."""

    def __init__(
        self,
        graph: Graph,
        load_extractor: Callable[[KeySpec], Extractor],
        columns: Mapping[str, Sequence[str]] | None = None,
        most_key: int = DEFAULTS.key,
        combined: Collection[str] = (),
        labelled: Collection[str] = (),
        language: Language = BUILT_IN,
    ) -> None:
        """``combined``: the nodes that may get groups, under their keys, in place of records;
        ``labelled``: those that take labels."""
        self.combinings: Mapping[str, Combining] = {}
        self._most_key = most_key
        self._consumers: dict[str, list[Consumer]] = {}
        self._changing = frozenset(
            name for name, node in graph.nodes.items() if runs_user_code(node.computation)
        )
        for stream, names in graph.consumers.items():
            for name in names:
                spec = next(each.key for each in graph.nodes[name].inputs if each.stream == stream)
                fields = spec.names if spec.plain else ()
                extract = None if spec.kind is KeyKind.RECORD else load_extractor(spec)
                wants_late = _wants_late(graph.nodes[name])
                consumer = Consumer(
                    NodeName(name), fields, extract, wants_late, (columns or {}).get(name)
                )
                consumer = replace(
                    consumer, labelled=name in labelled, whole=spec.kind is KeyKind.ALL
                )
                if spec.kind is KeyKind.EXPRESSIONS:
                    consumer = replace(consumer, computed=KeyColumns(spec, language.compile))
                if spec.instances > 1:
                    consumer = replace(consumer, divided=spec)
                if spec.partitions:
                    consumer = replace(
                        consumer, fields=(), of=spec.names[0], partitions=spec.partitions
                    )
                self._consumers.setdefault(stream, []).append(consumer)
        self._combined = frozenset(combined)
        for name in combined:
            self._consumers[groups_of(name)] = [Consumer(NodeName(name), (), None)]

    def _of(self, stream: str) -> Sequence[Consumer]:
        """The consumers of productions of this name, which may be those for some of them."""
        found = self._consumers.get(stream)
        if found is None:
            gone = left_out(stream) | (self._combined if is_rest(stream) else frozenset())
            whole = self._consumers.get(whole_of(stream), [])
            found = [each for each in whole if each.node not in gone]
            self._consumers[stream] = found
        return found

    def combining(self, stream: str) -> Combining | None:
        """How productions of this name are grouped, where they are."""
        found = self.combinings.get(whole_of(stream))
        gone = left_out(stream)
        if found is None or not gone:
            return found
        groupings = {name: each for name, each in found.groupings.items() if name not in gone}
        return replace(found, groupings=groupings, rest=len(self._of(stream)) > len(groupings))

    def consumed(self, stream: str) -> bool:
        """True when this stream has a consumer."""
        return bool(self._of(stream))

    def looks(self, stream: str) -> bool:
        """True when some consumer has keys of its own, which are taken out of the values."""
        return any(consumer.extract is not None or consumer.of for consumer in self._of(stream))

    def drops_late(self, stream: str) -> bool:
        """True when some consumer does not get the late records of this stream."""
        return any(not consumer.wants_late for consumer in self._of(stream))

    def rules(self, stream: str) -> dict[str, Rule]:
        """How the consumers of a stream divide their keys by tables, where any do."""
        divided = ((consumer.node, consumer.divided) for consumer in self._of(stream))
        return {
            node: Rule(key.divided.value, key.instances)
            for node, key in divided
            if key is not None and key.divided.by_tables
        }

    def split_columns(
        self, batch: ColumnBatch, late: npt.NDArray[np.bool_] | None = None, epochs: Dividing = None
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]:
        """:meth:`split` for records in columns; ``late`` says which are late (None: none is). A
        consumer whose key does not consist of columns gets them as rows."""
        consumers, batch = self._of(batch.stream), whole(batch)
        out: list[tuple[NodeName, AnyBatch]] = []
        refused: list[Keyless] = []
        in_time = batch if late is None else batch.where(~late)
        rows: dict[int, Batch] = {}
        for consumer in consumers:
            gone = None if consumer.wants_late else late
            own_batch = batch if gone is None or consumer.counts else in_time
            if not len(own_batch):
                continue
            if consumer.extract is None and consumer.divided is None:
                out.append((consumer.node, own_batch))
            elif (keys := key_column_of(own_batch, consumer, self._most_key, epochs)) is not None:
                frame = (
                    own_batch.frame
                    if consumer.columns is None
                    else own_batch.frame.select(consumer.columns)
                )
                keyed_batch = replace(own_batch, keys=keys, frame=frame)
                out.append(
                    (
                        consumer.node,
                        keyed_batch
                        if gone is None or not consumer.counts
                        else keyed_batch.where(~gone),
                    )
                )
            else:
                if id(own_batch) not in rows:
                    rows[id(own_batch)] = own_batch.rows()
                part = rows[id(own_batch)]
                still = (
                    np.flatnonzero(gone).tolist() if gone is not None and consumer.counts else ()
                )
                keyed_rows, missing = self._split_for(consumer, part, part.values, still, epochs)
                if own_batch is not batch and late is not None:
                    missing = _among_all(missing, late)
                refused += missing
                out.append((consumer.node, keyed_rows))
        return self._own([(node, each) for node, each in out if len(each)]), refused

    def split(
        self,
        batch: Batch,
        decoded: Sequence[Any],
        late: Collection[int] = (),
        epochs: Dividing = None,
    ) -> tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]]:
        """(consumer, batch under its keys) for every consumer, and the records that had no key for
        one. The indexes in ``late`` go only to consumers that want late records. ``epochs``: how
        keys are divided; without it, hot keys are not."""
        out: list[tuple[NodeName, AnyBatch]] = []
        refused: list[Keyless] = []
        for consumer in self._of(batch.stream):
            records = whole(batch) if consumer.labelled else unlabelled(whole(batch))
            keyed_batch, missing = self._split_for(consumer, records, decoded, late, epochs)
            refused += missing
            if len(keyed_batch):
                out.append((consumer.node, keyed_batch))
        return self._own(out), refused

    def _own(self, parts: list[tuple[NodeName, AnyBatch]]) -> list[tuple[NodeName, AnyBatch]]:
        """Objects that several consumers would share are copied for those whose code may change
        them."""
        shared = [
            node
            for node, batch in parts
            if isinstance(batch, Batch) and are_objects(batch.held_values)
        ]
        changing = [node for node in shared if node in self._changing]
        if len(shared) < 2 or not changing:
            return parts
        # Where all of them may change the objects, the first has them to itself.
        copied = changing if len(changing) < len(shared) else changing[1:]
        return [
            (node, apart(batch) if node in copied and isinstance(batch, Batch) else batch)
            for node, batch in parts
        ]

    def _split_for(
        self,
        consumer: Consumer,
        batch: Batch,
        decoded: Sequence[Any],
        late: Collection[int],
        epochs: Dividing,
    ) -> tuple[Batch, list[Keyless]]:
        """One consumer's records under its keys, and those that have none."""
        if (numbered := self._under_numbers(consumer, batch, decoded, late)) is not None:
            return numbered, []
        # Late records are counted, too. Where a source states watermarks, the size of a read
        # decides which records are late; it must not decide which instances the records behind them
        # go to.
        indexes = None if consumer.counts else _indexes(batch, consumer, late)
        part = batch if indexes is None else batch.pick(indexes)
        values = decoded if indexes is None else [decoded[i] for i in indexes]
        keyed_batch, missing = keyed(consumer, part, values, self._most_key)
        gone = {bad.index for bad in missing}
        if missing:
            keyed_batch = keyed_batch.pick([i for i in range(len(keyed_batch)) if i not in gone])
            missing = (
                missing
                if indexes is None
                else [replace(bad, index=indexes[bad.index]) for bad in missing]
            )
        if consumer.divided is not None:
            keyed_batch = keyed_batch.under(
                with_instances_of(consumer, consumer.divided, keyed_batch, epochs)
            )
        if consumer.counts and late and not consumer.wants_late:
            dropped = set(late)
            usable = [i for i in range(len(batch)) if i not in gone]
            keyed_batch = keyed_batch.pick(
                [row for row, i in enumerate(usable) if i not in dropped]
            )
            missing = [bad for bad in missing if bad.index not in dropped]
        return keyed_batch, missing

    @staticmethod
    def _under_numbers(
        consumer: Consumer, batch: Batch, decoded: Sequence[Any], late: Collection[int]
    ) -> Batch | None:
        """The same for keys that are all whole numbers and come undivided: then no record can have
        none."""
        if len(batch) <= _FEW_ROWS or consumer.divided is not None or len(consumer.fields) != 1:
            return None
        numbers = decoded.numbers(consumer.fields[0]) if isinstance(decoded, Values) else None
        if numbers is None:
            return None
        keyed_batch = batch.under(numbers)
        return (
            without(keyed_batch, sorted(late)) if late and not consumer.wants_late else keyed_batch
        )


def _among_all(missing: Sequence[Keyless], late: npt.NDArray[np.bool_]) -> list[Keyless]:
    """Records without a key by their indexes among late records and those in time, given by those
    among the records in time."""
    in_time = np.flatnonzero(~late).tolist()
    return [replace(bad, index=in_time[bad.index]) for bad in missing]


def _indexes(batch: Batch, consumer: Consumer, late: Collection[int]) -> list[int] | None:
    """The indexes of the records that a consumer gets; None for all of them."""
    if not late or consumer.wants_late:
        return None
    return [index for index in range(len(batch)) if index not in late]


def _wants_late(node: Node) -> bool:
    if node.sink is not None:
        return node.sink.takes_late
    computation = node.computation
    return computation is not None and computation.takes_late


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
        """Without a look at what is known, which takes longer than to hash a key and forgets those
        that return."""
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
    """Splits a consumer's batch over its shards, by the newest table seen."""

    def __init__(self, hash_of: Callable[[str], KeyHash] = lambda node: key_hash) -> None:
        self._hash_of = hash_of
        self._edges: dict[str, _Edges] = {}
        self.distance: Callable[[ShardName], Network] = lambda shard: Network.HOST
        """How far the owner of a shard is."""

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
    """So few rows are dealt out before an array of them is made."""
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
