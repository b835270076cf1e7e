"""Topic in, windows by ad and minute, topic out: ours, exactly once, beside Bytewax, whose sink has no
transactions, each with one worker, in turns over one broker; and what a transaction adds to a batch.

    python -m bench kafka_rates [--records 500000] [--rounds 3] [--peers bytewax]

Prints one JSON line per run: seconds from start to end, and microseconds of processor time per record, which other work
on the machine disturbs less. Both hold what a process costs to start.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.ads_kafka import PARTITIONS, committed, produce
from bench.environments import Environment, UnavailableEnvironmentError, python_of
from bench.places import PEERS

if TYPE_CHECKING:
    from tests.servers.kafka import Broker

PIPELINE = """
pipeline: kafka_rates
streams:
  events:
    source: {kafka: {brokers: "${brokers}", topics: [events], until: latest}}
    timestamp: {field: ts, unit: ms}
    watermark: {max_delay: 10s}
    fields: {ad_id: int, type: str, cost: float, ts: int}
computations:
  ctr:
    input: {events: {key: ad_id}}
    window: {tumbling: 1m}
    aggregate:
      impressions: {count: {where: "type == 'impression'"}}
      clicks: {count: {where: "type == 'click'"}}
      spend: {sum: cost}
    output: ctr
sinks:
  ctr: {kafka: {brokers: "${brokers}", topic: "${output}", key: ad_id, guarantee: exactly_once}}
"""
BYTEWAX = Environment("bytewax-kafka", ("bytewax[kafka]==0.21.1", "orjson"), before=13)
_BATCHES, _ROWS, _LONGEST_S = 60, 100, 600


def ours(broker: Broker, topic: str, folder: Path) -> list[str]:
    """The command of a run of ours."""
    (folder / "p.yaml").write_text(PIPELINE)
    command = [sys.executable, "-m", "millwheel", "run", str(folder / "p.yaml"), "--launcher", "processes"]
    command += ["--workers", "1", "--root", str(folder / f"root-{topic}")]
    return [*command, "--set", f"brokers={broker.address}", "--set", f"output={topic}"]


def bytewax(broker: Broker, topic: str, folder: Path) -> list[str]:
    """That of Bytewax."""
    return [python_of(BYTEWAX), "-m", "bytewax.run", str(PEERS / "bytewax_kafka.py")]


CONTESTANTS: dict[str, Callable[[Any, str, Path], list[str]]] = {"ours": ours, "bytewax": bytewax}


def measured(name: str, broker: Broker, topic: str, folder: Path, records: int) -> dict[str, Any]:
    """One run into a new topic."""
    broker.make_topic(topic, PARTITIONS)
    command = CONTESTANTS[name](broker, topic, folder)
    env = {**os.environ, "BENCH_BROKERS": broker.address, "BENCH_TOPIC": topic}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr[-2000:]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = committed(broker, topic)
    return {
        "who": name,
        "seconds": round(seconds, 1),
        "cpu_us_per_record": round(used / records * 1e6, 2),
        "rows": len(rows),
        "events_in_rows": sum(row["impressions"] + row["clicks"] for row in rows),
    }


def transactions(broker: Broker) -> dict[str, float]:
    """Milliseconds (median) to publish a batch, by guarantee, in turns."""
    from millwheel.connectors.kafka.sink import build_kafka_sink
    from millwheel.sinks.base import SinkBatch, SinkRecord

    broker.make_topic("batches", PARTITIONS)
    writers, took = {}, {}
    for guarantee in ("exactly_once", "at_least_once"):
        sink = build_kafka_sink({"brokers": broker.address, "topic": "batches", "guarantee": guarantee}, "bench-1")
        sink.check("bench-1")
        writers[guarantee], took[guarantee] = sink.open("sink.batches-0", 1), list[float]()
    for number in range(_BATCHES):
        for guarantee, writer in writers.items():
            records = [SinkRecord(row, {"row": row, "batch": number}, 0) for row in range(_ROWS)]
            committable = writer.prepare(SinkBatch(number, f"1-{number}", records))
            began = time.perf_counter()
            writer.publish(committable)
            took[guarantee].append((time.perf_counter() - began) * 1000)
    return {f"{guarantee}_ms": round(statistics.median(each[5:]), 1) for guarantee, each in took.items()}


def main() -> int:
    from tests.servers.kafka import Broker

    parser = argparse.ArgumentParser(prog="python -m bench kafka_rates", description=__doc__)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="bytewax")
    given = parser.parse_args()
    names = ["ours", *(name for name in given.peers.split(",") if name)]
    with tempfile.TemporaryDirectory(prefix="kafka-rates-") as place:
        folder = Path(place)
        (folder / "broker").mkdir()
        broker = Broker(folder / "broker")
        broker.start()
        try:
            produce(broker, "events", given.records, late=0.0, duplicates=0.0, keyed=True)
            print(json.dumps(transactions(broker)), flush=True)
            for number in range(given.rounds):
                for name in names:
                    try:
                        print(json.dumps(measured(name, broker, f"{name}-{number}", folder, given.records)), flush=True)
                    except UnavailableEnvironmentError as ex:
                        print(json.dumps({"who": name, "left_out": str(ex)}), flush=True)
        finally:
            broker.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
