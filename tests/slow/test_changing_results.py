"""Sinks of results that change, in real processes that are killed: what stands in the end, and at
every moment."""

from __future__ import annotations

import json
import random
import textwrap
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.slow.runs import Run

pytestmark = pytest.mark.slow
S = 1_000_000
GAP = 10 * S
PIPELINE = """
    pipeline: sessions
    streams:
      clicks:
        source: {files: {path: "${input}", format: jsonl}}
        timestamp: {field: ts, unit: us}
        watermark: {max_delay: 5s}
    computations:
      sessions:
        input: {clicks: {key: user}}
        window: {session: 10s}
        aggregate: {clicks: count, worth: {sum: worth}}
        trigger: {after_watermark: {early: {repeat: {after_count: 1}}}}
        accumulation: retracting
        output: sessions
      copies:
        input: sessions
        map: {user: user, window_start: window_start, window_end: window_end, clicks: clicks,
          worth: worth}
        output: changes
      totals:
        input: {sessions: {key: user}}
        window: global
        aggregate: {sessions: count, worth: {sum: worth}}
        trigger: {repeat: {after_count: 1}}
        accumulation: accumulating
        output: totals
    sinks:
      sessions: {files: {path: "${output}/sessions", mode: upsert, flush: 200ms}}
      changes: {files: {path: "${output}/changes", mode: changelog}}
      totals: {files: {path: "${output}/totals", mode: upsert, by: user, format: csv}}
"""


def clicks(folder: Path, records: int) -> list[dict[str, Any]]:
    rng, at, made = random.Random(5), 0, []
    for _ in range(records):
        at += rng.randint(0, 20_000)
        made.append(
            {
                "user": f"u{rng.randrange(80)}",
                "worth": rng.randint(1, 9),
                "ts": at - rng.randint(0, 4 * S),
            }
        )
    (folder / "clicks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    return made


def sessions_of(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """(user, start, end, clicks, worth) of every session."""
    by_user: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        by_user[row["user"]].append((row["ts"], row["worth"]))
    found: Counter[tuple[Any, ...]] = Counter()
    for user, events in by_user.items():
        open_session: list[tuple[int, int]] = []
        for ts, worth in [*sorted(events), (2**62, 0)]:
            if open_session and ts >= open_session[-1][0] + GAP:
                start, end = open_session[0][0], open_session[-1][0] + GAP
                found[
                    user, start, end, len(open_session), sum(each for _, each in open_session)
                ] += 1
                open_session = []
            open_session.append((ts, worth))
    return found


def shown(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["user"], row["window_start"], row["window_end"], row["clicks"], row["worth"]


def test_killed_workers_leave_the_sessions_that_stand_and_a_reader_never_sees_one_twice(
    tmp_path: Path,
) -> None:
    (tmp_path / "pipeline.yaml").write_text(textwrap.dedent(PIPELINE))
    made = clicks(tmp_path, 200_000)
    out, twice, over = tmp_path / "out", [], threading.Event()

    def read() -> None:
        while not over.wait(0.02):
            indexes = Counter(
                (row["user"], row["window_start"], row["window_end"])
                for row in shown(out / "sessions")
            )
            twice.extend(index for index, count in indexes.items() if count > 1)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        params = {"input": str(tmp_path / "clicks.jsonl"), "output": str(out)}
        run = Run(tmp_path / "pipeline.yaml", tmp_path, params).start().until_reading()
        killed = run.kill_at_random(
            ("millwheel.engine.workers",), seed=3, times=4, pause_s=(0.05, 0.3)
        )
        run.wait()
    finally:
        over.set()
        reader.join()
    assert run.code == 0, run.said
    assert killed["millwheel.engine.workers"] >= 2, run.said
    assert run.summary["late"] == 0
    expected = sessions_of(made)
    assert Counter(map(identity, shown(out / "sessions"))) == expected
    assert twice == []
    changes: Counter[tuple[Any, ...]] = Counter()
    for row in shown(out / "changes"):
        changes[identity(row)] += 1 if row["change"] == "+" else -1
    assert +changes == expected
    assert not -changes
    worth: Counter[str] = Counter()
    for user, _, _, _, each in expected.elements():
        worth[user] += each
    lines = [
        line.split(",")
        for file in out.glob("totals/*.csv")
        for line in file.read_text().splitlines()
    ]
    heads = [line for line in lines if line[0] == "user"]
    index = heads[0].index("worth")
    assert {line[0]: int(line[index]) for line in lines if line[0] != "user"} == worth
