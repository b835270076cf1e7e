"""Callbacks: calls for one record or timer of one key, several tries, timers of both clocks, order
by timestamp."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

from millwheel.api import Computation, Context
from millwheel.core.model.keys import check_key
from millwheel.core.model.records import Domain, Record, Timer
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec, Delivery, Productions
from millwheel.core.pipeline.work import EnrichSpec
from millwheel.core.windows.panes import Pane
from millwheel.errors import RecordError
from tests.search.reference.engine import Arrival, Node, Seen, World, id_of, outputs_of, plain
from tests.search.reference.states import Handed, Memory, bind, remembered

_SYSTEM = frozenset(("records_in", "records_out", "late", "dead_letters", "duplicates"))


class Ctx:
    """What a callback may ask and do."""

    def __init__(self, node: CallNode, key: Any, pane: Pane | None = None) -> None:
        self._node = node
        self.key = key
        self.pane = pane
        self.now = node.world.now

    @property
    def watermark(self) -> int:
        """How far it is beyond what it passes just now, nobody says."""
        if self._node.clock < self._node.watermark:
            self._node.world.unsure = True
        return self._node.watermark

    def produce(
        self, stream: str, value: Any, timestamp: int | None = None, key: Any = None
    ) -> None:
        """See millwheel.api.Context, as for the next three."""
        node = self._node
        if stream not in node.spec.outputs:
            raise RecordError(f"produce: {stream!r} is not an output of this computation")
        if timestamp is not None and timestamp < node.time:
            raise RecordError(
                f"produce to {stream!r}: a production may not be earlier than its cause"
            )
        own = self.key if key is None else check_key(key)
        node.made.append((stream, own, plain(value), node.time if timestamp is None else timestamp))

    def set_timer(self, tag: str, at: int, domain: Domain = Domain.EVENT) -> None:
        node, place = self._node, (self.key, domain, tag)
        waiting = sum(key == self.key and of is domain for key, of, _ in node.timers)
        if place not in node.timers and waiting >= node.world.spec.limits.timers:
            raise RecordError(f"set_timer {tag!r}: too many timers of this key wait already")
        node.timers[place] = min(at, MAX_TIME - 1)
        # Who takes the watermark of the end for a time: how far it has come just then, nobody says.
        node.world.unsure = node.world.unsure or at >= MAX_TIME

    def cancel_timer(self, tag: str, domain: Domain = Domain.EVENT) -> None:
        self._node.timers.pop((self.key, domain, tag), None)

    def count(self, name: str, by: int = 1) -> None:
        if name in _SYSTEM or not name.isidentifier():
            raise RecordError(f"count: {name!r} cannot name a counter")
        self._node.counted[name] += by


class CallNode(Node):
    """A computation whose user code is called. ``time`` is that of the record or timer that is
    processed now, and ``moment`` the time that counts for times to live: what comes behind the
    watermark, or is set for a time that has passed, counts as of the watermark. While a watermark
    passes several things, each counts as of its own time."""

    def __init__(
        self, world: World, spec: ComputationSpec, instance: Computation, code: str
    ) -> None:
        super().__init__(world, spec.name, spec.inputs, outputs_of(spec))
        self.spec = spec
        self.instance = instance
        self.time = self.moment = 0
        self.clock = MIN_TIME
        self.timers: dict[tuple[Any, Domain, str], int] = {}
        self.made: list[tuple[str, Any, Any, int]] = []
        self.counted: Counter[str] = Counter()
        self.handed: dict[tuple[str, Any], Handed] = {}
        """What the current call may change in place, by state and part."""
        waits = spec.firing.allowed_lateness_us > 0 or spec.late != "drop"
        self.delayed = waits or spec.is_change_log
        self._code = code
        self._key: Any = None
        self._memories: defaultdict[Any, Memory] = defaultdict(dict)
        self._declared = bind(self, instance)
        self._seen: Seen = {}
        self._horizon_us = self._longest_horizon()
        self._kept: list[Arrival] = []
        self.arrival: Arrival
        """The record of the current call."""
        self._floor = 0
        self.clocked = False
        """What is made now has no time of its own."""

    # --- records ----------------------------------------------------------------------------------

    def take(self, arrival: Arrival) -> None:
        if self.copied(arrival):
            return
        waits = self.spec.ordered or (
            isinstance(self.spec.work, EnrichSpec) and self.spec.work.waits
        )
        if waits and arrival.timestamp >= self.watermark:
            self._kept.append(arrival)
        else:
            self._process(arrival)

    def copied(self, arrival: Arrival) -> bool:
        """Whether a record with the same id was here before."""
        given = id_of(self.world.spec.stream(arrival.stream), arrival.value)
        if given is None or self.spec.delivery is not Delivery.EXACTLY_ONCE:
            return False
        seen = (arrival.stream, arrival.key, given)
        if self.world.is_copy(
            self._seen, seen, self._horizon_us, arrival.timestamp, self.watermark
        ):
            self.counters["duplicates"] += 1
            return True
        return False

    def _longest_horizon(self) -> int:
        """guarantees.md, Copies: "A consumer of several streams with ids remembers all for the
        longest of their horizons"."""
        spec = self.world.spec
        weak = {
            name
            for each in spec.computations
            if each.productions is Productions.WEAK
            for name in outputs_of(each)
        }
        streams = [spec.stream(given.stream) for given in self.spec.inputs]
        return max(
            (each.id_horizon_us for each in streams if each.id or each.name in weak), default=0
        )

    def _process(self, arrival: Arrival) -> None:
        self.arrival = arrival
        record = Record(arrival.key, arrival.value, arrival.timestamp, arrival.stream)

        def call() -> None:
            again = Record(record.key, deepcopy(record.value), record.timestamp, record.stream)
            self.instance.process_record(self.context(record.key), again)

        self.attempt(record.key, record.timestamp, "record", call, record.value)

    # --- timers -----------------------------------------------------------------------------------

    def fire(self) -> None:
        while (due := min(self._due(), key=lambda pair: pair[0], default=None)) is not None:
            self.clock = max(self.clock, due[0][0])
            due[1]()
        self.clock = self.watermark

    def _due(self) -> Iterator[tuple[Any, Callable[[], None]]]:
        """What the watermark has passed: (its place in the order, what happens). At one time,
        records that were kept come first, then what ends, then timers."""
        for kept in self._kept:
            if kept.timestamp < self.watermark:
                yield (
                    (kept.timestamp, 0, self._rank(kept), kept.origin, kept.number),
                    partial(self._release_kept, kept),
                )
        for key, memory in self._memories.items():
            for place, entry in memory.items():
                at = entry.at + (self._declared[place[0]].ttl_us or MAX_TIME)
                if at < self.watermark and self._declared[place[0]].ttl_us is not None:
                    yield (at, 1, 0, repr(key), repr(place)), partial(self._forget, key, place)
        for timer, at in self.timers.items():
            if timer[1] is Domain.EVENT and at < self.watermark:
                yield (at, 2, 0, timer[2], repr(timer[0])), partial(self.ring_one, *timer)

    def _release_kept(self, kept: Arrival) -> None:
        self._kept.remove(kept)
        self._process(kept)

    def _forget(self, key: Any, place: tuple[str, Any]) -> None:
        del self._memories[key][place]

    def _rank(self, kept: Arrival) -> int:
        """A version of an enrichment counts for records of its own time."""
        work = self.spec.work
        return 0 if isinstance(work, EnrichSpec) and kept.stream == work.stream else 1

    def wakes_at(self) -> int:
        return min(
            (at + 1 for (_, domain, _), at in self.timers.items() if domain is Domain.PROCESSING),
            default=MAX_TIME,
        )

    def ring(self) -> None:
        # When input has ended, all timers fire, whatever the clock shows.
        while True:
            due = [
                (at, place[2], repr(place[0]), place)
                for place, at in self.timers.items()
                if place[1] is Domain.PROCESSING
                and (at < self.world.now or self.watermark == MAX_TIME)
            ]
            if not due:
                return
            self.clocked = True
            self.ring_one(*min(due)[3])
            self.clocked = False

    def ring_one(self, key: Any, domain: Domain, tag: str) -> None:
        """A timer has come due."""
        at = self.timers.pop((key, domain, tag))
        time = at if domain is Domain.EVENT else self.floor()
        timer = Timer(key, tag, at, domain)
        self.attempt(
            key,
            time,
            "timer",
            lambda: self.instance.process_timer(self.context(key), timer),
            repr(timer),
        )

    def context(self, key: Any, pane: Pane | None = None) -> Context:
        """What a call gets."""
        made: Any = Ctx(self, key, pane)
        return made  # type: ignore[no-any-return]

    def floor(self) -> int:
        """The timestamp of what has no record of its own: that of the output watermark, and not the
        end of time."""
        self.note_time()
        return self._floor

    def note_time(self) -> None:
        if self.output() < MAX_TIME:
            self._floor = max(self._floor, self.output())

    # --- calls ------------------------------------------------------------------------------------

    def attempt(self, key: Any, time: int, what: str, call: Callable[[], None], about: Any) -> None:
        """Call up to ``max_attempts`` times; what a call did that fails never happened."""
        self._key, self.time, self.moment = key, time, max(time, self.clock)
        for _ in range(self.spec.max_attempts):
            memory, timers = deepcopy(self.memory()), dict(self.timers)
            self.made, self.counted, self.handed = [], Counter(), {}
            try:
                call()
                for (_, part), handed in list(self.handed.items()):
                    handed.handle.settle(handed, part)
            except Exception as ex:
                self._memories[key], self.timers = memory, timers
                failure = ex
            else:
                self._release()
                return
        kind = f"{type(failure).__name__}: {failure}"
        reason = f"{self._code} failed {self.spec.max_attempts} times on this {what}: {kind}"
        self.world.letter(self.name, reason, about, time)

    def _release(self) -> None:
        self.counters.update(self.counted)
        for stream, key, value, timestamp in self.made:
            self.world.send(stream, key, value, timestamp, self.name)
            if self.clocked:
                self.world.clocked.add(stream)

    def memory(self) -> Memory:
        """What the current key remembers."""
        return self._memories[self._key]

    # --- looking in -------------------------------------------------------------------------------

    def state(self) -> dict[Any, dict[str, Any]]:
        """What each key remembers that remembers anything."""
        return {
            key: remembered(self._declared, memory, self.watermark)
            for key, memory in self._memories.items()
            if memory
        }

    def state_of(self, key: Any) -> dict[str, Any]:
        """What a key remembers, defaults included."""
        return remembered(self._declared, self._memories.get(key, {}), self.watermark)

    def waiting(self) -> dict[Any, tuple[tuple[Domain, str, int], ...]]:
        """The timers of each key that are set, in the order of their times."""
        found: defaultdict[Any, list[tuple[Domain, str, int]]] = defaultdict(list)
        for (key, domain, tag), at in self.timers.items():
            found[key].append((domain, tag, at))
        return {
            key: tuple(sorted(each, key=lambda t: (t[2], t[1], t[0].value)))
            for key, each in found.items()
        }
