"""Topic in, windows by ad and minute, topic out, in turns over one broker: ours, exactly once,
beside Quix Streams and PyFlink's SQL, exactly once, and Bytewax, whose sink has no transactions;
and what a transaction adds.

    python -m bench kafka_rates [--records 1000000] [--rounds 3] [--peers bytewax,quix,flink]
                                [--form avro]

Each has one worker; ``ours 2`` are two of ours. Prints one JSON line per run: seconds from start to
end, microseconds of processor time per record, which other work disturbs less, and how many rows
are not those of the events. Both hold what a process costs to start. So each system also reads a
fifth of its records, and ``records_per_s`` is what the other four fifths took. Quix Streams gets a
fifth of the records of the others. At the end come a table of medians, and ours against each peer.
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
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.ads_kafka import PARTITIONS, committed, produce
from bench.contestants import FLINK
from bench.environments import Environment, UnavailableEnvironmentError, python_of
from bench.jars import jars
from bench.paths import PEERS

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
  ctr: {kafka: {brokers: "${brokers}", topic: "${output}", key: ad_id, guarantee: exactly_once,
    format: ${out}}}
"""
AVRO = {
    "events": [("event_id", "string"), ("ad_id", "long"), ("client_id", "long"), ("uid", "long"),
    ("type", "string"),
               ("cost", "double"), ("ts", "long")],
    "ctr": [("ad_id", "long"), ("window_start", "long"), ("window_end", "long"), ("impressions",
    "long"),
            ("clicks", "long"), ("spend", "double")],
}  # fmt: skip
FLINK_JARS = (
    "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    "org.apache.flink:flink-sql-avro:2.3.0",
    "org.apache.flink:flink-json:2.3.0",
)
QUIX = Environment("quix-kafka-avro", ("quixstreams[avro]==3.28.1",))
BYTEWAX = Environment(
    "bytewax-kafka-avro", ("bytewax[kafka]==0.21.1", "orjson", "fastavro"), before=13
)
MINUTE_MS = 60_000
FEWER = 5
"""So many times fewer records are read to know what a start costs, and by who would take minutes
for all of them."""
_SLOW = frozenset({"quix"})
# PR_SET_CHILD_SUBREAPER: else the time of PyFlink's JVM would count for nobody
_CHILDREN_OF_CHILDREN_ARE_MINE = 36
_BATCHES, _ROWS, _LONGEST_S = 60, 100, 600

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Task:
    """One run: from a topic with so many records into another one."""

    source: str
    records: int
    topic: str
    form: str
    folder: Path


def ours(broker: Broker, task: Task, workers: int = 1) -> list[str]:
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
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(folder / "p.yaml"),
        "--launcher",
        "processes",
    ]
    command += ["--workers", str(workers), "--root", str(folder / f"root-{task.topic}")]
    for name, value in (
        ("brokers", broker.address),
        ("input", task.source),
        ("output", task.topic),
    ):
        command += ["--set", f"{name}={value}"]
    return command


def _schema(name: str) -> dict[str, Any]:
    fields = [{"name": each, "type": kind} for each, kind in AVRO[name]]
    return {"type": "record", "name": name, "fields": fields}


def _of_peers() -> dict[str, Any]:
    """A row of theirs has no end of its window."""
    schema = _schema("ctr")
    return {
        **schema,
        "fields": [field for field in schema["fields"] if field["name"] != "window_end"],
    }


CONTESTANTS: dict[str, Callable[[Any, Task], list[str]]] = {
    "ours": ours,
    "ours 2": lambda broker, task: ours(broker, task, 2),
    "bytewax": lambda broker, task: [
        python_of(BYTEWAX),
        "-m",
        "bytewax.run",
        str(PEERS / "bytewax_kafka.py"),
    ],
    "quix": lambda broker, task: [python_of(QUIX), str(PEERS / "quix_kafka.py")],
    "flink": lambda broker, task: [python_of(FLINK), str(PEERS / "flink_kafka.py")],
}


