"""The figures of a sink shard for ``/metrics``, updated per batch, never per record."""

from __future__ import annotations

from collections.abc import Sequence

from millwheel.core.metrics.catalogue import (
    EVENT_TIME_BOUNDS_S,
    EVENT_TIME_LATENCY,
    LATENCY,
    LATENCY_BOUNDS_S,
    PUBLISH_FAILURES,
    PUBLISH_SECONDS,
)
from millwheel.core.metrics.figures import Figure, Histogram
from millwheel.core.model.times import IDLE_TIME, MIN_TIME, SECOND

_WHY_CHARS = 300  # of an error, in what holds the watermark


class SinkFigures:
    """``why`` is the last error of a target that is away, "" once it takes batches again;
    ``changes`` counts how often that became another one."""

    def __init__(self) -> None:
        self.publish_s = Histogram(LATENCY_BOUNDS_S)
        self.latency_s = Histogram(LATENCY_BOUNDS_S)
        self.event_time_s = Histogram(EVENT_TIME_BOUNDS_S)
        self.failures = 0
        self.why = ""
        self.changes = 0

    def away(self, why: str) -> None:
        """The target did not take a batch; it is tried again."""
        self.failures += 1
        self._say(" ".join(why.split())[:_WHY_CHARS])

    def visible(self, now_us: int, born_us: Sequence[int], earliest_us: int) -> None:
        """A batch is visible: its deliveries were read at ``born_us``, its earliest timestamp is
        ``earliest_us``."""
        self._say("")
        for born in born_us:
            self.latency_s.add((now_us - born) / SECOND)
        if MIN_TIME < earliest_us < IDLE_TIME:
            self.event_time_s.add(max(0, now_us - earliest_us) / SECOND)

    def _say(self, why: str) -> None:
        self.changes += why != self.why
        self.why = why

    def figures(self) -> Sequence[Figure]:
        """For ``/metrics``, without the labels of the shard."""
        return (
            Figure(PUBLISH_SECONDS, self.publish_s),
            Figure(PUBLISH_FAILURES, self.failures),
            Figure(LATENCY, self.latency_s),
            Figure(EVENT_TIME_LATENCY, self.event_time_s),
        )
