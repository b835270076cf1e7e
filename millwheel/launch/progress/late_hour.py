"""The share of late records in the last hour by stream, from counters that only grow. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from millwheel.core.model.times import duration_text
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeKind

HOUR_S, STEP_S = 3_600.0, 60.0
"""The hour is that of the last 60 readings, so it is up to a minute longer."""
FINE = 0.00001
"""The share up to which nothing is reported: that of the published runs, and the target of
`millwheel lateness`."""
_SOURCE = "source."


class LateStream(msgspec.Struct, frozen=True):
    """A stream in the last hour: ``records`` that were read, and the ``late`` ones among them."""

    stream: str
    records: int
    late: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.late / self.records if self.records else 0.0


class LateHour:
    """Reads the counters of sources once a minute. Counters start before the run that reads them,
    so the hour begins with the first reading."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, dict[str, tuple[int, int]]]] = deque()
        self._newest: dict[str, tuple[int, int]] = {}

    def note(self, view: ClusterView | None, now_s: float) -> None:
        """Take the answer of the injector at ``now_s`` (None: none yet)."""
        sources = {} if view is None else view.nodes
        sources = {name: node for name, node in sources.items() if name.startswith(_SOURCE)}
        # A new injector has only a part of the counters until every shard has reported to it.
        if not sources or not all(node.complete for node in sources.values()):
            return
        self._newest = {
            name.removeprefix(_SOURCE): (
                node.counters.get("records_in", 0),
                node.counters.get("late", 0),
            )
            for name, node in sources.items()
        }
        if not self._readings or now_s - self._readings[-1][0] >= STEP_S:
            self._readings.append((now_s, self._newest))
        while len(self._readings) > 1 and self._readings[1][0] <= now_s - HOUR_S:
            self._readings.popleft()

    def streams(self) -> tuple[LateStream, ...]:
        """Each stream with a source, in the order of names."""
        if not self._readings:
            return ()
        first = self._readings[0][1]
        return tuple(
            LateStream(name, read - first.get(name, (0, 0))[0], late - first.get(name, (0, 0))[1])
            for name, (read, late) in sorted(self._newest.items())
        )


def too_late(graph: Graph, streams: Sequence[LateStream]) -> Iterator[str]:
    """A sentence for each stream with unusually many late records, with the remedy."""
    delays = {
        node.stream.name: node.stream.max_delay_us
        for node in graph.nodes.values()
        if node.kind is NodeKind.SOURCE and node.stream is not None
    }
    for each in streams:
        if each.share > FINE and each.stream in delays:
            yield (
                f"stream {each.stream}: {each.share:.3%} of the last hour's records came too late"
                f" ({each.late:,} of {each.records:,}) for max_delay"
                f" {duration_text(delays[each.stream])}; `millwheel lateness` suggests a longer one"
            )
