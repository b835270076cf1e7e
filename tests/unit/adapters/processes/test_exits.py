from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from millwheel.adapters.processes.exits import memory_kills, summary_line


def test_a_process_that_leaves_has_written_all_and_ends_at_once_with_its_code() -> None:
    code = (
        "import atexit, sys, threading; from millwheel.adapters.processes.exits import leave; "
        "atexit.register(print, 'took itself apart'); "
        "threading.Thread(target=threading.Event().wait).start(); "
        "print('out'); sys.stderr.write('err'); leave(64)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (64, "out\n", "err")


TRACEBACK = """2026-11-27 01:00:00,000 ERROR worker of slot 0 ends
Traceback (most recent call last):
  File "/p/millwheel/engine/workers/__main__.py", line 100, in _run
    process.run()
OSError: [Errno 28] No space left on device
"""
CRASH = """2026-11-27 01:00:00,000 INFO joined
Fatal Python error: Segmentation fault

Current thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/p/bad.py", line 7 in process_record

Extension modules: numpy.core._multiarray_umath, msgspec._core (total: 2)
"""


def test_the_exception_of_python_is_told() -> None:
    assert summary_line(TRACEBACK) == "OSError: [Errno 28] No space left on device"


def test_a_native_crash_is_told_with_the_innermost_line() -> None:
    assert summary_line(CRASH) == "Segmentation fault at bad.py:7 in process_record"


def test_otherwise_the_last_line_is_told_and_nothing_of_an_empty_log() -> None:
    assert summary_line("worker: fenced\nworker: the root is gone\n") == "worker: the root is gone"
    assert summary_line("") == ""


def test_kills_of_the_machine_and_of_all_groups_around_are_counted(tmp_path: Path) -> None:
    own, machine, mounted = tmp_path / "cgroup", tmp_path / "vmstat", tmp_path / "fs"
    (mounted / "a" / "b").mkdir(parents=True)
    own.write_text("0::/a/b\n")
    machine.write_text("nr_free_pages 5\noom_kill 1\n")
    (mounted / "a" / "memory.events").write_text("low 0\noom 9\noom_kill 2\noom_group_kill 0\n")
    (mounted / "a" / "b" / "memory.events").write_text("oom_kill 4\n")
    assert memory_kills(mounted, own, machine) == 7


def test_the_older_hierarchy_counts_too_and_what_is_missing_counts_nothing(tmp_path: Path) -> None:
    own, mounted = tmp_path / "cgroup", tmp_path / "fs"
    (mounted / "memory" / "a").mkdir(parents=True)
    own.write_text("9:cpu:/a\n4:memory:/a\n")
    (mounted / "memory" / "a" / "memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    )
    assert memory_kills(mounted, own, tmp_path / "none") == 3
    assert memory_kills(mounted, tmp_path / "none", tmp_path / "none") == 0