def measured(name: str, broker: Broker, task: Task, expected: Rows) -> dict[str, Any]:
    """One run into a new topic."""
    # Quix Streams gives rows the time of their window. To the broker they are months old, and may
    # be deleted at once.
    broker.make_topic(task.topic, PARTITIONS, **{"retention.ms": "-1"})
    command = CONTESTANTS[name](broker, task)
    env = {
        **os.environ,
        "BENCH_BROKERS": broker.address,
        "BENCH_INPUT": task.source,
        "BENCH_TOPIC": task.topic,
    }
    env |= {"BENCH_EVENTS": str(task.records), "BENCH_FORM": task.form}
    env |= {"BENCH_EVENT": json.dumps(_schema("events")), "BENCH_ROW": json.dumps(_of_peers())}
    if name == "flink":
        env["BENCH_JARS"] = ";".join(
            path.as_uri() for path in jars("flink-kafka", FLINK_JARS, alone=True).glob("*.jar")
        )
    others = {child.pid for child in psutil.Process().children()}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command,
        cwd=task.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    seconds = time.monotonic() - began
    for child in psutil.Process().children():  # a JVM that its parent did not wait for
        if child.pid not in others:
            os.waitpid(child.pid, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = Counter(map(row_of, rows_in(broker, task)))
    return {
        "who": name,
        "records": task.records,
        "seconds": round(seconds, 2),
        "cpu_us_per_record": round(used / task.records * 1e6, 2),
        "rows": sum(found.values()),
        "rows_missing": sum((expected - found).values()),
        "rows_wrong": sum((found - expected).values()),
    }


def encoder(form: str) -> Callable[[str], bytes] | None:
    """From a line of JSON to a message in Avro; None for JSON."""
    if form == "json":
        return None
    from millwheel.connect.formats.avro.messages import AvroEncoder

    rows = AvroEncoder(_schema("events"))
    return lambda line: rows.encode(json.loads(line))


def rows_in(broker: Broker, task: Task) -> list[dict[str, Any]]:
    """What a reader of committed messages sees."""
    if task.form == "json":
        return committed(broker, task.topic)
    import fastavro

    schema = _schema("ctr")
    if not task.topic.startswith("ours"):
        schema = _of_peers()
    if task.topic.startswith("flink"):  # it writes a schema of its own, of fields that may be null
        schema["fields"] = [
            {**field, "type": ["null", field["type"]]} for field in schema["fields"]
        ]
    return committed(
        broker, task.topic, lambda data: fastavro.schemaless_reader(io.BytesIO(data), schema, None)
    )


def row_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Ours tells windows in µs, the others in ms; the last digits of a sum depend on its order."""
    start = row["window_start"]
    start_ms = start // 1000 if start > 1 << 45 else start
    return row["ad_id"], start_ms, row["impressions"], row["clicks"], round(row["spend"], 4)


class Expected:
    """What the events themselves give."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], list[Any]] = {}

    def add(self, _: int, line: str) -> None:
        """One event."""
        event = json.loads(line)
        row = self._open.setdefault(
            (event["ad_id"], event["ts"] - event["ts"] % MINUTE_MS), [0, 0, 0.0]
        )
        row[event["type"] == "click"] += 1
        row[2] += event["cost"]

    def rows(self) -> Rows:
        """All windows."""
        return Counter(
            (*store_key, row[0], row[1], round(row[2], 4)) for store_key, row in self._open.items()
        )


def both(
    name: str,
    broker: Broker,
    number: int,
    topics: list[tuple[str, int, Rows]],
    given: Any,
    folder: Path,
) -> Any:
    """A run over a fifth of the records and one over all; what the difference takes is free of the
    start."""
    sizes = topics[:2] if name in _SLOW else topics[1:]
    found = []
    for topic, records, expected in sizes:
        out = f"{name.replace(' ', '-')}-{number}-{topic}"
        found.append(
            measured(name, broker, Task(topic, records, out, given.form, folder), expected)
        )
    few, most = found
    more = most["records"] - few["records"]
    cpu_us = most["cpu_us_per_record"] * most["records"] - few["cpu_us_per_record"] * few["records"]
    rate = more / max(most["seconds"] - few["seconds"], 0.1)
    return {
        **most,
        "records_per_s": round(rate),
        "cpu_us_per_record_beyond_start": round(cpu_us / more, 2),
    }


def transactions(broker: Broker) -> dict[str, float]:
    """Milliseconds (median) to publish a batch, by guarantee, in turns."""
    from millwheel.connect.connectors.kafka.sink import build_kafka_sink
    from millwheel.connect.sinks.base import SinkBatch, SinkRecord

    writers, took = {}, {}
    for guarantee in ("exactly_once", "at_least_once"):
        sink = build_kafka_sink(
            {"brokers": broker.address, "topic": "batches", "guarantee": guarantee}, "bench-1"
        )
        sink.check("bench-1")
        writers[guarantee], took[guarantee] = sink.open("sink.batches-0", 1), list[float]()
    for number in range(_BATCHES):
        for guarantee, writer in writers.items():
            records = [SinkRecord(row, {"row": row, "batch": number}, 0) for row in range(_ROWS)]
            committable = writer.prepare(SinkBatch(number, f"1-{number}", records))
            began = time.perf_counter()
            writer.publish(committable)
            took[guarantee].append((time.perf_counter() - began) * 1000)
    return {
        f"{guarantee}_ms": round(statistics.median(each[5:]), 1) for guarantee, each in took.items()
    }


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Medians, with the least and the greatest, as Markdown."""
    lines = [
        "| | records/s, without the start | processor µs per record, the same | seconds, with it |"
        " one of ours to it |"
    ]
    lines.append("|---|---|---|---|---|")
    best = {name: [run["records_per_s"] for run in found] for name, found in runs.items() if found}
    for name, found in runs.items():
        if found:
            cells = [_spread([run[each] for run in found], digits) for each, digits in _SHOWN]
            against = "" if name.startswith("ours") else _spread(_against(best, name), 1) + "×"
            lines.append(
                f"| {name}, {found[0]['records']:,} records | {' | '.join(cells)} | {against} |"
            )
    return "\n".join(lines)


_SHOWN = (("records_per_s", 0), ("cpu_us_per_record_beyond_start", 2), ("seconds", 1))


def _against(rates: dict[str, list[float]], name: str) -> list[float]:
    """One worker of ours, within each round."""
    return [one / other for one, other in zip(rates["ours"], rates[name], strict=False)]


def _spread(values: list[float], digits: int) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def main() -> int:
    from tests.servers.kafka import Broker

    parser = argparse.ArgumentParser(prog="python -m bench kafka_rates", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="bytewax,quix,flink")
    parser.add_argument("--form", choices=("json", "avro"), default="json")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(_CHILDREN_OF_CHILDREN_ARE_MINE, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="kafka-rates-") as store_key:
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
    """All rounds, and the table."""
    topics = []
    for topic, records in (
        ("fewest", arguments.records // FEWER**2),
        ("few", arguments.records // FEWER),
        ("all", arguments.records),
    ):
        expected = Expected()
        produce(
            broker,
            topic,
            records,
            0.0,
            0.0,
            keyed=True,
            seen=expected.add,
            encode=encoder(arguments.form),
        )
        topics.append((topic, records, expected.rows()))
    broker.make_topic("batches", PARTITIONS)
    print(json.dumps(transactions(broker)), flush=True)
    names = ["ours", "ours 2", *(name for name in arguments.peers.split(",") if name)]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(arguments.rounds):
        for name, found in runs.items():
            try:
                found.append(both(name, broker, number, topics, arguments, folder))
                print(json.dumps(found[-1]), flush=True)
            except (UnavailableEnvironmentError, subprocess.SubprocessError, AssertionError) as ex:
                print(json.dumps({"who": name, "left_out": str(ex)[-1500:]}), flush=True)
    print(table(runs))


if __name__ == "__main__":
    sys.exit(main())
