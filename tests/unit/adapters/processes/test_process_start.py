"""Every process of ours begins in the same way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[4] / "millwheel"
OTHERS = {
    "__main__.py": "calls the command line",
    "tools/chaos/namespaced_worker.py": "becomes a worker",
    "launch/launchers/warm_parent.py": "becomes the module that it is asked for",
    "adapters/processes/lifeline.py": "becomes the module that it is asked for",
}
"""Modules that are executed and do not begin a process themselves."""


def test_files_are_private_and_the_soft_limit_of_files_is_the_hard_one() -> None:
    code = (
        "import os, resource\n"
        "from millwheel.adapters.processes.process_start import begin_process\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))\n"
        "begin_process()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.umask(0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1024", str(0o077)]


def test_every_module_that_is_executed_begins_its_process() -> None:
    executed = {
        path.relative_to(PACKAGE).as_posix(): text
        for path in PACKAGE.rglob("*.py")
        if '__name__ == "__main__"' in (text := path.read_text(encoding="utf-8"))
    }
    assert OTHERS.keys() <= executed.keys()
    assert [
        name
        for name, text in executed.items()
        if name not in OTHERS and "    begin_process(" not in text
    ] == []
