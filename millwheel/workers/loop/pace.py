"""How often a worker repeats its periodic work, and how soon it begins its next step."""

from __future__ import annotations

from dataclasses import dataclass, field

from millwheel.workers.loop.commits import LONGEST_US
from millwheel.workers.loop.reporting import ReportPace
from millwheel.workers.loop.snapshots import SnapshotPace

_REST_US = 1_500
"""A balanced worker's rest ends at the latest so long after its step began. Steps of few records cost almost as much as
those of many: with rests, there are fewer of them."""
_MUCH_US = 5_000
"""After a step that took so long there is no rest: it had many records, and more may wait."""


@dataclass(frozen=True, slots=True)
class StepPace:
    """When the loop may begin its next step; what comes before then waits, and shares that step.

    ``apart_us`` is the least time between the beginnings of two steps; 0: none, every step begins at once. None: after
    a step the worker rests as long as the step took, so it is quick while it has little to do and begins fewer steps as
    each has more to do. Nothing waits that comes after the rest. There is none when a step did much, nor
    when it has left work for the next one.
    """

    apart_us: int | None = 0

    def rest_us(self, took_us: int) -> int:
        """How long to rest (µs) after a step that took so long."""
        if took_us >= _MUCH_US:
            return 0
        if self.apart_us is None:
            return min(took_us, max(_REST_US - took_us, 0))
        return max(self.apart_us - took_us, 0)


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """How often things are done (µs)."""

    retry_lane_us: int = 20_000
    longest_work_us: int = LONGEST_US
    reports: ReportPace = field(default_factory=ReportPace)
    snapshots: SnapshotPace = field(default_factory=SnapshotPace)
