"""The ads pipeline from a topic into topics and tables at once, while a worker and both servers are killed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bench.ads_expected import Expected
from bench.ads_kafka import PARTITIONS, compared, produce, rows_of, tables
from bench.ads_kafka import committed as committed_rows
from tests.servers.kafka import Broker
from tests.servers.postgres import Server
from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow

RECORDS = 20_000


@pytest.mark.timeout(600)
def test_topics_and_tables_have_each_row_once(
    broker: Broker, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On plain processes; `python -m bench ads_kafka --launcher spark` does it in executors."""
    monkeypatch.setenv("PG", server.dsn)
    monkeypatch.syspath_prepend(EXAMPLES / "ads")  # the bench puts its generator there, for good
    expected = Expected(budget=2)
    produce(broker, "ads", RECORDS, seen=lambda partition, row: expected.add(partition, json.loads(row)))
    assert expected.late
    assert expected.duplicates
    for stream in ("ctr", "over-budget"):
        broker.make_topic(f"ads-{stream}", PARTITIONS)
    params = {"brokers": broker.address, "input": "ads", "output": "ads", "budget": "2"}
    run = Run(EXAMPLES / "ads" / "kafka_postgres.yaml", tmp_path, params).start()
    while not server.sql("select 1 from pg_tables where tablename = 'ads_ctr'") or not _rows(server):
        assert run.process.poll() is None, "it ended before anything was written"
        time.sleep(0.02)
    assert run.kill_at_random(("millwheel.workers",), seed=1, times=1, pause_s=(0.0, 0.1))["millwheel.workers"] == 1
    server.kill()
    broker.kill()
    server.start()
    broker.start()
    run.wait(240)
    assert run.code == 0, run.said
    topics = {stream: rows_of(committed_rows(broker, f"ads-{stream}")) for stream in ("ctr", "over-budget")}
    told = compared(expected.rows(), {**topics, **tables(server, "ads")})
    assert min(told["rows"].values()) >= 10, told
    assert not any(told["rows_twice"].values()), told
    assert not any(told["rows_that_differ"].values()), told


def _rows(server: Server) -> int:
    return int(server.sql("select count(*) from ads_ctr")[0][0])
