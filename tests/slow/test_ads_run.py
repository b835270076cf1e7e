"""The ads pipelines while processes are killed: from a topic into topics and tables at once, with
both servers killed, too; and what clients have spent, in files."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bench.ads_expected import Expected
from bench.ads_kafka import PARTITIONS, compared, produce, rows_of, tables
from bench.ads_kafka import committed as committed_rows
from tests.servers.kafka import Broker
from tests.servers.postgres import Server
from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow

RECORDS = 20_000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_topics_and_tables_have_each_row_once(
    broker: Broker, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On plain processes; `python -m bench ads_kafka --launcher spark` does it in executors."""
    monkeypatch.setenv("PG", server.dsn)
    monkeypatch.syspath_prepend(EXAMPLES / "ads")  # the bench puts its generator there, for good
    expected = Expected(budget=2)
    produce(
        broker, "ads", RECORDS, seen=lambda partition, row: expected.add(partition, json.loads(row))
    )
    assert expected.late
    assert expected.duplicates
    for stream in ("ctr", "over-budget"):
        broker.make_topic(f"ads-{stream}", PARTITIONS)
    params = {"brokers": broker.address, "input": "ads", "output": "ads", "budget": "2"}
    run = Run(EXAMPLES / "ads" / "kafka_postgres.yaml", tmp_path, params).start()
    while not server.sql("select 1 from pg_tables where tablename = 'ads_ctr'") or not _rows(
        server
    ):
        assert run.process.poll() is None, "it ended before anything was written"
        time.sleep(0.02)
    assert (
        run.kill_at_random(("millwheel.engine.workers",), seed=1, times=1, pause_s=(0.0, 0.1))[
            "millwheel.engine.workers"
        ]
        == 1
    )
    server.kill()
    broker.kill()
    server.start()
    broker.start()
    run.wait(240)
    assert run.code == 0, run.said
    topics = {
        stream: rows_of(committed_rows(broker, f"ads-{stream}"))
        for stream in ("ctr", "over-budget")
    }
    told = compared(expected.rows(), {**topics, **tables(server, "ads")})
    assert min(told["rows"].values()) >= 10, told
    assert not any(told["rows_twice"].values()), told
    assert not any(told["rows_that_differ"].values()), told


def _rows(server: Server) -> int:
    return int(server.sql("select count(*) from ads_ctr")[0][0])


def test_the_spend_of_each_client_is_one_row_that_a_kill_does_not_change(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    generate = [
        sys.executable,
        EXAMPLES / "ads" / "generate.py",
        "--records",
        "80000",
        "--users",
        "50",
    ]
    subprocess.run([*generate, "--out", events], check=True, capture_output=True)
    params = {"input": str(events), "output": str(tmp_path / "out")}
    run = Run(EXAMPLES / "ads" / "spend.yaml", tmp_path, params).start()
    until = time.monotonic() + 90
    while not list((tmp_path / "out" / "spend").glob("*.jsonl")):
        assert run.process.poll() is None, "the run was over before anything was seen"
        assert time.monotonic() < until
        time.sleep(0.01)
    run.processes("millwheel.engine.workers")[0].kill()
    run.wait()
    assert run.code == 0, run.said
    assert run.summary["restarts"], "the kill came too late"
    rows = [
        json.loads(line)
        for path in (tmp_path / "out" / "spend").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    found = {row["client_id"]: (round(row["spent"], 4), row["clicks"]) for row in rows}
    assert len(rows) == len(found)
    assert found == _spent(events)


def _spent(events: Path) -> dict[int, tuple[float, int]]:
    """Of each client, line by line: late records and copies are left out, and a user's further
    clicks on an ad."""
    highest, seen, clicks = 0, set[str](), list[dict[str, Any]]()
    for event in map(json.loads, events.read_text().splitlines()):
        behind, highest = highest - event["ts"], max(highest, event["ts"])
        if behind <= 10_000 and event["event_id"] not in seen:
            seen.add(event["event_id"])
            clicks += [event] * (event["type"] == "click")
    paid: dict[tuple[int, int], int] = {}
    spent: dict[int, list[float]] = defaultdict(list)
    for event in sorted(clicks, key=lambda event: event["ts"]):
        click = (event["uid"], event["ad_id"])
        if event["ts"] >= paid.get(click, 0) + 600_000:
            paid[click] = event["ts"]
            spent[event["client_id"]].append(event["cost"])
    assert len(clicks) > sum(map(len, spent.values())) + 100
    return {client: (round(sum(costs), 4), len(costs)) for client, costs in spent.items()}
