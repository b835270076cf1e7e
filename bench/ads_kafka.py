"""Ads from Kafka into Kafka (exactly once) and PostgreSQL (upsert) in one run, while workers, the
broker and the database server are killed. A reader of committed messages and a query must see the
rows that the events alone give.

    python -m bench ads_kafka [--records 2000000] [--worker-kills 12] [--broker-kills 3]
                              [--server-kills 3] [--calm]
    python -m bench ads_kafka --launcher spark --executor-kills 2

Starts a broker (Java and mvn) and a database server of its own. The topic of events (examples/ads,
with duplicates and late records) has four partitions. With Spark, two executors have a worker each.
``--calm`` adds a run that nothing disturbs. Prints one JSON line per run and one with the
comparison; exits with 1 on any difference.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.ads_expected import Expected

if TYPE_CHECKING:
    from tests.servers.kafka import Broker
    from tests.servers.postgres import Server

ADS = Path(__file__).parents[1] / "examples" / "ads"
PARTITIONS = 4
_UNSENT = 200_000  # messages that the producer may hold


def produce(
    broker: Broker,
    topic: str,
    records: int,
    late: float = 0.002,
    duplicates: float = 0.01,
    keyed: bool = False,
    seen: Callable[[int, str], None] | None = None,
    encode: Callable[[str], bytes] | None = None,
) -> int:
    """Write the events of examples/ads; how many, copies included. A client's events lie in one
    partition; ``keyed``: those of an ad do, and it is the key of its messages. ``seen`` is told
    each partition and event, in order."""
    from confluent_kafka import Producer

    sys.path.insert(0, str(ADS))
    from generate import CLIENTS, Load, events, lines  # type: ignore[import-not-found]

    broker.make_topic(topic, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * _UNSENT,
        }
    )
    drawn = events(Load(records, late=late, duplicates=duplicates), 0)
    partitions = ((drawn.ads if keyed else drawn.ads % CLIENTS) % PARTITIONS).tolist()
    keys = map(str, drawn.ads.tolist()) if keyed else itertools.repeat(None)
    rows = itertools.chain.from_iterable(text.splitlines() for text in lines(drawn))
    for partition, key, row in zip(partitions, keys, rows, strict=False):  # the keys may never end
        producer.produce(topic, row if encode is None else encode(row), key, partition)
        if seen is not None:
            seen(partition, row)
        if len(producer) >= _UNSENT:
            producer.poll(0.1)
    assert producer.flush(300) == 0
    return len(partitions)


def committed(
    broker: Broker, topic: str, decode: Callable[[bytes], Any] = json.loads
) -> list[dict[str, Any]]:
    """What a reader of committed messages sees, in no order."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, ended = [], 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 10):
            error = message.error()
            if error is None:
                found.append(decode(message.value() or b""))
            else:
                assert error.name() == "_PARTITION_EOF", error
                ended += 1
    consumer.close()
    return found


class Trouble:
    """Kills while a run goes on; ``told`` counts what it did."""

    def __init__(
        self,
        broker: Broker,
        server: Server,
        run: subprocess.Popen[bytes],
        arguments: argparse.Namespace,
    ) -> None:
        self._run, self._pause_s = run, arguments.pause
        self._servers: dict[str, Broker | Server] = {"broker": broker, "server": server}
        self._plan = ["worker"] * arguments.worker_kills + ["executor"] * arguments.executor_kills
        self._plan += ["broker"] * arguments.broker_kills + ["server"] * arguments.server_kills
        self._random = random.Random(arguments.seed)
        self._random.shuffle(self._plan)
        self.told: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._cause)
        self._thread.start()

    def ended(self) -> None:
        """Wait until the servers are there again."""
        self._thread.join()

    def _cause(self) -> None:
        # before that, the driver needs the servers
        while self._run.poll() is None and not self._processes("worker"):
            time.sleep(0.05)
        for what in self._plan:
            until = time.monotonic() + self._pause_s
            while time.monotonic() < until and self._run.poll() is None:
                time.sleep(0.05)
            if self._run.poll() is not None:
                return
            self.told[what] += (
                self._restart(self._servers[what]) if what in self._servers else self._kill(what)
            )

    def _kill(self, what: str) -> int:
        found = self._processes(what)
        if not found:
            return 0
        self._random.choice(found).kill()
        return 1

    def _processes(self, what: str) -> list[psutil.Process]:
        try:
            return [
                child
                for child in psutil.Process(self._run.pid).children(recursive=True)
                if _is(what, child)
            ]
        except psutil.NoSuchProcess:
            return []

    @staticmethod
    def _restart(server: Broker | Server) -> int:
        server.kill()
        time.sleep(1)
        server.start()
        return 1


_PROGRAMS = {"worker": "millwheel.engine.workers", "executor": "CoarseGrainedExecutorBackend"}


