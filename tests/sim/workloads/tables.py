"""Results that change: sessions that are taken back as they grow, windows that fire early by a
percentile watermark, and sinks that show the current rows."""

from __future__ import annotations

from collections import Counter

from millwheel.core.pipeline.spec import (
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from tests.computations import computation_spec
from tests.sim.workloads.base import by, equal
from tests.sim.workloads.windows import DELAY_US, Windows


class Tables(Windows):
    """A source with late records → retracting sessions, and windows that fire early → sinks of the
    current rows."""

    def spec(self) -> PipelineSpec:
        source = SourceSpec("memory", {"stream": "clicks"})
        stream = StreamSpec("clicks", source, timestamp="ts", max_delay_us=DELAY_US)
        given = (InputSpec("clicks", by("key")),)
        count = (AggregateSpec("count", "count"), AggregateSpec("sum", "sum", "n"))
        sessions = computation_spec(
            "session",
            given,
            ("session_out",),
            window=WindowSpec("session", {"gap_us": self.gap_us}),
            aggregates=count,
            trigger={"after_watermark": {"early": {"after_count": 1}}},
            accumulation="retracting",
        )
        early = computation_spec(
            "tumbling",
            given,
            ("tumbling_out",),
            window=WindowSpec("tumbling", {"size_us": self.size_us}),
            aggregates=count,
            trigger={"after_watermark": {"early": {"after_percentile_watermark": 0.5}}},
            accumulation="accumulating",
        )
        sinks = (SinkSpec("session_out", "latest"), SinkSpec("tumbling_out", "latest"))
        return PipelineSpec("sim", (stream,), (sessions, early), sinks, "/nowhere")

    def check(self) -> None:
        rows = list(self.on_time())
        equal(
            "sessions that stand", self._found("session_out"), self._counted(self._sessions(rows))
        )
        tumbling = self._grouped(
            (row["key"], row["ts"] - row["ts"] % self.size_us, row["n"]) for row in rows
        )
        equal("windows that stand", self._found("tumbling_out"), self._counted(tumbling))
        indexes = Counter(
            (row["key"], row["window_start"]) for row in self.sinks.rows("session_out")
        )
        equal("rows of a session", indexes, Counter(dict.fromkeys(indexes, 1)))
