"""``python -m millwheel.launch.launchers.spark.daemon``: Spark's own daemon of Python tasks, with a
warm parent beside it, from which tasks have their workers forked (``warm_parent.py``).

The warm parent is executed before the daemon does anything, and never forked from it. Tasks inherit
the end of a line to it. A new worker of a slot, after a kill, need not load the modules of every
worker. The parent dies with the daemon.

Only a Spark that belongs to a run is started with this daemon. On other Sparks tasks execute their
workers.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from millwheel.adapters.processes.interpreter import begin_process, module_path
from millwheel.adapters.processes.libraries import worker_environment
from millwheel.launch.launchers.warm_children import WarmLine, warm_parent
from millwheel.launch.launchers.warm_messages import SHARED, line, passed_line

MODULE = "millwheel.launch.launchers.spark.daemon"
_LINE = "MILLWHEEL_WARM_LINE"
"""The variable with the file descriptor of the daemon's end, which tasks inherit."""


def main() -> None:
    """Go on as Spark's daemon."""
    begin_process()
    begin(task_environment())
    for name in ("pyspark.worker", "millwheel.launch.launchers.spark.task"):
        # modules of each task: neither starts a thread, and tasks are forked
        importlib.import_module(name)
    from pyspark.daemon import manager

    manager()


def begin(environment: Mapping[str, str]) -> None:
    """Start the warm parent of this process and of its forks, where the system lets processes
    fork."""
    if not sys.platform.startswith("linux"):
        return
    ours, theirs = line()
    # In a folder of its own, since others may put files and links into that for temporary files.
    with theirs, tempfile.TemporaryDirectory(prefix="millwheel-") as folder:
        # It goes on writing when the folder is gone. Workers have logs of their own.
        warm_parent(theirs, Path(folder) / "warm", environment, SHARED)
    os.environ[_LINE] = str(ours.detach())


def inherited(environment: Mapping[str, str]) -> WarmLine | None:
    """A line of this process to the warm parent of its daemon; None when there is none."""
    number = os.environ.get(_LINE, "")
    try:
        return WarmLine(passed_line(int(number)), environment) if number else None
    except OSError:
        return None


def task_environment() -> dict[str, str]:
    """Our environment with the module path of this process, so that a package shipped with
    ``--py-files`` is found."""
    here = os.pathsep.join(os.path.abspath(path) for path in module_path() if path)
    return worker_environment({**os.environ, "PYTHONPATH": here})


if __name__ == "__main__":
    main()
