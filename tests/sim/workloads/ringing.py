"""Timers that set timers beyond the end of the input: as often as the limit says, whoever dies
meanwhile."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

from millwheel.api import Computation, ValueState
from millwheel.core.model.failures import ENDLESS, tallies_in
from millwheel.core.model.limits import Limits
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from tests.computations import computation_spec
from tests.sim.kernel import Failure
from tests.sim.workloads.base import SECOND, START_US, Workload, by

if TYPE_CHECKING:
    from tests.sim.world import World

_MOST = 12  # timers that timers may set after the end
_FOR_EVER = 1 << 40
_APART_US = SECOND // 3


class Ringing(Computation):
    """A record sets a timer, which sets the next one until it has rung as often as the record
    says."""

    rung = ValueState(int, default=0)
    beats = ValueState(int, default=0)

    def __init__(self, domain: str) -> None:
        self._domain = Domain(domain)

    def process_record(self, ctx: Any, record: Any) -> None:
        self.beats.set(record.value["beats"])
        self._set(ctx, record.timestamp + SECOND)

    def process_timer(self, ctx: Any, timer: Any) -> None:
        self.rung.set(self.rung.get() + 1)
        if self.rung.get() < self.beats.get():
            self._set(ctx, timer.at + SECOND)
        ctx.produce(
            "rung", {"key": ctx.key, "n": self.rung.get(), "beyond": ctx.watermark == MAX_TIME}
        )

    def _set(self, ctx: Any, at: int) -> None:
        """By the wall clock each rings some time after the one before, so that workers die in
        between."""
        ctx.set_timer(
            "ring", at if self._domain is Domain.EVENT else ctx.now + _APART_US, self._domain
        )


class Rings(Workload):
    """A source → timers, some keys for ever in some seeds → a sink. A key for ever ends the run in
    words."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        own = Random(f"rings {seed}")
        self.code = {"sim:Ringing": Ringing}
        self.given = Limits(chain=_MOST)
        self.domain = own.choice(list(Domain)).value
        self.endless = own.random() < 0.5
        keys = own.randint(1, 12)
        beats = [own.randint(1, _MOST + 1) for _ in range(keys)]
        if self.endless:
            beats[0] = _FOR_EVER
        rows = [
            {"key": f"k{n}", "beats": beats[n], "n": n, "ts": START_US + own.randint(0, 5 * SECOND)}
            for n in range(keys)
        ]
        self.rows = {"events": {"p0": rows[::2], "p1": rows[1::2]}}

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "events"})
        stream = StreamSpec("events", source, timestamp="ts", max_delay_us=10 * SECOND)
        ringing = computation_spec(
            "ringing",
            (InputSpec("events", by("key")),),
            ("rung",),
            callback="sim:Ringing",
            options={"domain": self.domain},
            productions=self.productions,
        )
        sinks = (SinkSpec("rung", "memory"), SinkSpec("dead_letters", "memory"))
        return PipelineSpec("sim", (stream,), (ringing,), sinks, "/nowhere", limits=self.given)

    def ended(self, world: World) -> bool:
        """Once a failure without end is known, the driver stops the run."""
        if not self.endless:
            return super().ended(world)
        leaders = [each for each in world.injectors.values() if each.alive and each.leading]
        found = [
            call
            for each in leaders
            for view in each.runtime.state.view()
            for call in tallies_in(view.counters)
        ]
        return any(call.what == ENDLESS for call in found)

    def check(self) -> None:
        beats = {row["key"]: row["beats"] for rows in self.rows["events"].values() for row in rows}
        rung: defaultdict[str, list[int]] = defaultdict(list)
        beyond: defaultdict[str, int] = defaultdict(int)
        for row in self.sinks.rows("rung"):
            rung[row["key"]].append(row["n"])
            beyond[row["key"]] += row["beyond"]
        for key, wanted in beats.items():
            found = sorted(rung[key])
            if found != list(range(1, len(found) + 1)) or len(found) > wanted:
                raise Failure(f"a timer fires once: {key} rang {found}, of {wanted}", (key,))
            if len(found) < wanted and not self.endless:
                raise Failure(
                    f"all timers fire: {key} rang {len(found)} times, of {wanted}", (key,)
                )
            if beyond[key] > _MOST + 1:
                raise Failure(
                    f"timers end: {key} rang {beyond[key]} times after the end of the input", (key,)
                )
        if letters := self.sinks.rows("dead_letters"):
            raise Failure(f"timers without end make no dead letters: {letters[0]['reason']}")
