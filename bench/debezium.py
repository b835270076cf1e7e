"""Changes of a table in PostgreSQL, by Debezium over Kafka, into the table itself and an
aggregation of it: what comes out must be what a query of the table gives.

    python -m bench debezium [--changes 5000]

Starts PostgreSQL (with ``wal_level = logical``), a broker and Kafka Connect with Debezium's
connector, whose jars come from Maven's packages, once, into the cache; then makes random inserts,
updates (some of the primary key) and deletes, and runs examples/formats/customers.yaml over the
topic. Exits with 1 on any difference.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.jars import jars
from bench.paths import HOUSE

if TYPE_CHECKING:
    from tests.servers.kafka import Broker
    from tests.servers.postgres import Server

JARS = (
    "org.apache.kafka:connect-runtime:4.2.0",
    "org.apache.kafka:connect-json:4.2.0",
    "io.debezium:debezium-connector-postgres:3.7.0.Final",
    "org.slf4j:slf4j-simple:1.7.36",
)
TOPIC, SNAPSHOT = "shop.public.customers", 100
_MESSAGES = {"insert": 1, "update": 1, "delete": 2, "move": 3}
"""Of each kind of change. A delete is an event and a tombstone; a row whose key changes is deleted
and inserted."""
COUNTRIES = ("de", "fr", "it")
_LONGEST_S = 120.0


def connector(server: Server, user: str, password: str) -> dict[str, str]:
    """What docs/postgres.md tells to give to Kafka Connect."""
    return {
        "name": "customers",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "publication.name": "millwheel",
        "slot.name": "millwheel",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": user,
        "database.password": password,
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public.customers",
        "decimal.handling.mode": "double",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "2",
    }


@contextmanager
def connected(folder: Path, broker: Broker, options: dict[str, str]) -> Iterator[None]:
    """Kafka Connect with one connector, while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    worker = {
        "bootstrap.servers": broker.address,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": str(folder / "offsets"),
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "only_scan",
    }
    for name, given in (("worker", worker), ("connector", options)):
        (folder / f"{name}.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in given.items())
        )
    command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", f"{jars('debezium', JARS)}/*"]
    command += [
        "org.apache.kafka.connect.cli.ConnectStandalone",
        "worker.properties",
        "connector.properties",
    ]
    with (folder / "connect.txt").open("wb") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def change(server: Server, changes: int, draw: random.Random) -> Counter[str]:
    """Make random changes; how many of each kind."""
    made: Counter[str] = Counter()
    there = [row[0] for row in server.sql("select id from customers")]
    for number in range(changes):
        kind = draw.choice(("insert", "update", "update", "move", "delete")) if there else "insert"
        key = 1_000 + number if kind == "insert" else there[draw.randrange(len(there))]
        country = draw.choice(COUNTRIES)
        if kind == "insert":
            server.sql("insert into customers values (%s, %s, %s)", key, country, number / 4)
            there.append(key)
        elif kind == "update":
            server.sql(
                "update customers set country = %s, spent = spent + 1 where id = %s", country, key
            )
        elif kind == "move":
            server.sql("update customers set id = %s where id = %s", 1_000_000 + number, key)
            there[there.index(key)] = 1_000_000 + number
        else:
            server.sql("delete from customers where id = %s", key)
            there.remove(key)
        made[kind] += 1
    return made


def until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)


def written(broker: Broker, topic: str) -> int:
    """How many messages a topic has."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "bench"})
    partitions = broker.admin().list_topics(timeout=5).topics[topic].partitions
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=5)[1]
        for number in partitions
    ]
    consumer.close()
    return sum(ends)


def run(broker: Broker, folder: Path) -> tuple[dict[int, str], Counter[str], dict[str, Any]]:
    """(The table, the counts by country, the summary) of a run of ours over the topic."""
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "run",
        str(HOUSE / "examples" / "formats" / "customers.yaml"),
    ]
    for name, value in (("brokers", broker.address), ("topic", TOPIC), ("output", str(folder))):
        command += ["--set", f"{name}={value}"]
    command += ["--launcher", "processes", "--workers", "2", "--root", str(folder / "root")]
    subprocess.run([*command, "--summary", str(folder / "summary.json")], check=True)
    found = {name: _rows(folder / name) for name in ("customers", "by_country")}
    mirrored = {row["id"]: row["country"] for row in found["customers"]}
    counted = Counter({row["country"]: row["customers"] for row in found["by_country"]})
    return mirrored, +counted, json.loads((folder / "summary.json").read_text())


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


def main() -> int:
    from tests.servers.kafka import Broker
    from tests.servers.postgres import PASSWORD, USER, Server

    parser = argparse.ArgumentParser(prog="python -m bench debezium", description=__doc__)
    parser.add_argument("--changes", type=int, default=5_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="debezium-") as store_key:
        folder = Path(store_key)
        (folder / "broker").mkdir()
        broker, server = Broker(folder / "broker"), Server()
        try:
            broker.start()
            server.start()
            _prepare(server)
            with connected(folder, broker, connector(server, USER, PASSWORD)):
                topics = broker.admin().list_topics
                until(lambda: TOPIC in topics(timeout=5).topics, "Debezium made no topic")
                made = change(server, arguments.changes, random.Random(1))
                messages = SNAPSHOT + sum(_MESSAGES[kind] * count for kind, count in made.items())
                until(
                    lambda: written(broker, TOPIC) >= messages,
                    f"Debezium did not write {messages} messages",
                )
            mirrored, counted, summary = run(broker, folder)
            table = {
                int(key): str(country)
                for key, country in server.sql("select id, country from customers")
            }
        finally:
            broker.kill()
            server.end()
    differ = len(mirrored.items() ^ table.items()) + int(counted != Counter(table.values()))
    told = {name: summary[name] for name in ("records_in", "late", "dead_letters")}
    print(
        json.dumps(
            {"changes": dict(made), "rows": len(table), "counts": counted, "differ": differ, **told}
        )
    )
    return int(differ > 0 or summary["dead_letters"] > 0)


def _prepare(server: Server) -> None:
    """As docs/postgres.md says. Rows that are there before are Debezium's snapshot."""
    server.sql("alter system set wal_level = logical")
    server.kill()
    server.start()
    server.sql("create table customers (id bigint primary key, country text, spent numeric(12, 2))")
    server.sql("alter table customers replica identity full")
    server.sql("create publication millwheel for table customers")
    server.sql("insert into customers select n, 'de', 1.25 from generate_series(1, %s) n", SNAPSHOT)


if __name__ == "__main__":
    sys.exit(main())
