"""Into Redis while a worker is killed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.servers.redis import RedisServer
from tests.slow.runs import EXAMPLES, Run

pytestmark = pytest.mark.slow

RECORDS, ADS, STEP_MS = 300_000, 50, 20


def test_each_key_has_the_count_of_its_last_minute(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    redis_server.client().flushall()
    clicks = [{"ad_id": number * 7 % ADS, "ts": number * STEP_MS} for number in range(RECORDS)]
    (tmp_path / "clicks.jsonl").write_text("".join(json.dumps(click) + "\n" for click in clicks))
    params = {"input": str(tmp_path / "clicks.jsonl"), "url": redis_server.url}
    run = Run(EXAMPLES / "redis" / "ctr.yaml", tmp_path, params).start()
    until = time.monotonic() + 90
    while not redis_server.client().exists("ctr:0"):
        assert run.process.poll() is None, "the run was over before anything was seen"
        assert time.monotonic() < until
        time.sleep(0.01)
    run.processes("millwheel.engine.workers")[0].kill()
    run.wait(180)
    assert run.code == 0, run.said
    assert run.summary["restarts"], "the kill came too late"
    last_ms = clicks[-1]["ts"] // 60_000 * 60_000
    expected: dict[int, tuple[int, int]] = {}
    for click in clicks:
        start_ms = click["ts"] // 60_000 * 60_000
        known_ms, count = expected.get(click["ad_id"], (start_ms, 0))
        expected[click["ad_id"]] = (start_ms, count + 1 if known_ms == start_ms else 1)
    reader = redis_server.client()
    for ad, (start_ms, count) in expected.items():
        row = reader.hgetall(f"ctr:{ad}")
        assert (int(row["window_start"]), int(row["clicks"])) == (start_ms * 1000, count)
        assert 0 < reader.ttl(f"ctr:{ad}") <= 86_400
    assert {start_ms for start_ms, _ in expected.values()} == {last_ms}
