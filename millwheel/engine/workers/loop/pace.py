"""How often a worker repeats its periodic work, and how soon it begins its next step."""

from __future__ import annotations

from dataclasses import dataclass, field

from millwheel.engine.workers.loop.commits import LONGEST_US
from millwheel.engine.workers.loop.reporting import ReportPace
from millwheel.engine.workers.loop.snapshots import SnapshotPace

_RESTS, _REST_US = 3, 4_400
"""A balanced worker rests this many times as long as its step took, and at most until this time
after the step began. Steps of few records cost almost as much as those of many: with rests, there
are fewer of them."""
MUCH_US = 5_000
"""After a step of this length there is no rest: it had many records, and more may wait."""
_LONG_US, _AWAKE = 20_000, 3
"""After a step of this length rests are as short as steps, for this many times its length: few
records follow, and they are answers that others wait for."""

_FEW = 256  # records that wait for the end of a step of a millisecond


@dataclass(slots=True)
class StepPace:
    """When the loop may begin its next step; events that come earlier wait, and share that step.

    ``apart_us`` is the least time between the beginnings of two steps; 0: none, every step begins
    at once. None: after a step the worker rests three times as long as the step took, so it is
    quick while it has little to do and begins fewer steps as each has more to do. Nothing waits
    that comes after the rest. There is none when a step did much, nor when it has left work for the
    next one, and it is as short as the step for some time after one that was long. Work that only
    becomes due during the rest, such as a look for new input, waits, too.
    """

    apart_us: int | None = 0
    _awake_until_us: int = field(default=0, repr=False, compare=False)

    def rest_us(self, began_us: int, ended_us: int) -> int:
        """How long to rest (µs) after a step."""
        took_us = ended_us - began_us
        if took_us >= _LONG_US:
            self._awake_until_us = ended_us + _AWAKE * took_us
        if took_us >= MUCH_US:
            return 0
        if self.apart_us is None:
            rest_us = min(_RESTS * took_us, max(_REST_US - took_us, 0))
        else:
            rest_us = max(self.apart_us - took_us, 0)
        return min(rest_us, took_us) if ended_us < self._awake_until_us else rest_us


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """How often things are done (µs). The output that a step can send while it goes on leaves at
    once if there is much: more than ``few`` records, or after a step that did much. Few records
    share a frame with the output that the step makes durable, and the other worker runs one bundle
    of both: less CPU, for a fraction of a millisecond (0: they never do)."""

    few: int = _FEW
    retry_lane_us: int = 20_000
    longest_work_us: int = LONGEST_US
    reports: ReportPace = field(default_factory=ReportPace)
    snapshots: SnapshotPace = field(default_factory=SnapshotPace)

    @classmethod
    def for_pipeline(cls, latency_us: int | None, waits_for_time: bool) -> RuntimeLimits:
        """``latency_us`` as in :class:`StepPace`: without rests (0), each record leaves at once."""
        reports = ReportPace.for_pipeline(waits_for_time)
        return cls(reports=reports) if latency_us != 0 else cls(0, reports=reports)
