"""Dead letters that are tried again: asked for by a person, bound by the driver, applied by workers."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from millwheel.adapters.spaces.replay_orders import ReplayOrders
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch, DeadLetter
from millwheel.core.pipeline.graph import Graph, build_graph
from millwheel.core.pipeline.replays import KEY, RECORD, Again, ReplayOrder, Request, RequestedLetter, as_key
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.launch.progress.summary import ClusterView
from millwheel.letters.letters import Letter
from millwheel.sources.base import Chunk, Reject
from millwheel.spec.loading import load_extractor, load_object
from millwheel.workers.delivery.routing import Fanout
from millwheel.workers.delivery.timestamps import Timestamps
from millwheel.workers.sources.sorting import Sorting
from millwheel.workers.sources.source_parts import SourceParts

_LETTERS = 5_000
"""So many letters are in one request at most."""
_EVER = -(2**63)  # Fixed: nothing is late


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One person at a time chooses letters."""
    (root / "replay").mkdir(exist_ok=True)
    with open(root / "replay" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def asked_for(orders: ReplayOrders) -> frozenset[str]:
    """The letters that were ever asked to be tried again, by id."""
    return frozenset(wanted.letter for request in orders.requests().values() for wanted in request.wanted)


def ask(root: Path, orders: ReplayOrders, letters: list[Letter], limit: int | None) -> int:
    """Ask for those letters that can be tried again and were never asked for; how many they are. What is asked for
    when this is killed is asked for once."""
    with _alone(root):
        requests = orders.requests()
        known = asked_for(orders)
        chosen = [letter for letter in letters if letter.again and letter.id not in known][:limit]
        number = max(requests, default=0) + 1
        for first in range(0, len(chosen), _LETTERS):
            piece = [letter.wanted() for letter in chosen[first : first + _LETTERS]]
            while not orders.request(number, Request(secrets.token_hex(8), piece)):
                number += 1
        return len(chosen)


class Binding:
    """Makes orders of requests, with the code of a pipeline: keys, times and values that are missing."""

    def __init__(self, spec: PipelineSpec) -> None:
        self._spec = spec
        self._graph = build_graph(spec)
        self._fanout = Fanout(self._graph, lambda key: load_extractor(key, spec.folder), most_key=spec.limits.key)

    def order(self, request: Request) -> ReplayOrder:
        """What is to be done about a request."""
        found = [again for wanted in request.wanted for again in self._records(wanted)]
        return ReplayOrder(request.id, found)

    def _records(self, wanted: RequestedLetter) -> list[Again]:
        if wanted.node not in self._graph.nodes:
            return []
        if wanted.what == RECORD:
            return [self._again(wanted, wanted.node, as_key(wanted.key), wanted.timestamp or 0, wanted.value)]
        if wanted.what == KEY:
            return self._keyed(wanted)
        return self._line(wanted)

    def _again(self, wanted: RequestedLetter, node: str, key: Any, at: int, value: Any, problem: str = "") -> Again:
        return Again(wanted.letter, node, wanted.stream, key, at, value, wanted.history, problem)

    def _keyed(self, wanted: RequestedLetter) -> list[Again]:
        """A record that had no key for one consumer."""
        at = wanted.timestamp or 0
        batch = Batch(wanted.stream, [1], [at], [wanted.letter], [wanted.value])
        batches, keyless = self._fanout.split(batch, [wanted.value])
        for node, mine in batches:
            if node == wanted.node:
                return [self._again(wanted, node, mine.keys[0], at, wanted.value)]
        problem = next((each.reason for each in keyless if each.node == wanted.node), "nobody consumes it any more")
        return [self._again(wanted, wanted.node, wanted.letter, at, wanted.value, problem)]

    def _line(self, wanted: RequestedLetter) -> list[Again]:
        """A line of a source that was no record: for each consumer of its stream."""
        stream = self._spec.stream(wanted.stream)
        schema = load_object(stream.schema, self._spec.folder) if stream.schema else None
        function = load_object(stream.timestamp, self._spec.folder) if ":" in stream.timestamp else None
        parts = SourceParts(
            pipeline=self._spec.name,
            node=NodeName(wanted.node),
            stream=replace(stream, max_future_us=None),
            source=None,  # type: ignore[arg-type]  # nothing is read here
            partitions=list,
            mine=bool,
            fanout=self._fanout,
            timestamps=Timestamps(stream, function),
            limits=self._spec.limits,
        )
        sorting = Sorting(parts, _EVER, set(), 0)
        found = sorting.sort(wanted.letter, _read(wanted.value, schema))
        records = [
            self._again(wanted, node, batch.rows().keys[0], batch.rows().timestamps[0], _plain(batch.rows().values[0]))
            for node, batch in found.batches
        ]
        return records + [self._unusable(wanted, letter) for letter in sorting.letters]

    def _unusable(self, wanted: RequestedLetter, letter: DeadLetter) -> Again:
        """What still cannot be used. A source takes no records, so a consumer of its stream tells."""
        consumers = self._graph.consumers.get(wanted.stream, ())
        if letter.computation in consumers:
            at = letter.timestamp or 0
            return self._again(wanted, letter.computation, wanted.letter, at, _plain(letter.value), letter.reason)
        node = next(iter(consumers), wanted.node)
        return Again(
            wanted.letter,
            node,
            wanted.stream,
            wanted.letter,
            0,
            wanted.value,
            wanted.history,
            letter.reason,
            wanted.node,
        )


def _read(value: Any, schema: Any) -> Chunk:
    """A line, or the record that it was, as a source reads it."""
    try:
        kind = Any if schema is None else schema
        given = msgspec.json.decode(value, type=kind) if isinstance(value, str) else msgspec.convert(value, kind)
        if schema is None and not isinstance(given, dict):
            raise msgspec.ValidationError(f"a record is a map, not {type(given).__name__}")
    except (msgspec.MsgspecError, ValueError) as ex:
        return Chunk([], [], 1, [Reject(1, value, f"still no record: {ex}")], finished=True)
    return Chunk([1], [given], 1, finished=True)


def _plain(value: Any) -> Any:
    return msgspec.msgpack.decode(encode_value(value))


@dataclass(slots=True)
class Replays:
    """The replays of a root, as its driver sees them."""

    orders: ReplayOrders
    spec: PipelineSpec
    graph: Graph
    open: dict[int, ReplayOrder] = field(default_factory=dict)

    def bind(self) -> None:
        """Make orders of what is asked for."""
        requests = self.orders.unbound()
        binding = Binding(self.spec) if requests else None
        for number, request in requests.items():
            assert binding is not None
            self.orders.bind(number, binding.order(request))
        self.open.update(self.orders.undone(frozenset(self.open)))

    def settle(self, view: ClusterView | None) -> None:
        """Note the orders of which everything is applied, by the counters of the shards."""
        for number, order in list(self.open.items()):
            applied = sum(node.counters.get(order.counter, 0) for node in view.nodes.values()) if view else 0
            if applied >= len(order.records):
                self.orders.finish(number)
                del self.open[number]

    def left(self) -> int:
        """How many records of open orders there are."""
        return sum(len(order.records) for order in self.open.values())
