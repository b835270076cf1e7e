"""From files into a table while workers and the server are killed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.postgres import PASSWORD, Server
from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow

RECORDS, ADS, STEP_MS = 400_000, 50, 20


def test_each_count_stands_once_and_the_password_nowhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG", server.dsn)
    clicks = [{"ad_id": number * 7 % ADS, "ts": number * STEP_MS} for number in range(RECORDS)]
    for part in range(4):
        lines = "".join(json.dumps(click) + "\n" for click in clicks[part::4])
        (tmp_path / f"clicks-{part}.jsonl").write_text(lines)
    server.sql(
        "create table ctr (ad_id bigint, window_start timestamptz, clicks bigint, primary key"
        " (ad_id, window_start))"
    )
    run = Run(
        EXAMPLES / "postgres" / "clicks.yaml", tmp_path, {"input": str(tmp_path / "clicks-*.jsonl")}
    ).start()
    while not server.sql("select 1 from ctr limit 1"):
        assert run.process.poll() is None, "it ended before anything was written"
        time.sleep(0.02)
    assert (
        run.kill_at_random(("millwheel.engine.workers",), seed=1, times=1, pause_s=(0.0, 0.1))[
            "millwheel.engine.workers"
        ]
        == 1
    )
    server.kill()
    time.sleep(1)
    server.start()
    run.wait(240)
    assert run.code == 0, run.said
    rows = server.sql("select ad_id, extract(epoch from window_start)::bigint, clicks from ctr")
    found = {(ad, start): count for ad, start, count in rows}
    assert len(rows) == len(found)
    assert found == Counter((click["ad_id"], click["ts"] // 60_000 * 60) for click in clicks)
    assert PASSWORD not in run.said
    for folder, _, names in os.walk(run.root):
        for name in names:
            assert PASSWORD.encode() not in Path(folder, name).read_bytes(), (
                f"{folder}/{name} has the password"
            )


SALES = """
pipeline: sales
streams:
  people:
    source: {files: {path: "${input}/people-*.jsonl", format: jsonl}}
    timestamp: {field: at, unit: ms}
    watermark: {max_delay: 1h}
  orders:
    source: {files: {path: "${input}/orders-*.jsonl", format: jsonl}}
    timestamp: {field: at, unit: ms}
    watermark: {max_delay: 1h}
computations:
  both: {input: {orders: {key: person}, people: {key: id}}, join: left, output: both}
  known:
    input: both
    map: {region: people.region if people is not null else 'unknown', amount: orders.amount}
    output: known
  regions:
    input: {known: {key: region}}
    aggregate: {total: {sum: amount}, orders: count}
    accumulation: retracting
    output: regions
sinks:
  regions:
    postgres:
      dsn: "${secret:PG}"
      table: regions
      mode: upsert
      by: [region]
      create: {region: text, total: bigint, orders: bigint}
"""


def test_totals_behind_a_left_join_stand_whoever_dies(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PG", server.dsn)
    (tmp_path / "sales.yaml").write_text(SALES)
    people = {number: f"r{number * 7 % 9}" for number in range(2_000)}
    orders = [(number * 13 % 2_200, number % 100) for number in range(120_000)]
    for part in range(2):
        lines = [
            json.dumps({"id": number, "region": region, "at": number * 40})
            for number, region in list(people.items())[part::2]
        ]
        (tmp_path / f"people-{part}.jsonl").write_text("\n".join(lines) + "\n")
        lines = [
            json.dumps({"person": person, "amount": amount, "at": number})
            for number, (person, amount) in list(enumerate(orders))[part::2]
        ]
        (tmp_path / f"orders-{part}.jsonl").write_text("\n".join(lines) + "\n")
    run = Run(tmp_path / "sales.yaml", tmp_path, {"input": str(tmp_path)}).start()
    while not server.sql("select 1 from pg_tables where tablename = 'regions'"):
        assert run.process.poll() is None, "it ended before anything was written"
        time.sleep(0.02)
    killed = run.kill_at_random(("millwheel.engine.workers",), seed=2, times=2, pause_s=(0.2, 0.6))
    assert sum(killed.values()) > 0
    server.kill()
    time.sleep(1)
    server.start()
    run.wait(240)
    assert run.code == 0, run.said
    wanted: dict[str, tuple[int, int]] = {}
    for person, amount in orders:
        region = people.get(person, "unknown")
        total, count = wanted.get(region, (0, 0))
        wanted[region] = total + amount, count + 1
    rows = server.sql("select region, total, orders from regions")
    assert {region: (total, count) for region, total, count in rows} == wanted
