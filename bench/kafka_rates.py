"""Topic in, windows by ad and minute, topic out, each with one worker, in turns over one broker: ours, exactly once,
beside PyFlink's SQL, exactly once, and Bytewax, whose sink has no transactions; and what a transaction adds.

    python -m bench kafka_rates [--records 1000000] [--rounds 3] [--peers bytewax,flink] [--form avro]

Prints one JSON line per run: seconds from start to end, and microseconds of processor time per record, which other work
on the machine disturbs less. Both hold what a process costs to start. So each system also reads a fifth of the records,
and ``records_per_s`` is what the other four fifths took. Avro is for ours and PyFlink.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.ads_kafka import PARTITIONS, committed, produce
from bench.contestants import FLINK
from bench.environments import Environment, UnavailableEnvironmentError, python_of
from bench.jars import jars
from bench.places import PEERS

if TYPE_CHECKING:
    from tests.servers.kafka import Broker

PIPELINE = """
pipeline: kafka_rates
streams:
  events:
    source: {kafka: {brokers: "${brokers}", topics: ["${input}"], until: latest, format: ${form}}}
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
  ctr: {kafka: {brokers: "${brokers}", topic: "${output}", key: ad_id, guarantee: exactly_once, format: ${out}}}
"""
AVRO = {
    "events": [("event_id", "string"), ("ad_id", "long"), ("client_id", "long"), ("uid", "long"), ("type", "string"),
               ("cost", "double"), ("ts", "long")],
    "ctr": [("ad_id", "long"), ("window_start", "long"), ("window_end", "long"), ("impressions", "long"),
            ("clicks", "long"), ("spend", "double")],
}  # fmt: skip
FLINK_JARS = (
    "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    "org.apache.flink:flink-sql-avro:2.3.0",
    "org.apache.flink:flink-json:2.3.0",
)
BYTEWAX = Environment("bytewax-kafka", ("bytewax[kafka]==0.21.1", "orjson"), before=13)
_CHILDREN_OF_CHILDREN_ARE_MINE = 36  # PR_SET_CHILD_SUBREAPER: else the time of PyFlink's JVM would count for nobody
_BATCHES, _ROWS, _LONGEST_S = 60, 100, 600


@dataclass(frozen=True, slots=True)
class Task:
    """One run: from a topic with so many records into another one."""

    source: str
    records: int
    topic: str
    form: str
    folder: Path


def ours(broker: Broker, task: Task) -> list[str]:
    """The command of a run of ours."""
    folder = task.folder
    formats = {"form": "json", "out": "json"}
    if task.form == "avro":
        for name in AVRO:
            (folder / f"{name}.avsc").write_text(json.dumps(_schema(name)))
        formats = {"form": "{avro: {schema: events.avsc}}", "out": "{avro: {schema: ctr.avsc}}"}
    text = PIPELINE
    for name, form in formats.items():
        text = text.replace(f"${{{name}}}", form)
    (folder / "p.yaml").write_text(text)
    command = [sys.executable, "-m", "millwheel", "run", str(folder / "p.yaml"), "--launcher", "processes"]
    command += ["--workers", "1", "--root", str(folder / f"root-{task.topic}")]
    for name, value in (("brokers", broker.address), ("input", task.source), ("output", task.topic)):
        command += ["--set", f"{name}={value}"]
    return command


def _schema(name: str) -> dict[str, Any]:
    fields = [{"name": each, "type": kind} for each, kind in AVRO[name]]
    return {"type": "record", "name": name, "fields": fields}


def bytewax(broker: Broker, task: Task) -> list[str]:
    """That of Bytewax."""
    return [python_of(BYTEWAX), "-m", "bytewax.run", str(PEERS / "bytewax_kafka.py")]


def flink(broker: Broker, task: Task) -> list[str]:
    """That of PyFlink."""
    return [python_of(FLINK), str(PEERS / "flink_kafka.py")]


CONTESTANTS: dict[str, Callable[[Any, Task], list[str]]] = {
    "ours": ours,
    "bytewax": bytewax,
    "flink": flink,
}


def measured(name: str, broker: Broker, task: Task) -> dict[str, Any]:
    """One run into a new topic."""
    broker.make_topic(task.topic, PARTITIONS)
    command = CONTESTANTS[name](broker, task)
    env = {**os.environ, "BENCH_BROKERS": broker.address, "BENCH_INPUT": task.source, "BENCH_TOPIC": task.topic}
    env |= {"BENCH_EVENTS": str(task.records), "BENCH_FORM": task.form}
    if name == "flink":
        env["BENCH_JARS"] = ";".join(
            path.as_uri() for path in jars("flink-kafka", FLINK_JARS, alone=True).glob("*.jar")
        )
    others = {child.pid for child in psutil.Process().children()}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=task.folder, env=env, capture_output=True, text=True, timeout=_LONGEST_S, check=False
    )
    seconds = time.monotonic() - began
    for child in psutil.Process().children():  # a JVM that its parent did not wait for
        if child.pid not in others:
            os.waitpid(child.pid, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = rows_in(broker, task)
    return {
        "who": name,
        "records": task.records,
        "seconds": round(seconds, 1),
        "cpu_us_per_record": round(used / task.records * 1e6, 2),
        "rows": len(rows),
        "events_in_rows": sum(row["impressions"] + row["clicks"] for row in rows),
    }


def encoder(form: str) -> Callable[[str], bytes] | None:
    """From a line of JSON to a message in Avro; None for JSON."""
    if form == "json":
        return None
    from millwheel.formats.avro.messages import AvroEncoder

    rows = AvroEncoder(_schema("events"))
    return lambda line: rows.encode(json.loads(line))


def rows_in(broker: Broker, task: Task) -> list[dict[str, Any]]:
    """What a reader of committed messages sees."""
    if task.form == "json":
        return committed(broker, task.topic)
    import fastavro

    # PyFlink writes its own schema: fields that may be null, and without the end of the window.
    return committed(
        broker, task.topic, lambda data: fastavro.schemaless_reader(io.BytesIO(data), _schema("ctr"), None)
    )


def both(name: str, broker: Broker, number: int, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """A run over a fifth of the records and one over all; what the difference takes is free of the start."""
    few = measured(name, broker, Task("few", given.records // 5, f"{name}-{number}-few", given.form, folder))
    all_of_them = measured(name, broker, Task("events", given.records, f"{name}-{number}", given.form, folder))
    more = given.records - given.records // 5
    rate = more / max(all_of_them["seconds"] - few["seconds"], 0.1)
    cpu_us = (all_of_them["cpu_us_per_record"] * given.records - few["cpu_us_per_record"] * few["records"]) / more
    return {**all_of_them, "records_per_s": round(rate), "cpu_us_per_record_beyond_start": round(cpu_us, 2)}


def transactions(broker: Broker) -> dict[str, float]:
    """Milliseconds (median) to publish a batch, by guarantee, in turns."""
    from millwheel.connectors.kafka.sink import build_kafka_sink
    from millwheel.sinks.base import SinkBatch, SinkRecord

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
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="bytewax,flink")
    parser.add_argument("--form", choices=("json", "avro"), default="json")
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(_CHILDREN_OF_CHILDREN_ARE_MINE, 1, 0, 0, 0)
    names = ["ours", *(name for name in given.peers.split(",") if name)]
    with tempfile.TemporaryDirectory(prefix="kafka-rates-") as place:
        folder = Path(place)
        (folder / "broker").mkdir()
        broker = Broker(folder / "broker")
        broker.start()
        try:
            broker.make_topic("batches", PARTITIONS)
            for topic, records in (("few", given.records // 5), ("events", given.records)):
                produce(broker, topic, records, late=0.0, duplicates=0.0, keyed=True, encode=encoder(given.form))
            print(json.dumps(transactions(broker)), flush=True)
            for number in range(given.rounds):
                for name in names:
                    try:
                        print(json.dumps(both(name, broker, number, given, folder)), flush=True)
                    except (UnavailableEnvironmentError, subprocess.SubprocessError, AssertionError) as ex:
                        print(json.dumps({"who": name, "left_out": str(ex)[-1500:]}), flush=True)
        finally:
            broker.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
