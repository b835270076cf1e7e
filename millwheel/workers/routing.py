"""From a stream to the shards of its consumers: each consumer's own key, then the shard that owns it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.core.graph import Graph
from millwheel.core.keys import Key, check_key, key_hash
from millwheel.core.records import Batch
from millwheel.core.spec import KeyKind, KeySpec
from millwheel.core.table import RangeTable
from millwheel.errors import RecordError

Extractor = Callable[[Any], Key]
_PLAIN_KEYS = {str, int, bytes}
_ROUTES_KEPT = 200_000


@dataclass(frozen=True, slots=True)
class Keyless:
    """A record that a consumer's extractor could give no key; ``place`` is its index in the batch."""

    place: int
    node: str
    reason: str
    exception: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a stream: ``field`` is set when its key is one plain field, ``extract`` None when it takes
    the key the producer gave."""

    node: str
    field: str
    extract: Extractor | None


class Fanout:
    """Computes, for every consumer of a stream, the records with that consumer's keys."""

    def __init__(self, graph: Graph, load_extractor: Callable[[KeySpec], Extractor]) -> None:
        self._consumers: dict[str, list[Consumer]] = {}
        for stream, names in graph.consumers.items():
            for name in names:
                spec = next(given.key for given in graph.nodes[name].inputs if given.stream == stream)
                field = spec.names[0] if spec.kind is KeyKind.FIELD else ""
                extract = None if spec.kind is KeyKind.RECORD else load_extractor(spec)
                self._consumers.setdefault(stream, []).append(Consumer(name, field, extract))

    def consumed(self, stream: str) -> bool:
        """True when anybody takes this stream."""
        return stream in self._consumers

    def split(self, batch: Batch, decoded: Sequence[Any]) -> tuple[list[tuple[str, Batch]], list[Keyless]]:
        """(consumer, batch under its keys) for every consumer, and the records that had no key for one."""
        out: list[tuple[str, Batch]] = []
        refused: list[Keyless] = []
        for consumer in self._consumers.get(batch.stream, ()):
            keys, missing = _keys(consumer, batch.keys, decoded)
            mine = Batch(batch.stream, batch.seqs, batch.timestamps, keys, batch.values, batch.ids, batch.born_us)
            if missing:
                refused += missing
                gone = {bad.place for bad in missing}
                mine = mine.pick([i for i in range(len(mine)) if i not in gone])
            if len(mine):
                out.append((consumer.node, mine))
        return out, refused


def _keys(consumer: Consumer, given: list[Key], decoded: Sequence[Any]) -> tuple[list[Key], list[Keyless]]:
    if consumer.extract is None:
        return given, []
    if consumer.field:
        try:
            keys = [value[consumer.field] for value in decoded]
            if set(map(type, keys)) <= _PLAIN_KEYS:
                return keys, []
        except (TypeError, KeyError):
            pass
    return _keys_one_by_one(consumer, decoded)


def _keys_one_by_one(consumer: Consumer, decoded: Sequence[Any]) -> tuple[list[Key], list[Keyless]]:
    extract = consumer.extract
    assert extract is not None
    keys: list[Key] = []
    refused: list[Keyless] = []
    for place, value in enumerate(decoded):
        try:
            keys.append(check_key(extract(value)))
        except RecordError as ex:
            refused.append(Keyless(place, consumer.node, str(ex), ""))
            keys.append(None)
        except Exception as ex:  # the extractor may be the user's: whatever it raises is about this record
            refused.append(Keyless(place, consumer.node, f"the key extractor failed: {ex}", repr(ex)))
            keys.append(None)
    return keys, refused


class _Edges:
    """The shards of one table by their lower edges, with a memory of where keys went."""

    def __init__(self, table: RangeTable) -> None:
        ordered = sorted(table.shards, key=lambda entry: entry.range.lo)
        self.shards = [entry.shard for entry in ordered]
        self._los = [entry.range.lo for entry in ordered]
        self._known: dict[Key, int] = {}

    def places(self, keys: list[Key]) -> list[int]:
        known = self._known
        try:
            return [known[key] for key in keys]
        except KeyError:
            pass
        if len(known) > _ROUTES_KEPT:
            known.clear()
        los = self._los
        for key in keys:
            if key not in known:
                known[key] = bisect_right(los, key_hash(key)) - 1
        return [known[key] for key in keys]


class TableRouter:
    """Splits a consumer's batch over its shards, by the newest table seen."""

    def __init__(self) -> None:
        self._edges: dict[str, _Edges] = {}

    def update(self, table: RangeTable) -> None:
        """Follow a new version of a table."""
        edges = _Edges(table)
        before = self._edges.get(table.computation)
        if before is None or before.shards != edges.shards:
            self._edges[table.computation] = edges

    def knows(self, nodes: Iterable[str]) -> bool:
        """True once the tables of all ``nodes`` have been seen."""
        return all(node in self._edges for node in nodes)

    def route(self, node: str, batch: Batch) -> list[tuple[str, Batch]]:
        """(shard, its records in order) for the shards of ``node`` that get any."""
        edges = self._edges[node]
        if len(edges.shards) == 1:
            return [(edges.shards[0], batch)]
        places = edges.places(batch.keys)
        first = places[0]
        if places.count(first) == len(places):
            return [(edges.shards[first], batch)]
        by_shard: dict[int, list[int]] = {}
        for i, place in enumerate(places):
            by_shard.setdefault(place, []).append(i)
        return [(edges.shards[place], batch.pick(members)) for place, members in sorted(by_shard.items())]
