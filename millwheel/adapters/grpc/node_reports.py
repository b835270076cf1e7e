"""The reports of a worker's shards of one node, as columns by number.

Mostly watermarks change, so a report in which nothing else changed is two entries of columns, here
and in the message. The rest of it goes out with the first report of a session and whenever it
changed: the shard is spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.core.model.lease import Lease
from millwheel.core.model.watermark import ShardReport, share_columns

# reports in one message: some 100 bytes each, far below the limit of a message
_MAX_SPELLED_OUT = 10_000
_MAX_CHANGED = 100_000
"""Reports in one message. It must stay well below the largest message that gRPC takes."""
_MAX_SAMPLES = 1_000  # latency samples of a shard that are kept until they are sent


@dataclass(slots=True)
class _Shard:
    """The newest report of a shard but for its watermark. Samples go out once, totals once per
    session and change."""

    report: ShardReport
    totals: dict[str, int] = field(default_factory=dict)
    totals_sent: bool = False
    samples: list[float] = field(default_factory=list)

    def take(self, report: ShardReport) -> bool:
        """Replace the report; its totals stay when the newer one brings none. True when more than
        its watermark counts.

        With shares, everything does: a share that did not change may have been reset by an idle
        watermark.
        """
        before, self.report = self.report, report
        if not Lease(before.token).admits(report.token):
            self.totals, self.totals_sent = {}, False
        if report.counters and report.counters != self.totals:
            self.totals, self.totals_sent = dict(report.counters), False
        self.samples.extend(report.latencies_ms[: _MAX_SAMPLES - len(self.samples)])
        same = (report.token, report.holder, report.idle_us) == (
            before.token,
            before.holder,
            before.idle_us,
        )
        return not (same and self.totals_sent) or bool(self.samples or report.shares)

    def take_totals(self) -> dict[str, int]:
        """The totals that are to be sent now."""
        totals = {} if self.totals_sent else self.totals
        self.totals_sent = True
        return totals

    def take_samples(self) -> list[float]:
        """The samples that are to be sent now."""
        samples, self.samples = self.samples, []
        return samples


class NodeReports:
    """For one thread at a time. Shards get numbers from 0 on; that of a forgotten shard is given
    again."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._numbers: dict[str, int] = {}
        self._free: list[int] = []
        self._shards: list[_Shard | None] = []
        self._watermarks = np.empty(0, np.int64)
        self._fresh: dict[int, None] = {}  # to be spelled out; the service has all other numbers
        self._changed = np.empty(0, np.bool_)  # of the others, those whose watermark is to be sent
        self._any_changed = False

    def put(self, reports: Sequence[ShardReport]) -> None:
        """A newer report of a shard replaces one that was not sent yet; one under an older token is
        dropped."""
        for report in reports:
            number = self._numbers.get(report.shard)
            if number is None:
                number = self._number_for(report)
            shard = self._shards[number]
            if shard is None or Lease(shard.report.token).outlived(report.token):
                # of an owner that this worker was before: its watermark is not that of the shard
                # any more
                continue
            self._watermarks[number] = report.watermark_us
            if shard.take(report) or number in self._fresh:
                self._fresh[number] = None
                self._changed[number] = False
            else:
                self._changed[number] = self._any_changed = True

    def change(self, numbers: NDArray[np.int64], watermarks: NDArray[np.int64]) -> None:
        """New watermarks (µs) of shards by number, at the cost of an array; all else that they
        reported stays."""
        self._watermarks[numbers] = watermarks
        self._changed[numbers] = self._any_changed = True

    def _number_for(self, report: ShardReport) -> int:
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._shards)
            self._shards.append(None)
            self._grow()
        self._numbers[report.shard] = number
        self._shards[number] = _Shard(report)
        return number

    def _grow(self) -> None:
        if len(self._shards) > len(self._watermarks):
            more = len(self._shards)
            self._watermarks = np.append(self._watermarks, np.zeros(more, np.int64))
            self._changed = np.append(self._changed, np.zeros(more, np.bool_))

    def forget(self, shard: str) -> None:
        """The shard left this worker: it is not reported again."""
        number = self._numbers.pop(shard, None)
        if number is not None:
            self._shards[number] = None
            self._fresh.pop(number, None)
            self._changed[number] = False
            self._free.append(number)

    def begin(self) -> None:
        """Begin a new session. It has no numbers yet, so all reports are spelled out."""
        self._fresh = dict.fromkeys(self._numbers.values())
        self._changed[:] = False
        for shard in self._shards:
            if shard is not None:
                shard.totals_sent = False

    def waiting(self) -> bool:
        """True when :meth:`take` may have something to send."""
        return bool(self._fresh) or self._any_changed

    def take(self) -> Iterator[pb.Reports]:
        """The unsent reports, in the order in which to send them."""
        fresh, self._fresh = list(self._fresh), {}
        for first in range(0, len(fresh), _MAX_SPELLED_OUT):
            yield self._spelled_out(fresh[first : first + _MAX_SPELLED_OUT])
        if self._any_changed:
            self._any_changed = False
            changed = np.flatnonzero(self._changed)
            self._changed[changed] = False
            for first in range(0, len(changed), _MAX_CHANGED):
                yield self._by_number(changed[first : first + _MAX_CHANGED])

    def _spelled_out(self, numbers: list[int]) -> pb.Reports:
        shards = [shard for number in numbers if (shard := self._shards[number]) is not None]
        reports = [shard.report for shard in shards]
        part = pb.Reports(
            node=self._node,
            shards=[report.shard for report in reports],
            numbers=numbers,
            tokens=[report.token for report in reports],
            watermarks_us=self._watermarks[numbers].tolist(),
            holders=[report.holder for report in reports],
            idle_us=[report.idle_us for report in reports],
        )
        for index, shard in enumerate(shards):
            if totals := shard.take_totals():
                part.totals.add(place=index, counters=totals)
            if shard.samples:
                part.latencies_ms.extend(shard.take_samples())
        for share, column in share_columns([report.shares for report in reports]).items():
            part.shares.add(share=share, watermarks_us=column.tolist())
        return part

    def _by_number(self, numbers: NDArray[np.int64]) -> pb.Reports:
        return pb.Reports(
            node=self._node,
            changed_numbers=numbers.astype("<u4").tobytes(),
            changed_watermarks_us=self._watermarks[numbers].astype("<i8").tobytes(),
        )
