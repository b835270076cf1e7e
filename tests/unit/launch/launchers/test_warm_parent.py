"""Workers are forked by a warm parent; what launchers promise of them is in test_processes.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from millwheel.adapters.processes.interpreter import module_command
from millwheel.adapters.processes.libraries import worker_environment
from millwheel.adapters.processes.supervisor import ProcessEnded
from millwheel.launch.launchers.processes import ProcessLauncher
from millwheel.launch.launchers.warm_children import Children
from millwheel.launch.services import Services
from tests.unit.launch.helpers import eventually, lives, template
from tests.unit.launch.launchers.test_processes import exits

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere workers are executed"
)


def runs(pid: int) -> bool:
    """Orphans may wait to be reaped by whoever is the first process here."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def started(launcher: ProcessLauncher, tmp_path: Path, slot: int = 0) -> psutil.Process:
    before = len(lives(tmp_path, slot))
    launcher.start(slot)
    eventually(lambda: len(lives(tmp_path, slot)) > before)
    return psutil.Process(launcher.pids()[slot])


def test_what_a_worker_needs_is_loaded_without_a_second_thread() -> None:
    code = "from millwheel.launch.launchers import warm_parent as warm; warm.load(); "
    code += "print(repr(warm.why_not()), {'polars', 'pyarrow'} & sys.modules.keys() or 'neither')"
    told = subprocess.run(
        [sys.executable, "-c", "import sys; " + code],
        env=worker_environment(),
        capture_output=True,
        text=True,
    )
    assert (told.stdout.split(), told.stderr) == (["''", "neither"], "")


def test_a_worker_is_a_child_of_one_parent_and_seen_under_its_own_command_line(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    first, second = started(launcher, tmp_path, 0), started(launcher, tmp_path, 1)
    parent = first.parent()
    assert parent is not None
    assert parent == second.parent()
    for slot, worker in enumerate((first, second)):
        line = worker.cmdline()
        expected = module_command("stand_in_worker", ("--root", str(tmp_path)))
        assert line[: len(expected)] == expected
        assert line[line.index("--slot") + 1] == str(slot)
        assert not "".join(line[line.index("--listen") + 2 :])
        assert os.getsid(worker.pid) == worker.pid
    assert "stand_in_worker" not in " ".join(parent.cmdline())
    launcher.stop(10.0)
    assert not any(map(psutil.pid_exists, (first.pid, second.pid)))


def test_whoever_closes_it_leaves_neither_processes_nor_files(tmp_path: Path, module: str) -> None:
    with Children() as children:
        launcher = ProcessLauncher(template(tmp_path, module), children.start)
        worker = started(launcher, tmp_path)
        parent = worker.parent()
        assert parent is not None
        (folder,) = {
            Path(file.path).parent for file in parent.open_files() if file.path.endswith("warm.log")
        }
    eventually(lambda: not runs(parent.pid) and not runs(worker.pid))
    assert not folder.exists()


def test_services_are_forked_as_workers_are(tmp_path: Path, module: str) -> None:
    """With ``python -m`` they would load for half a second what the parent has loaded already."""
    (tmp_path / "logs").mkdir()
    with Children() as children:
        services = Services(tmp_path / "logs", children.start)
        services.start("master", module, ["--root", str(tmp_path), "--slot", "0", "--scratch", ""])
        eventually(lambda: lives(tmp_path, 0))
        (pid,) = lives(tmp_path, 0)
        assert services.pids() == {"master": pid}
        parent = psutil.Process(pid).parent()
        assert parent is not None
        assert "warm" in " ".join(parent.cmdline())
        os.kill(pid, signal.SIGKILL)
        ended: list[ProcessEnded] = []
        eventually(lambda: ended.extend(services.ended()) or ended)
        assert [(each.name, each.code) for each in ended] == [("master", -signal.SIGKILL)]


def test_workers_die_with_their_parent_and_the_next_ones_have_another(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    first, second = started(launcher, tmp_path, 0), started(launcher, tmp_path, 1)
    parent = first.parent()
    assert parent is not None
    parent.kill()
    found = [*exits(launcher)]
    eventually(lambda: found.extend(launcher.exits()) or len(found) == 2)
    assert {gone.code for gone in found} == {-signal.SIGKILL}
    eventually(lambda: not runs(first.pid) and not runs(second.pid))
    assert not list((tmp_path / "scratch").iterdir())
    again = started(launcher, tmp_path, 0)
    assert again.parent() != parent


def test_the_parent_and_its_workers_die_with_the_driver(tmp_path: Path, module: str) -> None:
    code = "\n".join(
        (
            "import sys, time; from pathlib import Path",
            "from millwheel.launch.launchers.processes import ProcessLauncher",
            "from millwheel.launch.launchers.warm_children import Children",
            "from tests.unit.launch.helpers import template",
            (
                "children = Children(); kept = ProcessLauncher(template(Path(sys.argv[1]),"
                " sys.argv[2]), children.start)"
            ),
            "kept.start(0); time.sleep(600)",
        )
    )
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), module])
    eventually(lambda: lives(tmp_path, 0))
    (pid,) = lives(tmp_path, 0)
    parent = psutil.Process(pid).parent()
    assert parent is not None
    driver.kill()
    driver.wait()
    eventually(lambda: not runs(pid) and not runs(parent.pid))
