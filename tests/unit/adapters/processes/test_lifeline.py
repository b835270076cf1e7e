from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from millwheel.adapters.processes import lifeline
from tests.unit.launch.helpers import eventually

PARENT = """
import subprocess, sys, time
from millwheel.adapters.processes.lifeline import child_environment, mortal
child = [sys.executable, "-c", "import time; time.sleep(600)"]
code = "import time; from millwheel.adapters.processes.lifeline import *; die_with_parent();
  time.sleep(600)"
ours = [sys.executable, "-c", code]
started = [subprocess.Popen(c, env=child_environment(),
  start_new_session=True) for c in (mortal(child), ours)]
time.sleep(0.5)
print(*(p.pid for p in started), flush=True)
time.sleep(600)
"""


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_children_die_when_their_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = [int(pid) for pid in parent.stdout.readline().split()]
    eventually(lambda: all("-c" in " ".join(psutil.Process(pid).cmdline()) for pid in children))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: all(gone(pid) for pid in children), 60)


def test_a_child_whose_parent_died_before_it_could_ask_dies_at_once() -> None:
    code = (
        "from millwheel.adapters.processes.lifeline import die_with_parent; die_with_parent();"
        " print('alive')"
    )
    environment = {**os.environ, lifeline.PARENT: "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""


def test_where_the_kernel_cannot_a_thread_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys, time; from millwheel.adapters.processes import lifeline; lifeline._ask_kernel"
        " = lambda: False;lifeline.die_with_parent(); print('ready', flush=True); time.sleep(600)"
    )
    script = (
        "import subprocess, sys; from millwheel.adapters.processes.lifeline import"
        f" child_environment;p = subprocess.Popen([sys.executable, '-c', {code!r}],"
        " env=child_environment(), stdout=subprocess.PIPE);p.stdout.readline(); print(p.pid,"
        " flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    eventually(lambda: gone(child), 60)


def test_a_process_started_by_hand_has_no_parent_to_die_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(lifeline.PARENT, raising=False)
    lifeline.die_with_parent()


def test_a_grandchild_does_not_take_the_grandparent_for_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(lifeline.PARENT, str(os.getppid()))
    monkeypatch.setattr(lifeline, "_ask_kernel", lambda: True)
    lifeline.die_with_parent()
    assert lifeline.PARENT not in os.environ
    assert lifeline.child_environment({"A": "b"}) == {"A": "b", lifeline.PARENT: str(os.getpid())}
