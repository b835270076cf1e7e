"""Workers are killed under chains, and under window joins that fire again: the results are those
without kills."""

from __future__ import annotations

import json
import random
import signal
import textwrap
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from millwheel.launch.certificates import make_set
from tests.slow.runs import Run, rows_of
from tests.slow.test_run import ads, ads_events, assert_right

pytestmark = pytest.mark.slow

CHAINS = """
    pipeline: chains
    streams:
      hits:
        source: {files: {path: "${input}/*.jsonl", format: jsonl}}
        timestamp: {field: ts, unit: ms}
    computations:
      read:
        input: {hits: {key: user}}
        map: {user: user, n: n, twice: n * 2, ts: ts}
        output: read
      kept: {input: read, filter: "n % 3 != 0", output: kept}
      priced: {input: kept, map: {user: user, n: n, share: 1000 / (n % 50)}, output: priced}
      split:
        input: kept
        branch: {even: "n % 2 == 0", odd: otherwise}
      minutes:
        input: {kept: {key: user}}
        window: {tumbling: 1m}
        aggregate: {n: count, twice: {sum: twice}}
        output: minutes
    sinks:
      priced: {files: {path: "${output}/priced", flush: 100ms}}
      even: {files: {path: "${output}/even", flush: 100ms}}
      odd: {files: {path: "${output}/odd", flush: 100ms}}
      minutes: {files: {path: "${output}/minutes"}}
      dead_letters: {files: {path: "${output}/dead"}}
"""
JOINS = """
    pipeline: joins
    streams:
      orders:
        source: {files: {path: "${input}/orders.jsonl", format: jsonl}}
        timestamp: {field: ts, unit: ms}
        watermark: {max_delay: 100ms}
      prices:
        source: {files: {path: "${input}/prices.jsonl", format: jsonl}}
        timestamp: {field: ts, unit: ms}
        watermark: {max_delay: 100ms}
    computations:
      both:
        input: {orders: {key: item}, prices: {key: item}}
        window: {tumbling: 1s}
        join: outer
        trigger: {after_watermark: {early: {repeat: {after_count: 3}}, late: {after_count: 1}}}
        allowed_lateness: 1h
        output: both
    sinks:
      both: {files: {path: "${output}/both", mode: changelog, flush: 100ms}}
"""
ENGINE = "millwheel.engine.workers"
USERS, ITEMS = 40, 20


