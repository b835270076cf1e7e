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
