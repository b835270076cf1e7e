"""The reports of a worker about its shards to the watermark service and the master, and their
times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millwheel.core.model.names import NodeName
from millwheel.core.model.percentiles import READ
from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.core.model.watermark import ShardReport
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.loop.shard_handle import BEGINNING, Served
from millwheel.engine.workers.ports import MasterLine, Reports

_FOR_THE_EYE_US = 200_000  # between reports for which no window waits


@dataclass(frozen=True, slots=True)
class ReportPace:
    """The periods of reports (µs): watermarks are reported if anything changed, the work of each
    shard always."""

    report_us: int = 20_000
    load_us: int = SECOND

    @classmethod
    def for_pipeline(cls, waits_for_time: bool) -> ReportPace:
        """If no node acts at an event time, watermarks only serve status commands."""
        return cls() if waits_for_time else cls(report_us=_FOR_THE_EYE_US)


class Reporting:
    """``changed``: something may have moved a watermark since the last report. The next one is due
    at ``due_at`` (wall clock), if so."""

    def __init__(self, reports: Reports, master: MasterLine, pace: ReportPace) -> None:
        self._pace = pace
        self._reports = reports
        self._master = master
        self._report_us = pace.report_us
        self.due_at_us = 0
        self._load_at_us = 0
        self.changed = True
        self.careful = False
        """Watermarks of an earlier run, which may have ended, do not count until this run has
        published them."""

    def at_once(self) -> None:
        """Let the next step report, because others wait for it."""
        self.due_at_us = 0
        self.changed = True

    def report_often(self) -> None:
        """Report more often: the sources have ended, and every shard waits for the end of its
        input."""
        self._report_us = min(self._report_us, ReportPace().report_us)
        self.at_once()

    def wakes_at(self) -> int:
        """The wall clock of the next report."""
        return min(self._load_at_us, self.due_at_us) if self.changed else self._load_at_us

    def loads(self, served: Iterable[Served], now_us: int) -> None:
        """Report the work of shards, if that is due: also within a long step, because the master
        must learn which shards take long."""
        if now_us >= self._load_at_us:
            self._load_at_us = now_us + self._pace.load_us
            self._master.load([each.work() for each in served])

    def step(self, served: Iterable[Served], now_us: int) -> None:
        """Send the reports that are due."""
        self.loads(served, now_us)
        if not self.changed or now_us < self.due_at_us:
            return
        self.due_at_us, self.changed = now_us + self._report_us, False
        by_node: dict[NodeName, list[ShardReport]] = {}
        for each in served:
            # Nothing has changed, so it would repeat its last report.
            if not (each.last.news or each.goes_with_others or each.life in BEGINNING):
                continue
            each.last.news = False
            report = _report_of(each, now_us, self.careful)
            if report is not None:
                by_node.setdefault(each.node, []).append(report)
        if by_node:
            self._reports.report(by_node)


def _report_of(served: Served, now_us: int, careful: bool) -> ShardReport | None:
    shard = served.shard
    hold = shard.watermark.held(now_us)
    # Before the report leaves: the output of a wall-clock timer from now on must not lie behind the
    # watermark that others will have received.
    if hold.at > shard.watermark.floor:
        shard.watermark.reported(hold.at)
    if careful and not served.reads and served.published_us < hold.at:
        hold = Hold(served.published_us, "input, as published in this run")
    shares = shard.watermark.of_shares(now_us) if shard.watermark.shares else {}
    served.last.read = shard.operator.has_chain and served.has_read(now_us)
    if served.last.read:
        shares[READ] = MAX_TIME
    news = shard.operator.news
    latencies = [] if news is None else news.take_latencies()
    state = (
        hold.at,
        hold.idle_us,
        shard.commits.durable,
        shard.verdicts.version,
        0 if news is None else news.changes,
        *shares.values(),
    )
    if (
        state == served.last.state and not latencies and served.life not in BEGINNING
    ):  # one that begins waits for an answer
        return None
    served.last.state = state
    counters = dict(shard.meta.counters)
    if shard.verdicts.version:
        counters |= shard.verdicts.counters()
    identity = shard.identity
    name, token = identity.shard, identity.token
    holder = shard.watermark.in_words(hold)
    return ShardReport(name, token, hold.at, holder, counters, latencies, shares, hold.idle_us)