def written(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def killed(tmp_path: Path, pipeline: str, seed: int) -> Run:
    """A run to its end, of which workers were killed."""
    (tmp_path / "pipeline.yaml").write_text(textwrap.dedent(pipeline))
    params = {"input": str(tmp_path), "output": str(tmp_path / "out")}
    run = Run(tmp_path / "pipeline.yaml", tmp_path, params).start().until_reading()
    kills = run.kill_at_random((ENGINE,), seed=seed, times=4, pause_s=(0.1, 0.6))
    run.wait()
    assert run.code == 0, run.said
    assert kills[ENGINE] >= 2, run.said
    return run


def test_each_record_of_a_chain_counts_once_though_workers_are_killed(tmp_path: Path) -> None:
    made = [
        row
        for part in range(4)
        for row in written(
            tmp_path / f"hits-{part}.jsonl",
            [
                {"user": f"u{n % USERS}", "n": n, "ts": 1_000_000 + n * 20}
                for n in range(part, 240_000, 4)
            ],
        )
    ]
    run = killed(tmp_path, CHAINS, seed=3)
    out, kept = tmp_path / "out", [row for row in made if row["n"] % 3]
    priced = {row["n"]: row["share"] for row in rows_of(out / "priced")}
    assert len(rows_of(out / "priced")) == len(priced)
    assert priced == {row["n"]: 1000 / (row["n"] % 50) for row in kept if row["n"] % 50}
    dead = [letter["value"]["n"] for letter in rows_of(out / "dead")]
    assert sorted(dead) == [row["n"] for row in sorted(kept, key=by_n) if row["n"] % 50 == 0]
    for stream, rest in ("even", 0), ("odd", 1):
        found = sorted(row["n"] for row in rows_of(out / stream))
        assert found == sorted(row["n"] for row in kept if row["n"] % 2 == rest), stream
    minutes = Counter((row["user"], row["ts"] // 60_000) for row in kept)
    found_minutes = {
        (row["user"], row["window_start"] // 60_000_000): row["n"]
        for row in rows_of(out / "minutes")
    }
    assert found_minutes == minutes
    assert run.summary["records_in"] == len(made)
    assert run.summary["dead_letters"] == len(dead)


def by_n(row: dict[str, Any]) -> int:
    return row["n"]


def test_what_stands_of_a_join_that_fires_again_is_as_without_kills(tmp_path: Path) -> None:
    rng = random.Random(8)
    given = {}
    for name in ("orders", "prices"):
        rows = [
            # some come after their window has closed
            {"item": f"i{rng.randrange(ITEMS)}", "ts": n * 20 + rng.randint(0, 3_000), name: n}
            for n in range(30_000)
        ]
        given[name] = written(tmp_path / f"{name}.jsonl", rows)
    killed(tmp_path, JOINS, seed=4)
    standing: Counter[str] = Counter()
    changes = rows_of(tmp_path / "out" / "both")
    for row in changes:
        sign = 1 if row.pop("change") == "+" else -1
        standing[json.dumps(row, sort_keys=True)] += sign
    assert +standing == Counter(joined(given["orders"], given["prices"]))
    assert min(standing.values()) >= 0
    assert len(changes) > sum(standing.values()), "no window has fired again"


def joined(orders: list[dict[str, Any]], prices: list[dict[str, Any]]) -> list[str]:
    """Every row of the join."""
    windows: dict[tuple[str, int], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((orders, prices)):
        for row in rows:
            windows[row["item"], row["ts"] // 1000][side].append(row)
    found = []
    for (item, second), (left, right) in windows.items():
        bounds = {"window_start": second * 1_000_000, "window_end": (second + 1) * 1_000_000}
        for order in left or [None]:
            for price in right or [None]:
                row = {"item": item, **bounds, "orders": order, "prices": price}
                found.append(json.dumps(row, sort_keys=True))
    return found


@pytest.mark.parametrize("launcher", ["processes", pytest.param("spark", marks=pytest.mark.long)])
def test_a_secured_run_survives_the_death_of_a_worker(tmp_path: Path, launcher: str) -> None:
    folder = make_set(str(tmp_path / "security"))
    events = ads_events(tmp_path, 400_000)
    run = (
        ads(tmp_path, events, launcher, "--security", str(folder))
        .start()
        .until_reading(timeout_s=90)
    )
    killed = run.kill_at_random(("millwheel.engine.workers",), seed=3, times=2, pause_s=(0.05, 0.3))
    assert_right(run.wait(), events)
    assert killed["millwheel.engine.workers"] > 0


@pytest.mark.parametrize("launcher", ["processes", pytest.param("spark", marks=pytest.mark.long)])
def test_workers_that_are_paused_for_ever_are_replaced_and_no_process_is_left(
    tmp_path: Path, launcher: str
) -> None:
    events = ads_events(tmp_path, 300_000)
    run = ads(tmp_path, events, launcher).start().until_reading(timeout_s=90)
    paused = run.processes("millwheel.engine.workers")
    assert len(paused) == 2
    for worker in paused:
        worker.send_signal(signal.SIGSTOP)  # nobody goes on unless they are replaced
    family = psutil.Process(run.process.pid).children(recursive=True)
    assert_right(run.wait(), events)
    assert "has been declared dead, but it still runs" in run.said
    assert not [process for process in [*paused, *family] if lives(process)]


def lives(process: psutil.Process) -> bool:
    """True unless it has ended. One that has, and whose new parent has not looked yet, is a
    zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
