"""The reports of a worker that wait to be sent to the watermark service, and the ones that were.

The newest report of each shard is remembered, and all of them are sent again in every new session, so that a service
that starts from nothing has its tiling complete as soon as every worker has found it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from millwheel.core.watermark import ShardReport
from millwheel.pb import injector_pb2 as pb

_MAX_SHARDS_A_FRAME = 10_000
_MAX_SAMPLES = 1_000


@dataclass(slots=True)
class _Shard:
    """The newest report of a shard. Samples go out once, totals once per session and change."""

    node: str
    report: ShardReport
    totals: dict[str, int] = field(default_factory=dict)
    totals_sent: bool = False
    samples: list[float] = field(default_factory=list)

    def take(self, report: ShardReport) -> None:
        """Replace the report; its totals stay when the newer one brings none."""
        if report.token != self.report.token:
            self.totals = {}
        self.report = report
        if report.counters and report.counters != self.totals:
            self.totals = dict(report.counters)
            self.totals_sent = False
        self.samples.extend(report.latencies_ms[: _MAX_SAMPLES - len(self.samples)])

    def message(self) -> pb.Report:
        """What to send now."""
        report, samples = self.report, self.samples
        self.samples = []
        totals = {} if self.totals_sent else self.totals
        self.totals_sent = True
        return pb.Report(
            shard=report.shard,
            token=report.token,
            watermark_us=report.watermark_us,
            holder=report.holder,
            counters=totals,
            latencies_ms=samples,
            shares=[pb.ShareWatermark(share=share, watermark_us=us) for share, us in report.shares.items()],
        )


class ReportDesk:
    """For one thread at a time."""

    def __init__(self) -> None:
        self._shards: dict[str, _Shard] = {}
        self._unsent: dict[str, None] = {}

    def put(self, node: str, reports: Sequence[ShardReport]) -> None:
        """A newer report of a shard replaces one that was not sent yet; one under an older token is dropped."""
        for report in reports:
            shard = self._shards.get(report.shard)
            if shard is None:
                shard = self._shards[report.shard] = _Shard(node, report)
            if report.token >= shard.report.token:
                shard.take(report)
                self._unsent[report.shard] = None

    def forget(self, shard: str) -> None:
        """The shard left this worker: it is not reported again."""
        self._shards.pop(shard, None)
        self._unsent.pop(shard, None)

    def begin(self) -> None:
        """A new session, in which everything is to be sent again."""
        self._unsent = dict.fromkeys(self._shards)
        for shard in self._shards.values():
            shard.totals_sent = False

    def waiting(self) -> bool:
        """True when :meth:`take` has something to say."""
        return bool(self._unsent)

    def take(self) -> pb.ReportFrame:
        """One message with what was not sent yet."""
        names = list(self._unsent)[:_MAX_SHARDS_A_FRAME]
        by_node: dict[str, list[pb.Report]] = defaultdict(list)
        for name in names:
            del self._unsent[name]
            shard = self._shards[name]
            by_node[shard.node].append(shard.message())
        return pb.ReportFrame(nodes=[pb.Reports(node=node, reports=rows) for node, rows in by_node.items()])
