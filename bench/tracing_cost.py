"""What tracing costs a worker: the same records in one process, in turns without tracing, with it
and nothing to trace, and with some of the records sampled and their spans sent to a collector.

    python -m bench tracing_cost [--rounds 60] [--sample 0.01]

Prints one JSON line: processor time of the loop for a round of records (ms, medians), the ratios to
the round without tracing, and the time of one span (µs), in the loop and in the thread that sends
it. The collector is another process. Turns alternate, because other work on the machine disturbs
all of them alike then.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from millwheel import GeneratorSource, Pipeline, StdoutSink
from millwheel.adapters.metrics.spans import OtlpSpans
from millwheel.core.pipeline.spec import TracingSpec
from millwheel.core.tracing import NoSpans
from millwheel.engine.workers.tracing.tracing import Tracing
from millwheel.testing import PipelineHarness

_BATCH = 5_000  # records of a round
_COLLECTOR = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Taking(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Taking)
print(server.server_port, flush=True)
server.serve_forever()
"""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench tracing_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--sample", type=float, default=0.01)
    arguments = parser.parse_args()
    print(json.dumps(measured(arguments.rounds, arguments.sample)), flush=True)
    return 0


def measured(rounds: int, sample: float) -> dict[str, float]:
    """The figures of so many turns of each kind."""
    with collector() as endpoint, ExitStack() as stack:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
        stack.callback(os.environ.pop, "OTEL_EXPORTER_OTLP_ENDPOINT")
        spans = OtlpSpans("cost", "worker-0")
        kinds = {
            "plain": None,
            "idle": Tracing(TracingSpec(), "cost", "worker-0", NoSpans(), _now_us),
            "sampled": Tracing(TracingSpec(sample), "cost", "worker-0", spans, _now_us),
        }
        harnesses = {
            name: stack.enter_context(_harness(tracing)) for name, tracing in kinds.items()
        }
        took_s: dict[str, list[float]] = {name: [] for name in kinds}
        began_s = time.process_time() - time.thread_time()
        for number in range(rounds + 1):
            rows = [{"key": f"k{at % 50}", "t": number} for at in range(_BATCH)]
            for name, harness in harnesses.items():
                pushed_s = time.thread_time()  # spans of one turn are sent during the next one
                harness.push("loads", rows)
                if number:  # the first one loads what it needs
                    took_s[name].append(time.thread_time() - pushed_s)
        spans.close()
        sending_s = time.process_time() - time.thread_time() - began_s
        ended, dropped = spans.counts()
        each = ended / (rounds + 1)
    found = {f"{name}_ms": statistics.median(times) * 1e3 for name, times in took_s.items()}
    found["idle_ratio"] = found["idle_ms"] / found["plain_ms"]
    found["sampled_ratio"] = found["sampled_ms"] / found["plain_ms"]
    found["spans"] = each
    found["span_us"] = (found["sampled_ms"] - found["idle_ms"]) * 1e3 / max(each, 1)
    found["sending_us"] = sending_s * 1e6 / max(ended - dropped, 1)
    return {name: round(value, 3) for name, value in found.items()}


@contextmanager
def collector() -> Iterator[str]:
    """The endpoint of a process that takes spans and forgets them."""
    process = subprocess.Popen(
        [sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def _harness(tracing: Tracing | None) -> Iterator[PipelineHarness]:
    p = Pipeline("cost")
    loads = p.read("loads", GeneratorSource(rate=1), timestamp="t")
    loads.map({"key": "key"}, output="mapped").write(StdoutSink())
    with PipelineHarness(p, shards=1, workers=1) as harness:
        harness.push("loads", [{"key": "k", "t": 0}])
        for worker in harness._cluster._workers.values():
            if tracing is not None:
                for served in worker._runtime._served.values():
                    served.shard.trace(tracing, str(served.node).startswith("source."))
        yield harness


def _now_us() -> int:
    return time.time_ns() // 1_000
