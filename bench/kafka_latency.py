"""From a record in a topic to a record that a reader of committed messages has, through a pipeline:
exactly once and at least once in turns, on one worker beside one broker.

    python -m bench kafka_latency [--rate 200] [--seconds 15] [--rounds 3] [--flush 20ms]

Prints one JSON line per run (p50, p90, p99 and the longest, in ms, from the moment at which the
record was handed to its producer) and one with what exactly-once adds within each round. The first
three seconds are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.stats import quantile

if TYPE_CHECKING:
    from tests.servers.kafka import Broker

PIPELINE = """
pipeline: kafka_latency
streams:
  events:
    source: {kafka: {brokers: "${brokers}", topics: ["${input}"], format: json}}
    timestamp: {field: at_us, unit: us}
    watermark: {max_delay: 1s}
    fields: {key: int, at_us: int}
computations:
  kept:
    input: {events: {key: key}}
    filter: "key >= 0"
    output: kept
sinks:
  kept: {kafka: {brokers: "${brokers}", topic: "${output}", key: key, guarantee: "${guarantee}",
    flush: "${flush}"}}
"""
GUARANTEES = ("exactly_once", "at_least_once")
_KEYS, _WARM_S, _STARTS_S = 50, 3.0, 30.0


def main() -> int:
    from tests.servers.kafka import Broker

    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="kafka-latency-") as store_key:
        folder = Path(store_key)
        (folder / "broker").mkdir()
        broker = Broker(folder / "broker")
        broker.start()
        try:
            campaign(broker, arguments, folder)
        finally:
            broker.kill()
    return 0


def campaign(broker: Broker, arguments: argparse.Namespace, folder: Path) -> None:
    """All rounds."""
    found: dict[str, list[dict[str, Any]]] = {guarantee: [] for guarantee in GUARANTEES}
    for number in range(arguments.rounds):
        for guarantee, runs in found.items():
            runs.append(
                _told(
                    guarantee,
                    measured(broker, guarantee, f"{guarantee}-{number}", arguments, folder),
                )
            )
            print(json.dumps(runs[-1]), flush=True)
    pairs = list(zip(*found.values(), strict=True))
    added = {
        f"added_{name}": [round(one[name] - other[name], 1) for one, other in pairs]
        for name in ("p50", "p99")
    }
    print(
        json.dumps(
            {**added, **{f"median_{name}": statistics.median(each) for name, each in added.items()}}
        )
    )


def measured(
    broker: Broker, guarantee: str, name: str, arguments: argparse.Namespace, folder: Path
) -> list[float]:
    """Milliseconds of each record of one run."""
    name = name.replace("_", "-")
    for topic in (f"in-{name}", f"out-{name}"):
        broker.make_topic(topic, 4)
    (folder / "p.yaml").write_text(PIPELINE)
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(folder / "p.yaml"),
        "--launcher",
        "processes",
    ]
    command += ["--workers", "1", "--root", str(folder / name)]
    values = {"brokers": broker.address, "input": f"in-{name}", "output": f"out-{name}"}
    for option, value in {**values, "guarantee": guarantee, "flush": arguments.flush}.items():
        command += ["--set", f"{option}={value}"]
    with (folder / f"{name}.txt").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, cwd=folder)
    try:
        return _passed(broker, name, arguments)
    except AssertionError:
        print((folder / f"{name}.txt").read_text(errors="replace")[-2000:], file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait()


def _passed(broker: Broker, name: str, arguments: argparse.Namespace) -> list[float]:
    """What a reader has seen of the records that were sent once the pipeline had passed a first one
    on."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "latency",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
        }
    )
    reader.assign([TopicPartition(f"out-{name}", number, 0) for number in range(4)])
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    producer.produce(f"in-{name}", _record(0))
    until = time.monotonic() + _STARTS_S
    while not _seen(reader, 0.2):
        assert time.monotonic() < until, "nothing has come out"
    count = round(arguments.rate * (arguments.seconds + _WARM_S))
    sending = threading.Thread(target=_send, args=(producer, f"in-{name}", arguments.rate, count))
    sending.start()
    found: list[tuple[int, float]] = []
    until = time.monotonic() + count / arguments.rate + _STARTS_S
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} have come out"
        found += _seen(reader, 0.2)
    sending.join()
    reader.close()
    first = min(at_us for at_us, _ in found) + _WARM_S * 1e6
    return [ms for at_us, ms in found if at_us >= first]


def _send(producer: Any, topic: str, rate: float, count: int) -> None:
    began = time.monotonic()
    for number in range(count):
        while (early := began + number / rate - time.monotonic()) > 0:
            producer.poll(0)
            time.sleep(early)
        producer.produce(topic, _record(number % _KEYS))
        producer.poll(0)
    producer.flush()


def _record(key: int) -> bytes:
    return json.dumps({"key": key, "at_us": time.time_ns() // 1000}).encode()


def _seen(reader: Any, patience_s: float) -> list[tuple[int, float]]:
    """When each message that is there was made (µs), and how many milliseconds ago that is."""
    found = []
    first = reader.poll(patience_s)
    messages = [] if first is None else [first, *reader.consume(1000, 0)]
    now_us = time.time_ns() // 1000
    for message in messages:
        assert message.error() is None, message.error()
        at_us = json.loads(message.value())["at_us"]
        found.append((at_us, (now_us - at_us) / 1000))
    return found


def _told(guarantee: str, ms: list[float]) -> dict[str, Any]:
    ms = sorted(ms)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
    return {"guarantee": guarantee, "records": len(ms)} | {
        name: round(quantile(ms, share), 1) for name, share in shares.items()
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench kafka_latency", description=__doc__)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flush", default="20ms")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
