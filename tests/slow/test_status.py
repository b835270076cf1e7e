"""``millwheel status`` on a run: a silent partition and a slow callback are named, with partition,
key and line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest

from millwheel.core.model.keys import key_hash
from tests.servers.programs import free_port
from tests.servers.redis import RedisServer
from tests.slow.runs import Run

pytestmark = pytest.mark.slow

PIPELINE = """
    pipeline: stuck
    streams:
      hits:
        source: {files: {path: "in/*.jsonl", format: jsonl, follow: true}}
        timestamp: {field: at, unit: s}
        watermark: {idle_after: never}
    computations:
      calls: {input: {hits: {key: page}}, callback: "slow:Slow", output: called}
    sinks:
      called: {files: {path: out/called, format: jsonl}}
"""
CODE = """
    import logging, os, time
    from millwheel import Computation

    class Slow(Computation):
        def process_record(self, ctx, record):
            logging.getLogger("mine").warning("called")
            while record.value["page"] == "slow" and not os.path.exists(record.value["until"]):
                time.sleep(0.05)
            ctx.produce("called", record.value)
"""


def asked(
    run: Run, holds: Callable[[dict[str, Any]], bool], within_s: float = 60.0
) -> dict[str, Any]:
    """What the command says, once ``holds`` is true of it."""
    command = [sys.executable, "-m", "millwheel", "status", str(run.root), "--json"]
    deadline_s, found = time.monotonic() + within_s, {}
    while time.monotonic() < deadline_s:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found = json.loads(done.stdout)
            if holds(found):
                return found
        time.sleep(0.3)
    raise AssertionError(f"not within {within_s:.0f} s: {found}\n{done.stderr}")


def page_shows(run: Run, port: int, words: str) -> bool:
    """Whether the page of the run gets to tell these words, among what stands still or beside a
    node."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        live = httpx.get(f"http://127.0.0.1:{port}/api/live", headers=run.bearer).json()
        if words in " ".join(
            [*live["troubles"], *(node["held"]["words"] for node in live["nodes"] if node["held"])]
        ):
            return True
        time.sleep(0.2)
    return False


def test_a_slow_callback_and_a_silent_partition_are_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "slow.py").write_text(dedent(CODE))
    (tmp_path / "p.yaml").write_text(dedent(PIPELINE))
    go = tmp_path / "go"
    (tmp_path / "in" / "a.jsonl").write_text(
        json.dumps({"page": "slow", "at": 1_000, "until": str(go)}) + "\n"
    )
    (tmp_path / "in" / "b.jsonl").write_text("")
    port = free_port()
    run = Run(
        tmp_path / "p.yaml", tmp_path, more=("--log-format", "json", "--ui", str(port))
    ).start()
    try:
        [trouble] = [
            each
            for each in asked(
                run, lambda found: any("one step" in each for each in found["troubles"])
            )["troubles"]
            if "one step" in each
        ]
        assert "record of key 'slow' in calls-" in trouble
        assert trouble.endswith("in process_record")
        assert "slow.py:" in trouble
        assert page_shows(run, port, "record of key 'slow' in calls-")
        go.touch()
        found = asked(run, lambda found: not any("one step" in each for each in found["troubles"]))
        held = {node["node"]: node["held_by"] for node in found["nodes"]}
        assert held["calls"]["node"] == held["sink.called"]["node"] == "source.hits"
        assert "b.jsonl" in held["calls"]["words"]
        assert any("b.jsonl" in each for each in found["troubles"])
        assert page_shows(run, port, "b.jsonl")
    finally:
        run.end()
        run.wait()
    command = [
        sys.executable,
        "-m",
        "millwheel",
        "logs",
        str(run.root),
        "--computation",
        "calls",
        "--json",
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    [said] = [line for line in map(json.loads, lines) if line["message"] == "called"]
    assert (said["node"], said["key_hash"]) == ("calls", f"{key_hash('slow'):016x}")
    assert any("is restored" in line for line in lines)


WAITING = """
    pipeline: waiting
    streams:
      ticks: {source: {generator: {rate: 300, start: "2026-11-23T10:00:00Z"}}}
      hits: {source: {files: {path: "in/*.jsonl", format: jsonl}}, timestamp: {field: at, unit: us}}
    computations:
      chained: {input: {hits: {key: page}}, callback: "chain:Chain", output: called}
    sinks:
      called: {files: {path: out/called, format: jsonl}}
      ticks: {redis: {url: "${url}", key: "tick:{key}", kind: string}}
"""
CHAIN = """
    import os, time
    from millwheel import Computation, ValueState

    class Chain(Computation):
        until = ValueState(str)

        def process_record(self, ctx, record):
            self.until.set(record.value["until"])
            ctx.set_timer("tick", record.timestamp + 1)

        def process_timer(self, ctx, timer):
            time.sleep(0.001)
            if not os.path.exists(self.until.get()):
                ctx.set_timer("tick", timer.at + 1)
"""


def test_a_timer_that_falls_behind_and_a_sink_that_is_away_are_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "chain.py").write_text(dedent(CHAIN))
    (tmp_path / "p.yaml").write_text(dedent(WAITING))
    go = tmp_path / "go"
    # when the generator begins
    record = {"page": "p", "at": 1_795_428_000_000_000, "until": str(go)}
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "redis").mkdir()
    target = RedisServer(tmp_path / "redis")
    target.start()
    port = free_port()
    run = Run(
        tmp_path / "p.yaml", tmp_path, params={"url": target.url}, more=("--ui", str(port))
    ).start()

    def held_by(found: dict[str, Any], node: str, words: str) -> bool:
        held = {each["node"]: each["held_by"] for each in found["nodes"]}
        return held.get(node) is not None and words in held[node]["words"]

    try:
        found = asked(
            run,
            lambda found: held_by(found, "chained", "timer 'tick' of key 'p' at 2026-11-23 10:00:"),
        )
        assert held_by(found, "sink.called", "timer 'tick'")
        assert page_shows(run, port, "timer 'tick' of key 'p' at 2026-11-23 10:00:")
        go.touch()
        asked(run, lambda found: found["nodes"][2]["state"] == "drained")
        target.kill()
        # Where the sink was about to write, its client waits; where it had committed, what it has
        # not published does.
        away = asked(run, lambda found: any("onnect" in each for each in found["troubles"]))
        trouble = next(each for each in away["troubles"] if "onnect" in each)
        if "not yet published: " in trouble:
            assert trouble.startswith("sink.ticks ")
            assert "held by sink.ticks-" in trouble
            assert held_by(away, "sink.ticks", "not yet published: ")
        else:
            assert trouble.startswith("Redis at 127.0.0.1:")
        assert page_shows(run, port, "onnect")
        target.start()
        asked(run, lambda found: not any("onnect" in each for each in found["troubles"]))
    finally:
        run.end()
        run.wait()
        target.kill()
