"""``millwheel status`` on a run: a silent partition and a slow callback are named, with partition, key and line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from millwheel.core.model.keys import key_hash
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


def asked(run: Run, holds: Callable[[dict[str, Any]], bool], within_s: float = 60.0) -> dict[str, Any]:
    """What the command says, once ``holds`` is true of it."""
    command = [sys.executable, "-m", "millwheel", "status", str(run.root), "--json"]
    deadline_s, found = time.monotonic() + within_s, {}
    while time.monotonic() < deadline_s:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found = json.loads(done.stdout)
            if holds(found):
                return found
    raise AssertionError(f"not within {within_s:.0f} s: {found}\n{done.stderr}")


def test_a_slow_callback_and_a_silent_partition_are_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "slow.py").write_text(dedent(CODE))
    (tmp_path / "p.yaml").write_text(dedent(PIPELINE))
    go = tmp_path / "go"
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps({"page": "slow", "at": 1_000, "until": str(go)}) + "\n")
    (tmp_path / "in" / "b.jsonl").write_text("")
    run = Run(tmp_path / "p.yaml", tmp_path, more=("--log-format", "json")).start()
    try:
        [trouble] = [
            each
            for each in asked(run, lambda found: any("one step" in each for each in found["troubles"]))["troubles"]
            if "one step" in each
        ]
        assert "record of key 'slow' in calls-" in trouble
        assert trouble.endswith("in process_record")
        assert "slow.py:" in trouble
        go.touch()
        found = asked(run, lambda found: not any("one step" in each for each in found["troubles"]))
        held = {node["node"]: node["held_by"] for node in found["nodes"]}
        assert held["calls"]["node"] == held["sink.called"]["node"] == "source.hits"
        assert "b.jsonl" in held["calls"]["words"]
        assert any("b.jsonl" in each for each in found["troubles"])
    finally:
        run.end()
        run.wait()
    command = [sys.executable, "-m", "millwheel", "logs", str(run.root), "--computation", "calls", "--json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    [said] = [line for line in map(json.loads, lines) if line["message"] == "called"]
    assert (said["node"], said["key_hash"]) == ("calls", f"{key_hash('slow'):016x}")
    assert any("is restored" in line for line in lines)
