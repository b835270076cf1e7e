"""From topic to topic while workers and the broker are killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.servers.kafka import Broker
from tests.slow.kafka import committed, produce
from tests.slow.runs import EXAMPLES, Run
from tests.slow.waits import until

pytestmark = pytest.mark.slow

PARTITIONS, ADS, STEP_MS, RECORDS = 4, 50, 20, 40_000


@pytest.mark.timeout(600)
def test_each_count_appears_once(broker: Broker, tmp_path: Path) -> None:
    """Two executors of Spark with a worker each; the broker is killed, too. See test_ads_run.py for
    plain processes."""
    source, target = broker.make_topic("in-spark", PARTITIONS), broker.make_topic("out-spark", 2)
    clicks = [{"ad": number * 7 % ADS, "ts": number * STEP_MS} for number in range(RECORDS)]
    produce(
        broker, source, [(number % PARTITIONS, None, click) for number, click in enumerate(clicks)]
    )
    produce(broker, source, [(1, None, b"{no json")])
    params = {"brokers": broker.address, "input": source, "output": target}
    run = Run(EXAMPLES / "kafka" / "clicks.yaml", tmp_path, params, "spark").start()
    until(lambda: len(run.processes("CoarseGrainedExecutorBackend")) == 2)
    until(lambda: lag(broker, "kafka_clicks", source) <= RECORDS)
    kill(run, "CoarseGrainedExecutorBackend", 1)
    broker.kill()
    broker.start()
    run.wait(240)
    assert run.code == 0, run.said
    rows = [json.loads(value or b"") for _, value in committed(broker, target, 2)]
    found = Counter({(row["ad"], row["window_start"] // 1000): row["clicks"] for row in rows})
    assert len(rows) == len(found), "a row appears twice"
    assert found == Counter((click["ad"], click["ts"] // 60_000 * 60_000) for click in clicks)
    assert run.summary["dead_letters"] == 1, run.summary
    # Nobody waits for the answer to the last offsets, which a broker that has just come back may
    # not have taken.
    assert lag(broker, "kafka_clicks", source) < RECORDS


def lag(broker: Broker, group: str, topic: str) -> int:
    """What a tool shows that compares a consumer group with the ends of the partitions."""
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, number) for number in range(PARTITIONS)]
    )
    # a new one: the broker may have been away
    admin = AdminClient({"bootstrap.servers": broker.address})
    found = admin.list_consumer_group_offsets([asked])[group].result(90).topic_partitions
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "lag"})
    behind = [
        consumer.get_watermark_offsets(each, timeout=30)[1] - max(each.offset, 0)
        for each in found or ()
    ]
    consumer.close()
    assert len(behind) == PARTITIONS
    return sum(behind)


def kill(run: Run, what: str, times: int) -> None:
    """A second apart; the run must not be over before."""
    killed, seed = 0, 0
    while killed < times:
        assert run.process.poll() is None, "it ended before it was disturbed"
        seed += 1
        killed += run.kill_at_random((what,), seed=seed, times=1, pause_s=(0.8, 1.2))[what]
