"""What metrics cost a worker: the same records in one process, in turns with a scrape and without.

    python -m bench metrics_cost [--rounds 100]

Prints one JSON line: processor time of a round of records without and with a scrape (ms, medians),
of the scrape alone, and the share of a core of a scrape every second and every 15 s. Turns
alternate, because other work on the machine disturbs both alike then. Also what the loop itself
keeps for metrics in a step that writes the journal and publishes a batch of a sink (µs), and that
as a share of a core at 1,000 steps a second, as many as part C makes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from millwheel import InjectionSource, Pipeline, StdoutSink
from millwheel.adapters.durable_store import open_space
from millwheel.adapters.metrics.text import text_of
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.core.metrics import Figure
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.hangs import Hangs
from millwheel.engine.workers.host.figures import figures_of
from millwheel.engine.workers.host.metrics_port import Observed
from millwheel.engine.workers.sinks.pending_batches import SinkFigures
from millwheel.engine.workers.threads.journal import JournalFigures
from millwheel.testing import PipelineHarness

_SHARDS = 4  # of each node
_BATCH = 500  # records of a round


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench metrics_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    print(json.dumps(measured(parser.parse_args().rounds)), flush=True)
    return 0


def measured(rounds: int) -> dict[str, float]:
    """The figures of so many turns of each kind."""
    plain, scraped, alone = list[float](), list[float](), list[float]()
    with PipelineHarness(_pipeline(), shards=_SHARDS, workers=1) as harness:
        _scrape(harness)  # loads the library
        for number in range(2 * rounds):
            began_s = time.process_time()
            harness.push("loads", [{"key": f"k{at % 50}", "t": number} for at in range(_BATCH)])
            worked_s = time.process_time()
            if number % 2:
                _scrape(harness)
                alone.append(time.process_time() - worked_s)
            (scraped if number % 2 else plain).append(time.process_time() - began_s)
    scrape_ms, step_us = statistics.median(alone) * 1e3, _kept_us()
    found = {
        "plain_ms": statistics.median(plain) * 1e3,
        "scraped_ms": statistics.median(scraped) * 1e3,
        "scrape_ms": scrape_ms,
        "every_second_percent": scrape_ms / 10,
        "every_15_s_percent": scrape_ms / 150,
        "step_us": step_us,
        "steps_percent": step_us * 1_000 / 1e6 * 100,
    }
    return {name: round(value, 3) for name, value in found.items()}


def _kept_us(steps: int = 20_000) -> float:
    """What is done for metrics alone in each step: its begin and end, a write of the journal, a
    batch of a sink."""
    journal, sink = JournalFigures(), SinkFigures()
    observed = Observed({}, lambda event: None, journal, Hangs(HangNotes(open_space(".")), 2))
    now_us, born_us = 1_700_000_000_000_000, (1_699_999_999_990_000,)
    began_s = time.process_time()
    for _ in range(steps):
        observed.begins()
        journal.seconds.add(0.0004)
        sink.visible(now_us, born_us, born_us[0])
        sink.publish_s.add(0.002)
        observed.ended()
    return (time.process_time() - began_s) / steps * 1e6


def _pipeline() -> Pipeline:
    p = Pipeline("cost")
    loads = p.read("loads", InjectionSource(), timestamp="t")
    loads.map({"key": "key"}, output="mapped").write(StdoutSink())
    return p


def _scrape(harness: PipelineHarness) -> bytes:
    """As a worker answers ``/metrics``: figures on the loop, then the text."""
    found: list[Figure] = []
    cluster = harness._cluster
    [worker] = cluster._workers.values()
    worker.post(ev.FiguresAsked(lambda served, now_us: found.extend(figures_of(served, now_us))))
    cluster.settle()
    return text_of(found, {"worker": worker.name})
