"""Part F: the watermark service under 1,000 to 1,000,000 key ranges. Expected: 40 seconds a round.

All ranges report over one gRPC stream, as the workers of a cluster would over theirs, by what makes
the messages of a worker (``ReportQueue``): ``all_ms`` is the time from the first report of a round
in which every range rises, made into messages meanwhile, until the risen watermark is broadcast.
``one_ms`` is the time from the report of the one range that still held the watermark, until its
broadcast, the other ranges being quiet.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import numpy as np

from bench.figures import Figure
from bench.injector_process import NODE, TOKEN, name_of
from bench.paths import HOUSE
from bench.rounds import Entry, Measured, Wanted, alternate
from bench.stats import quantile
from millwheel.adapters.grpc.channels import new_channel
from millwheel.adapters.grpc.watermark_client import ReportQueue
from millwheel.adapters.pb import injector_pb2 as pb
from millwheel.adapters.pb.injector_pb2_grpc import InjectorStub
from millwheel.core.model.watermark import ShardReport

RANGES, QUICK_RANGES = (1_000, 10_000, 100_000, 500_000, 1_000_000), (1_000, 10_000)
ROUNDS, SINGLES = 3, 50
_TIMEOUT_S = 120.0


def watermarks(wanted: Wanted) -> list[Figure]:
    """Part F."""
    sizes = QUICK_RANGES if wanted.quick else RANGES
    entries = [Entry("millwheel", f"{size:,} ranges", partial(measure, size)) for size in sizes]
    return alternate("F", entries, {"rounds": ROUNDS, "singles": SINGLES}, wanted)


def measure(ranges: int, folder: Path) -> Measured:
    """One service, filled and asked."""
    with Service(ranges) as service:
        line = Line(service.address)
        line.report([_report(index, 1) for index in range(ranges)])
        line.wait(1)
        used, _ = service.used()
        every = [
            _timed(line, partial(line.rise, range(ranges), value), value)
            for value in range(2, 2 + ROUNDS)
        ]
        busy, _ = service.used()
        line.rise(range(1, ranges), 1_000_000)
        # what it has still to read is not part of what follows
        _timed(line, partial(line.report, [_report(0, 99)]), 99)
        ones = [
            _timed(line, partial(line.report, [_report(0, value)]), value)
            for value in range(100, 100 + SINGLES)
        ]
        _, rss_mb = service.used()
        line.close()
    return Measured(
        {
            "all_ms": quantile(sorted(every), 0.5) * 1e3,
            "one_ms": quantile(sorted(ones), 0.5) * 1e3,
            "one_p99_ms": quantile(sorted(ones), 0.99) * 1e3,
            "cpu_per_round_ms": (busy - used) / ROUNDS * 1e3,
            "rss_mb": rss_mb,
        },
        True,
    )


def _report(index: int, value: int) -> ShardReport:
    return ShardReport(name_of(index), TOKEN, value, "input")


def _timed(line: Line, report: Callable[[], None], value: int) -> float:
    """Seconds from the first report until all that they raise is broadcast."""
    began = time.perf_counter()
    report()
    return line.wait(value) - began


@dataclass(slots=True)
class _Seen:
    value: int
    at: float


class Line:
    """One worker's stream to the service."""

    def __init__(self, address: str) -> None:
        self._desk = ReportQueue()
        self._frames: queue.SimpleQueue[pb.ReportFrame | None] = queue.SimpleQueue()
        self._seen: queue.SimpleQueue[_Seen] = queue.SimpleQueue()
        self._channel = new_channel(address)
        self._call = InjectorStub(self._channel).Connect(self._outgoing())
        threading.Thread(target=self._listen, daemon=True, name="broadcasts").start()

    def report(self, reports: Sequence[ShardReport]) -> None:
        """Send reports. The first of each shard gives it its place in this order as its number."""
        self._desk.put(NODE, reports)
        self._send()

    def rise(self, indexes: range, value: int) -> None:
        """Send that the watermarks of these ranges are ``value`` now."""
        self._desk.node(NODE).change(
            np.arange(indexes.start, indexes.stop), np.full(len(indexes), value)
        )
        self._send()

    def _send(self) -> None:
        for frame in self._desk.take():
            self._frames.put(frame)

    def wait(self, value: int) -> float:
        """When (perf_counter) the watermark had reached ``value``. Raises TimeoutError when it does
        not."""
        while True:
            try:
                seen = self._seen.get(timeout=_TIMEOUT_S)
            except queue.Empty:
                raise TimeoutError(
                    f"the watermark {value} was not broadcast within {_TIMEOUT_S} s"
                ) from None
            if seen.value >= value:
                return seen.at

    def close(self) -> None:
        """End the stream."""
        self._frames.put(None)
        self._call.cancel()
        self._channel.close()

    def _outgoing(self) -> Iterator[pb.ReportFrame]:
        while (frame := self._frames.get()) is not None:
            yield frame

    def _listen(self) -> None:
        try:
            for message in self._call:
                now = time.perf_counter()
                for watermark in message.watermarks:
                    self._seen.put(_Seen(watermark.watermark_us, now))
        except grpc.RpcError:
            pass  # the stream was closed


class Service:
    """The process of the service; a context manager."""

    def __init__(self, ranges: int) -> None:
        command = [sys.executable, "-m", "bench.injector_process", str(ranges)]
        self._process = subprocess.Popen(
            command, cwd=HOUSE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Service:
        self.address = self._ask("")
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def used(self) -> tuple[float, float]:
        """CPU seconds and peak memory in MB, so far."""
        cpu_s, rss_mb = self._ask("\n").split()
        return float(cpu_s), float(rss_mb)

    def _ask(self, line: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line)
        stdin.flush()
        if not (answer := stdout.readline()):
            raise RuntimeError(f"the watermark service ended with {self._process.wait()}")
        return answer.strip()
