"""Measures how well this worker is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

import psutil

from millwheel.queries.peers.health import ErrorShare, Health
from millwheel.workers.host.container import memory_share


@dataclass(frozen=True, slots=True)
class HealthMeasures:
    """``step_s``: how long the step of the loop has taken; ``scratch``: a folder on the disk of local stores."""

    step_s: Callable[[], float]
    scratch: str
    errors: ErrorShare

    def now(self) -> Health:
        """The health at this moment (any thread)."""
        return Health(self.step_s(), self.memory(), self._disk(), self.errors.share(monotonic()))

    def memory(self) -> float:
        """The used share of the container's memory where that has a limit, else of the machine's (any thread)."""
        share = memory_share()
        return float(psutil.virtual_memory().percent) / 100 if share is None else share

    def _disk(self) -> float:
        try:
            usage = shutil.disk_usage(self.scratch)
        except OSError:  # it goes away when the worker does
            return 0.0
        return 1 - usage.free / usage.total
