"""The code inside a Spark task: it starts one worker as a child process and waits for it.

A Spark task is forked from a daemon that has loaded pyspark, so it must not touch grpc, kazoo or
rocksdict itself: it executes the worker as a new process, or has it forked by the warm parent of
its daemon (``spark/daemon.py``). The task is a thin parent: the worker ends with the task, and the
task ends when its own parent, the Spark daemon, is gone. Without this it would run for ever. The
driver's orders arrive through the shared root, wherever the task runs.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millwheel.adapters.processes.child import Child, Living, fresh_scratch
from millwheel.launch.launchers.base import WorkerTemplate
from millwheel.launch.launchers.executor_orders import Orders, orders_at
from millwheel.launch.launchers.spark.daemon import inherited, task_environment
from millwheel.launch.launchers.warm_children import ChildSpec

_POLL_S = 0.05  # between looks whether the worker has ended or is to stop
_STOP_GRACE_S = 8.0  # for a worker to end in order, less than the driver gives the task


@dataclass(frozen=True, slots=True)
class SlotTask:
    """The work of one task: the worker of ``slot``, until it ends or is ordered to (see
    :func:`orders_at`)."""

    slot: int
    template: WorkerTemplate
    orders: str

    def __call__(self, _partition: Iterable[int]) -> Iterator[tuple[int, str, bytes, bool]]:
        """Run the worker; yields its exit code, its last words, and its :class:`.Remains`. Called
        by Spark, on the task's main thread."""
        # the daemon ignores it, and then no exit code is kept
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        scratch = fresh_scratch(self.template.scratch or _local_folder(), self.slot)
        log = _folder_of_logs(self.template.logs) / f"worker-{self.slot}"
        spec = ChildSpec(
            self.template.module, self.template.arguments(self.slot, scratch), log, scratch
        )
        environment = task_environment()
        warm = inherited(environment)
        child = Child(spec.command, log, environment, scratch) if warm is None else warm.start(spec)
        code = _watch(child, orders_at(self.orders), self.slot)
        remains = child.remains()
        yield code, child.last_words(), remains.doing, remains.lacked_memory


def _watch(child: Living, orders: Orders, slot: int) -> int:
    """Wait for the child's end; stop it or kill it when the driver orders that."""
    parent = os.getppid()
    look_s, deadline_s = 0.0, 0.0
    while (code := child.wait(_POLL_S)) is None:
        if os.getppid() != parent:
            child.kill()
            os.kill(os.getpid(), signal.SIGKILL)  # no process is left to report to
        now_s = time.monotonic()
        if now_s < look_s:
            continue
        look_s = now_s + orders.look_s
        stop, kill = orders.read(slot, child.pid)
        if not deadline_s and stop:
            child.terminate()
            deadline_s = now_s + _STOP_GRACE_S
        if (deadline_s and now_s > deadline_s) or kill:
            child.kill()
    return code


def _folder_of_logs(path: str) -> Path:
    """The folder that the run names, else one of this user alone."""
    base = _local_folder()
    if not path and not base:
        # others may write where temporary files lie
        return Path(tempfile.mkdtemp(prefix="millwheel-logs-"))
    folder = Path(path or f"{base}/logs")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _local_folder() -> str:
    """Where Spark lets this executor keep files: the first of its local directories, "" when it
    names none."""
    for name in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        folders = os.environ.get(name, "").replace(os.pathsep, ",").split(",")
        if folders[0]:
            return folders[0]
    return ""
