"""Ads over Kafka: one run undisturbed and one under kills of workers and of the broker; a reader of committed messages
must see the same rows.

    python -m bench ads_kafka [--records 2000000] [--worker-kills 12] [--broker-kills 3] [--launcher spark]

Starts a broker of its own (Java and mvn), with four partitions for the events of examples/ads, which hold duplicates
and late records. Prints one JSON line per run and a last one with the comparison; exits with 1 on any difference.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.servers.kafka import Broker

ADS = Path(__file__).parents[1] / "examples" / "ads"
PARTITIONS = 4
_UNSENT = 200_000  # messages that the producer may hold


def produce(
    broker: Broker, topic: str, records: int, late: float = 0.002, duplicates: float = 0.01, keyed: bool = False
) -> int:
    """Write the events of examples/ads; how many, copies included. A client's events lie in one partition; ``keyed``:
    those of an ad do, and it is the key of its messages."""
    from confluent_kafka import Producer

    sys.path.insert(0, str(ADS))
    from generate import CLIENTS, Load, events, lines  # type: ignore[import-not-found]

    broker.make_topic(topic, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": broker.address, "linger.ms": 50, "queue.buffering.max.messages": 2 * _UNSENT}
    )
    drawn = events(Load(records, late=late, duplicates=duplicates), 0)
    partitions = ((drawn.ads if keyed else drawn.ads % CLIENTS) % PARTITIONS).tolist()
    keys = map(str, drawn.ads.tolist()) if keyed else itertools.repeat(None)
    rows = itertools.chain.from_iterable(text.splitlines() for text in lines(drawn))
    for partition, key, row in zip(partitions, keys, rows, strict=False):  # the keys may never end
        producer.produce(topic, row, key, partition)
        if len(producer) >= _UNSENT:
            producer.poll(0.1)
    assert producer.flush(300) == 0
    return len(partitions)


def committed(broker: Broker, topic: str) -> list[dict[str, Any]]:
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
                found.append(json.loads(message.value() or b""))
            else:
                assert error.name() == "_PARTITION_EOF", error
                ended += 1
    consumer.close()
    return found


class Trouble:
    """Kills workers and the broker while a run goes on; ``told`` counts what it did."""

    def __init__(self, broker: Broker, run: subprocess.Popen[bytes], given: argparse.Namespace) -> None:
        self._broker, self._run, self._pause_s = broker, run, given.pause
        self._plan = ["worker"] * given.worker_kills + ["broker"] * given.broker_kills
        random.Random(given.seed).shuffle(self._plan)
        self._random = random.Random(given.seed)
        self.told: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._cause)
        self._thread.start()

    def ended(self) -> None:
        """Wait until the broker is there again."""
        self._thread.join()

    def _cause(self) -> None:
        while self._run.poll() is None and not self._workers():  # before that, it is the driver that needs the broker
            time.sleep(0.05)
        for what in self._plan:
            until = time.monotonic() + self._pause_s
            while time.monotonic() < until and self._run.poll() is None:
                time.sleep(0.05)
            if self._run.poll() is not None:
                return
            self.told[what] += self._kill_worker() if what == "worker" else self._kill_broker()

    def _kill_worker(self) -> int:
        workers = self._workers()
        if not workers:
            return 0
        self._random.choice(workers).kill()
        return 1

    def _workers(self) -> list[psutil.Process]:
        try:
            return [child for child in psutil.Process(self._run.pid).children(recursive=True) if _is_worker(child)]
        except psutil.NoSuchProcess:
            return []

    def _kill_broker(self) -> int:
        self._broker.kill()
        time.sleep(1)
        self._broker.start()
        return 1


def _is_worker(process: psutil.Process) -> bool:
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "millwheel.workers" in line and "lifeline" not in line


def run(broker: Broker, name: str, given: argparse.Namespace, folder: Path, trouble: bool) -> dict[str, Any]:
    """One run into topics of its own, and what its readers see."""
    for stream in ("ctr", "over-budget"):
        broker.make_topic(f"{name}-{stream}", PARTITIONS)
    command = [sys.executable, "-m", "millwheel", "run", str(ADS / "kafka.yaml"), "--launcher", given.launcher]
    for option, value in (("brokers", broker.address), ("input", "events"), ("output", name)):
        command += ["--set", f"{option}={value}"]
    command += ["--root", str(folder / f"root-{name}"), "--workers", "2", "--summary", str(folder / f"{name}.json")]
    began = time.monotonic()
    with (folder / f"{name}.txt").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    troubled = Trouble(broker, process, given) if trouble else None
    code = process.wait()
    seconds = round(time.monotonic() - began, 1)
    if troubled is not None:
        troubled.ended()
    assert code == 0, (folder / f"{name}.txt").read_text()[-3000:]
    summary = json.loads((folder / f"{name}.json").read_text())
    told = {each: summary[each] for each in ("records_in", "duplicates", "late", "dead_letters", "rate")}
    killed = {} if troubled is None else dict(troubled.told)
    print(json.dumps({"run": name, "seconds": seconds, "killed": killed, **told}), flush=True)
    return {stream: rows_of(committed(broker, f"{name}-{stream}")) for stream in ("ctr", "over-budget")}


def rows_of(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """How often each row is there. Sums of prices are rounded: their last digits depend on the order of partitions."""
    return Counter(
        tuple(round(value, 6) if isinstance(value, float) else value for value in row.values()) for row in rows
    )


def main() -> int:
    from tests.servers.kafka import Broker

    parser = argparse.ArgumentParser(prog="python -m bench ads_kafka", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--worker-kills", type=int, default=12)
    parser.add_argument("--broker-kills", type=int, default=3)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between kills")
    parser.add_argument("--launcher", default="processes")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ads-kafka-") as place:
        folder = Path(place)
        (folder / "broker").mkdir()
        broker = Broker(folder / "broker")
        broker.start()
        try:
            events = produce(broker, "events", given.records)
            calm = run(broker, "calm", given, folder, trouble=False)
            killed = run(broker, "killed", given, folder, trouble=True)
        finally:
            broker.kill()
    twice = {stream: sum(count - 1 for count in rows.values()) for stream, rows in killed.items()}
    differ = {stream: sum(((calm[stream] - rows) + (rows - calm[stream])).values()) for stream, rows in killed.items()}
    rows = {stream: sum(found.values()) for stream, found in calm.items()}
    print(json.dumps({"events": events, "rows": rows, "rows_twice": twice, "rows_that_differ": differ}))
    return int(any(twice.values()) or any(differ.values()))


if __name__ == "__main__":
    sys.exit(main())
