"""The graph: who gets which record, in which order things happen, and how far time has come.

A record is processed to its end before the next one: all that follows from it, through all
computations, happens first. Then time moves: the watermark of each computation is the lowest output
of those that feed it, computations before those that consume them. A production belongs to its
consumers before the watermark that followed from it does.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millwheel.connect.python_objects import load_object
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.keys import check_key
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    StreamSpec,
)
from millwheel.errors import RecordError
from millwheel.language.spec.key_extractors import load_extractor
from tests.search.reference.keys import key_taker
from tests.search.script import Letter, Row

_MOST_STEPS = 200_000
_MINUTE = 60_000_000
Seen = dict[Any, tuple[int, int]]
"""Of ids: the time of the record, and the watermark when it came."""


@dataclass(slots=True)
class Arrival:
    """A record on its way to a node. ``origin`` and ``number`` say where it came from, and as the
    how-manieth."""

    node: Node
    stream: str
    key: Any
    value: Any
    timestamp: int
    origin: str
    number: int


class Node:
    """What sources and computations have in common. ``watermark`` is that of the input."""

    def __init__(
        self,
        world: World,
        name: str,
        inputs: tuple[InputSpec, ...] = (),
        outputs: tuple[str, ...] = (),
    ) -> None:
        self.world = world
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        self.watermark = MIN_TIME
        self.counters: Counter[str] = Counter()
        self.delayed = False
        """It gets records that are late at their source."""

    def take(self, arrival: Arrival) -> None:
        """One record, with all that follows from it in this node."""

    def fire(self) -> None:
        """All that the watermark has passed, in order of time."""

    def wakes_at(self) -> int:
        """When the wall clock makes something happen here (MAX_TIME: never)."""
        return MAX_TIME

    def ring(self) -> None:
        """All that the wall clock has reached."""

    def hold(self) -> int:
        """What keeps the output watermark back, besides the input."""
        return MAX_TIME

    def note_time(self) -> None:
        """The watermark is about to rise."""

    def output(self) -> int:
        """No production of this node is before this, except late ones."""
        return min(self.watermark, self.hold())


class World:
    """A pipeline at one moment."""

    def __init__(self, spec: PipelineSpec, now_us: int) -> None:
        self.spec = spec
        self.now = now_us
        self.nodes: dict[str, Node] = {}
        self.rows: dict[str, list[Row]] = {}
        self.letters: list[Letter] = []
        self._queue: deque[Arrival] = deque()
        self._number = 0
        self._shown: Seen = {}
        self.unsure = False
        self.clocked: set[str] = set()
        """Streams with records whose time is that of an output watermark."""
        self._extract: dict[tuple[str, str], Callable[[Any], Any] | None] = {}
        self._consumers: dict[str, list[Node]] = {}
        self._above: dict[str, list[Node]] = {}

    def connect(self) -> None:
        """All nodes are known: who consumes what, and who feeds whom."""
        for node in self.nodes.values():
            for given in node.inputs:
                self._consumers.setdefault(given.stream, []).append(node)
                self._extract[node.name, given.stream] = key_taker(given.key, self.spec.folder)
            streams = {given.stream for given in node.inputs}
            self._above[node.name] = [
                other
                for other in self.nodes.values()
                if other is not node and streams & {*other.outputs, DEAD_LETTERS}
            ]

    def load(self, name: str) -> Any:
        """The object behind ``module:name``."""
        return load_object(name, self.spec.folder)

    # --- records ----------------------------------------------------------------------------------

    def send(
        self,
        stream: str,
        key: Any,
        value: Any,
        timestamp: int,
        origin: str,
        *,
        late: bool = False,
        sink: bool = True,
    ) -> None:
        """A record of ``stream`` is there. ``late``: it was late at its source, and goes only to
        nodes that take such. ``sink``: it is visible, too."""
        producer = self.nodes.get(origin.partition("/")[0])
        if sink and not self._seen_by_sink(stream, key, value, timestamp, producer):
            self.rows.setdefault(stream, []).append(Row(key, timestamp, plain(value)))
        for node in self._consumers.get(stream, ()):
            if late and not node.delayed:
                continue
            extract = self._extract[node.name, stream]
            try:
                own = key if extract is None else check_key(extract(value))
            except RecordError as ex:
                self.letter(node.name, str(ex), value, timestamp, counted=producer)
            except Exception as ex:
                why = f"the key extractor failed: {type(ex).__name__}: {ex}"
                self.letter(node.name, why, value, timestamp, counted=producer)
            else:
                self._number += 1
                self._queue.append(
                    Arrival(node, stream, own, value, timestamp, origin, self._number)
                )

    def is_copy(self, seen: Seen, index: Any, horizon: int, timestamp: int, watermark: int) -> bool:
        """Whether a record is a copy of one in ``seen`` (with its time), where it is remembered.
        Ids are remembered for the horizon behind the watermark, and for some time longer."""
        if index in seen:
            until, came = seen[index][0] + horizon, seen[index][1]
            if until >= watermark:
                return True
            gone = came <= until and until + max(_MINUTE, horizon // 8) < watermark
            self.unsure = self.unsure or not gone
        seen[index] = timestamp, watermark
        return False

    def _seen_by_sink(
        self, stream: str, key: Any, value: Any, timestamp: int, producer: Node | None
    ) -> bool:
        """A sink is a consumer, too: it needs its key, and of records with the same key and id it
        takes one."""
        own = next((sink.key for sink in self.spec.sinks if sink.stream == stream), None)
        if own is not None and own.kind is not KeyKind.RECORD:
            try:
                key = check_key(load_extractor(own, self.spec.folder)(value))
            except RecordError as ex:
                self.letter(f"sink.{stream}", str(ex), value, 0, counted=producer)
                return True
        given = id_of(self.spec.stream(stream), value)
        watermark = MIN_TIME if producer is None else producer.output()
        index = (stream, key, given)
        return given is not None and self.is_copy(
            self._shown, index, self.spec.stream(stream).id_horizon_us, timestamp, watermark
        )

    def letter(
        self, where: str, reason: str, about: Any, timestamp: int, counted: Node | None = None
    ) -> None:
        """A record could not be used."""
        self.letters.append(Letter(where, reason, plain(about)))
        (counted or self.nodes[where]).counters["dead_letters"] += 1
        value = {
            "computation": where,
            "reason": reason,
            "value": plain(about),
            "timestamp": timestamp,
        }
        self.send(DEAD_LETTERS, where, value, max(timestamp, 0), where)

    # --- time -------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until nothing is left to happen without the outside."""
        steps = 0
        while self._queue or self._raise_watermarks():
            steps += 1
            if steps > _MOST_STEPS:
                raise RuntimeError(f"{self.spec.name} never comes to rest")
            if self._queue:
                arrival = self._queue.popleft()
                arrival.node.take(arrival)
                arrival.node.fire()
                arrival.node.ring()

    def _raise_watermarks(self) -> bool:
        """Let the watermark of one node rise, the first that can; False when none can."""
        for node in self.nodes.values():
            above = self._above[node.name]
            known = min((other.output() for other in above), default=node.watermark)
            if known > node.watermark:
                node.note_time()
                node.watermark = known
                node.fire()
                node.ring()
                return True
        return False

    def advance_clock(self, to: int) -> None:
        """The wall clock goes on; what waits for a time happens at that time."""
        while (at := min(node.wakes_at() for node in self.nodes.values())) <= to:
            self.now = max(at, self.now)
            for node in self.nodes.values():
                node.ring()
            self.settle()
        self.now = max(to, self.now)


def id_of(stream: StreamSpec, value: Any) -> Any:
    """What copies of a record share; None when there is nothing."""
    if not stream.id:
        return None
    return value.get(stream.id) if isinstance(value, dict) else getattr(value, stream.id, None)


def plain(value: Any) -> Any:
    """A value as it travels: a copy as plain data."""
    return decode_value(encode_value(value))


def in_order(computations: tuple[ComputationSpec, ...]) -> list[ComputationSpec]:
    """Producers before their consumers, as far as there are no cycles."""
    left, found, made = list(computations), [], set[str]()
    while left:
        waiting = {stream for each in left for stream in outputs_of(each)}
        ready = [
            each
            for each in left
            if not ({i.stream for i in each.inputs} - set(outputs_of(each))) & waiting
        ]
        for each in ready or left[:1]:
            left.remove(each)
            found.append(each)
            made.update(outputs_of(each))
    return found


def outputs_of(spec: ComputationSpec) -> tuple[str, ...]:
    """The streams that a computation produces, late records included."""
    side = spec.late.partition(":")[2]
    return (*spec.outputs, side) if side else spec.outputs
