"""How often a worker repeats its periodic work."""

from __future__ import annotations

from dataclasses import dataclass, field

from millwheel.workers.loop.commits import LONGEST_US
from millwheel.workers.loop.reporting import ReportPace
from millwheel.workers.loop.snapshots import SnapshotPace


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """How often things are done (µs)."""

    retry_lane_us: int = 20_000
    longest_work_us: int = LONGEST_US
    reports: ReportPace = field(default_factory=ReportPace)
    snapshots: SnapshotPace = field(default_factory=SnapshotPace)