def _is(what: str, process: psutil.Process) -> bool:
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return _PROGRAMS[what] in line and "lifeline" not in line


def run(
    broker: Broker,
    server: Server,
    name: str,
    arguments: argparse.Namespace,
    folder: Path,
    trouble: bool,
) -> dict[str, Counter[tuple[Any, ...]]]:
    """One run into topics and tables of its own, and what their readers see."""
    for stream in ("ctr", "over-budget"):
        broker.make_topic(f"{name}-{stream}", PARTITIONS)
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(ADS / "kafka_postgres.yaml"),
        "--launcher",
        arguments.launcher,
    ]
    for option, value in (("brokers", broker.address), ("input", "events"), ("output", name)):
        command += ["--set", f"{option}={value}"]
    command += [
        "--root",
        str(folder / f"root-{name}"),
        "--workers",
        "2",
        "--summary",
        str(folder / f"{name}.json"),
    ]
    began = time.monotonic()
    with (folder / f"{name}.txt").open("wb") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, "PG": server.dsn}
        )
    troubled = Trouble(broker, server, process, arguments) if trouble else None
    code = process.wait()
    seconds = round(time.monotonic() - began, 1)
    if troubled is not None:
        troubled.ended()
    assert code == 0, (folder / f"{name}.txt").read_text()[-3000:]
    summary = json.loads((folder / f"{name}.json").read_text())
    told = {
        each: summary[each] for each in ("records_in", "duplicates", "late", "dead_letters", "rate")
    }
    killed = {} if troubled is None else dict(troubled.told)
    print(json.dumps({"run": name, "seconds": seconds, "killed": killed, **told}), flush=True)
    topics = {
        stream: rows_of(committed(broker, f"{name}-{stream}")) for stream in ("ctr", "over-budget")
    }
    return {**topics, **tables(server, name)}


def tables(server: Server, name: str) -> dict[str, Counter[tuple[Any, ...]]]:
    """The current rows in the tables of a run, in the form of those in topics."""
    ctr = server.sql(
        "select ad_id, (extract(epoch from window_start) * 1000000)::bigint, impressions, clicks,"
        f" spend from {name}_ctr"
    )
    over_budget = server.sql(f"select client_id, spent_micros, clicks from {name}_over_budget")
    return {
        "ctr table": Counter(map(_rounded, ctr)),
        "over-budget table": Counter(map(_rounded, over_budget)),
    }


def rows_of(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """How often each row is there."""
    return Counter(
        _rounded([value for name, value in row.items() if name != "window_end"]) for row in rows
    )


def _rounded(row: Sequence[Any]) -> tuple[Any, ...]:
    """The last digits of sums of prices depend on the order of partitions."""
    return tuple(round(value, 6) if isinstance(value, float) else value for value in row)


def compared(
    expected: dict[str, Counter[tuple[Any, ...]]], found: dict[str, Counter[tuple[Any, ...]]]
) -> dict[str, Any]:
    """How many rows there are, are there twice, or are not those of the events."""
    wanted = {store_key: expected[store_key.removesuffix(" table")] for store_key in found}
    return {
        "rows": {store_key: sum(rows.values()) for store_key, rows in found.items()},
        "rows_twice": {
            store_key: sum(count - 1 for count in rows.values())
            for store_key, rows in found.items()
        },
        "rows_that_differ": {
            store_key: sum(((wanted[store_key] - rows) + (rows - wanted[store_key])).values())
            for store_key, rows in found.items()
        },
    }


def main() -> int:
    from tests.servers.kafka import Broker
    from tests.servers.postgres import Server

    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="ads-kafka-") as store_key:
        folder = Path(store_key)
        (folder / "broker").mkdir()
        broker, server, expected = Broker(folder / "broker"), Server(), Expected()
        try:
            broker.start()
            server.start()
            sent = produce(
                broker,
                "events",
                arguments.records,
                seen=lambda at, row: expected.add(at, json.loads(row)),
            )
            rows, bad = expected.rows(), False
            print(
                json.dumps(
                    {"events": sent, "late": expected.late, "duplicates": expected.duplicates}
                ),
                flush=True,
            )
            for name in ("calm", "killed") if arguments.calm else ("killed",):
                told = compared(
                    rows, run(broker, server, name, arguments, folder, trouble=name == "killed")
                )
                print(json.dumps({"run": name, **told}), flush=True)
                bad = bad or any((*told["rows_twice"].values(), *told["rows_that_differ"].values()))
        finally:
            broker.kill()
            server.end()
    return int(bad)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench ads_kafka", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--worker-kills", type=int, default=12)
    parser.add_argument("--broker-kills", type=int, default=3)
    parser.add_argument("--server-kills", type=int, default=3)
    parser.add_argument("--executor-kills", type=int, default=0, help="with --launcher spark")
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between kills")
    parser.add_argument("--launcher", default="processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calm", action="store_true", help="one more run, undisturbed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
