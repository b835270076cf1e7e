"""The driver coordinates a run on one machine. It may be suspended, and killed with all that it
knows."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.slow.runs import Run

pytestmark = [pytest.mark.slow, pytest.mark.alone]  # no worker may be slow enough to count as dead

PIPELINE = """
pipeline: counting
streams:
  hits: {source: {files: {path: "${input}", format: jsonl, follow: true}}, timestamp: at}
computations:
  sums: {input: {hits: {key: k}}, callback: "sums:Sums", output: sums}
sinks:
  sums: {files: {path: "${output}/sums"}}
"""
SUMS = """
from millwheel import Computation, ValueState


class Sums(Computation):
    sum = ValueState(int)

    def process_record(self, ctx, record):
        self.sum.set((self.sum.get() or 0) + 1)
        ctx.produce("sums", {"k": ctx.key, "n": self.sum.get()})
"""
KEYS, PER_STAGE = 20, 400


def write(events: Path, stage: int) -> None:
    """More records behind those that are there."""
    with events.open("a") as file:
        for number in range(stage * PER_STAGE, (stage + 1) * PER_STAGE):
            file.write(json.dumps({"at": number, "k": f"k{number % KEYS}"}) + "\n")


def rows(folder: Path) -> list[tuple[str, int]]:
    texts = [path.read_text() for path in (folder / "out" / "sums").glob("*.jsonl")]
    return sorted(
        (row["k"], row["n"]) for text in texts for row in map(json.loads, text.splitlines())
    )


def until_rows(folder: Path, stages: int, run: Run) -> None:
    deadline_s = time.monotonic() + 60
    while len(rows(folder)) < stages * PER_STAGE:
        assert time.monotonic() < deadline_s, f"{len(rows(folder))} rows"
        assert run.process.poll() is None, run.wait().said
        time.sleep(0.02)


def tokens(root: Path) -> dict[str, int]:
    """The lease token of each shard, as the coordinator has stored it."""
    from millwheel.control.coordinator.store import CoordinatorStore
    from millwheel.core.model.range_table import RangeTable

    store = CoordinatorStore(root / "coordinator.db")
    try:
        tables = [RangeTable.decode(table.data, table.version) for table in store.tables()]
    finally:
        store.close()
    return {entry.shard: entry.token for table in tables for entry in table.shards}


def test_a_driver_that_is_suspended_or_killed_changes_nothing_and_a_run_on_its_root_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "sums.py").write_text(SUMS)
    events = tmp_path / "hits.jsonl"
    write(events, 0)
    params = {"input": str(events), "output": str(tmp_path / "out")}
    first = Run(tmp_path / "p.yaml", tmp_path, params).start()
    until_rows(tmp_path, 1, first)
    workers = {each.pid for each in first.processes("millwheel.engine.workers")}
    # and with it the coordinator: longer than a worker's session lives
    first.process.send_signal(signal.SIGSTOP)
    write(events, 1)
    until_rows(tmp_path, 2, first)
    time.sleep(2.5)
    first.process.send_signal(signal.SIGCONT)
    write(events, 2)
    until_rows(tmp_path, 3, first)
    assert {each.pid for each in first.processes("millwheel.engine.workers")} == workers, (
        "a worker was replaced"
    )
    children = psutil.Process(first.process.pid).children(recursive=True)
    before = tokens(first.root)
    first.process.kill()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive, "processes outlive their driver"
    first.wait()
    write(events, 3)
    second = Run(tmp_path / "p.yaml", tmp_path, params).start()
    until_rows(tmp_path, 4, second)
    second.process.send_signal(signal.SIGINT)
    assert second.wait().code == 0, second.said
    after = tokens(second.root)
    assert before.keys() <= after.keys()
    assert all(after[shard] > token for shard, token in before.items()), "a lease was given twice"
    assert rows(tmp_path) == sorted(
        (f"k{key}", n + 1) for key in range(KEYS) for n in range(4 * PER_STAGE // KEYS)
    )
