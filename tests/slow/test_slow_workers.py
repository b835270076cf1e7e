"""Balance by measured load on machines that differ, or come to: the results are those of equal
ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.slow.runs import Run
from tests.slow.test_ranges import CALLBACK, PIPELINE, ROW, Tool, check_results
from tests.slow.test_status import asked

pytestmark = [pytest.mark.slow, pytest.mark.alone]

BUSY = (
    CALLBACK
    + """
import time

class Busy(Counting):
    def process_record(self, ctx, record):
        ends = time.perf_counter() + 0.0002
        while time.perf_counter() < ends:
            pass
        super().process_record(ctx, record)
"""
)
OF_ITS_MACHINE = """
import os, sys, threading

if "millwheel.launch.launchers.warm_parent" in sys.orig_argv:
    # So workers are executed, not forked.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if "millwheel.engine.workers" in sys.orig_argv:
    slot = sys.orig_argv[sys.orig_argv.index("--slot") + 1]
    os.environ["MILLWHEEL_WEIGHT"] = "3" if slot == "0" else "1"
"""
"""The environment of the machine on which a worker starts: that of slot 0 has three times as much
of everything."""


ON_TWO_HOSTS = """
import os, sys, threading

if "millwheel.launch.launchers.warm_parent" in sys.orig_argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if "millwheel.engine.workers" in sys.orig_argv:
    os.environ["MILLWHEEL_HOST"] = "host" + sys.orig_argv[sys.orig_argv.index("--slot") + 1]
"""
"""Each worker is on a machine of its own, as it says."""
LIMIT_MB = 2048
BALLAST = """
import sys
held = bytearray(int(sys.argv[1]) << 20)
held[::4096] = b"x" * len(held[::4096])
print(flush=True)
sys.stdin.read()
"""
"""Holds this much of the memory of its container."""


def busy_run(folder: Path, path: tuple[str, ...] = ()) -> Run:
    """Two workers, and eight shards whose callback takes its time."""
    text = PIPELINE.replace("counting:Counting", "busy:Busy\n    shards: 8").replace(
        "keys: 40", "keys: 4000"
    )
    (folder / "ranges.yaml").write_text(text)
    (folder / "busy.py").write_text(BUSY)
    out = {"out": str(folder / "out")}
    return Run(folder / "ranges.yaml", folder, out, path=path).start().until_reading()


def held(tool: Tool, slot: int) -> int:
    """How many shards of the computation the worker of a slot has."""
    owners = Counter(
        row[3].partition("-")[0] for row in tool.shards("counting") if len(row) == len(ROW)
    )
    return owners[f"w{slot}"]


def everything(tool: Tool) -> tuple[set[str], set[str]]:
    """The shards of the workers of both slots, whatever their node."""
    rows = [row for row in tool.shards("") if len(row) == len(ROW)]
    held_by = [{row[0] for row in rows if row[3].startswith(f"w{slot}-")} for slot in (0, 1)]
    return held_by[0], held_by[1]


def of_slot(run: Run, slot: int) -> psutil.Process:
    """The process of a worker."""
    found = [
        each
        for each in run.processes("millwheel.engine.workers")
        if f"--slot {slot}" in " ".join(each.cmdline())
    ]
    assert len(found) == 1
    return found[0]


@contextmanager
def slowed(process: psutil.Process) -> Iterator[None]:
    """A process that runs for a quarter of the time."""
    over = threading.Event()

    def halt() -> None:
        while not over.is_set():
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.03)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    thread = threading.Thread(target=halt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def memory_group() -> Iterator[Path]:
    """A memory group of the kernel, with a limit. Who is in it at the end goes back to the group
    around it."""
    folder = Path(f"/sys/fs/cgroup/memory/millwheel-full-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory group can be made here: {error}")
    (folder / "memory.limit_in_bytes").write_text(str(LIMIT_MB << 20))
    try:
        yield folder
    finally:
        for left in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(left)
        folder.rmdir()


@contextmanager
def container(holding_mb: int) -> Iterator[Path]:
    """A memory group in which a process holds this much."""
    with memory_group() as group:
        command = [
            sys.executable,
            "-c",
            f"import sys; sys.stdin.readline()\n{BALLAST}",
            str(holding_mb),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ballast:
            assert ballast.stdin is not None
            assert ballast.stdout is not None
            (group / "cgroup.procs").write_text(str(ballast.pid))
            ballast.stdin.write(b"\n")
            ballast.stdin.flush()
            ballast.stdout.readline()
            try:
                yield group
            finally:
                ballast.kill()


def slowness(slot: int) -> Any:
    """What ``millwheel status`` says of a worker: that it is slow."""

    def holds(standing: dict[str, Any]) -> bool:
        return any(
            worker["slot"] == slot and worker["slowness"] > 1.5 for worker in standing["workers"]
        )

    return holds


def test_a_worker_that_becomes_slow_loses_shards_and_is_never_declared_dead(tmp_path: Path) -> None:
    run = busy_run(tmp_path)
    tool = Tool(run)
    tool.until("shards are even", lambda: held(tool, 0) == held(tool, 1) == 4)
    time.sleep(12)  # until both have been there for as long as it takes to be judged
    names = {row[3] for row in tool.shards("counting")}
    with slowed(of_slot(run, 1)):
        began_s = time.monotonic()
        standing = asked(run, slowness(1))
        print(f"known after {time.monotonic() - began_s:.1f} s: {standing['troubles']}")
        tool.until("it has lost a shard", lambda: held(tool, 1) < 4)
        print(f"the first shard has moved after {(passed_s := time.monotonic() - began_s):.1f} s")
        assert passed_s < 8, "5 s, and what a machine that is not alone adds"
        tool.until("it has lost another", lambda: held(tool, 1) < 3)
        print(f"the second after {time.monotonic() - began_s:.1f} s")
    assert any("times as long as the others" in trouble for trouble in standing["troubles"])
    asked(run, lambda found: not slowness(1)(found))
    assert {row[3] for row in tool.shards("")} <= names, "the same incarnations all the time"
    check_results(run)
    assert "declared dead" not in run.said


def test_a_worker_whose_container_is_full_hands_a_shard_to_another_host(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(ON_TWO_HOSTS)
    with container(LIMIT_MB * 96 // 100) as group:
        run = busy_run(tmp_path, path=(str(tmp_path / "site"),))
        tool = Tool(run)
        tool.until("shards are even", lambda: held(tool, 0) == held(tool, 1) == 4)
        before = everything(tool)
        (group / "cgroup.procs").write_text(str(of_slot(run, 1).pid))
        tool.until("a shard moves to where memory is", lambda: everything(tool)[0] > before[0])
        workers = {
            each["slot"]: each
            for each in asked(run, lambda found: len(found["workers"]) == 2)["workers"]
        }
        assert workers[1]["memory"] > 0.95 > workers[0]["memory"]
        check_results(run)


def test_balance_keeps_the_proportions_of_machines_that_state_their_weights(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OF_ITS_MACHINE)
    run = busy_run(tmp_path, path=(str(tmp_path / "site"),))
    tool = Tool(run)
    tool.until("shards are dealt by weight", lambda: (held(tool, 0), held(tool, 1)) == (6, 2))
    weights = {
        worker["slot"]: worker["weight"]
        for worker in asked(run, lambda found: len(found["workers"]) == 2)["workers"]
    }
    assert weights == {0: 3, 1: 1}
    with slowed(of_slot(run, 0)):  # it has not three times as much: it has less
        tool.until("the weak one takes some", lambda: held(tool, 1) > 2)
    check_results(run)
