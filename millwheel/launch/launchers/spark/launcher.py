"""Workers inside Spark executors: one long-running job with a single task per slot.

The job of a slot is submitted by a thread of its own, which waits for the job's end. Spark is
configured to give up a failed task at once (``spark.task.maxFailures=1``), and the supervisor
submits a new job. So one place detects, counts and handles deaths, and Spark never runs two
attempts of a slot. A worker waits until Spark has given its job a core.
"""

from __future__ import annotations

import queue
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millwheel.adapters.processes.child import Remains
from millwheel.launch.launchers.base import WorkerExit, WorkerTemplate
from millwheel.launch.launchers.executor_orders import orders_at
from millwheel.launch.launchers.spark.context import connected, end_gateway
from millwheel.launch.launchers.spark.settings import SparkSettings, most_workers
from millwheel.launch.launchers.spark.task import SlotTask

if TYPE_CHECKING:
    from pyspark import SparkContext


_PYTHON_ERROR = re.compile(r"\w+Error: ")
_LOST = re.compile(
    r"ExecutorLostFailure|crashed|EOFException|exited unexpectedly|TaskKilled|killed", re.IGNORECASE
)


class SparkLauncher:
    """The `spark` launcher. Construct it on the thread that will live as long as the run."""

    def __init__(
        self,
        template: WorkerTemplate,
        settings: SparkSettings,
        orders: str,
        announce: Callable[[str], None] = print,
    ) -> None:
        self._template = template
        self._orders_path = orders
        self._orders = orders_at(orders)
        self._orders.forget()
        self._ended: queue.SimpleQueue[WorkerExit] = queue.SimpleQueue()
        self._jobs: dict[int, threading.Thread] = {}
        self._context = connected(settings, announce)
        conf = self._context.getConf()
        master = self._context.master or settings.url
        self.most = settings.slots if settings.local else most_workers(conf.get, master)
        self._cores = Cores(self._context, master)

    def start(self, slot: int) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        job = threading.Thread(
            target=self._run_job, args=(slot,), daemon=True, name=f"spark-slot-{slot}"
        )
        self._jobs[slot] = job
        job.start()

    def exits(self) -> list[WorkerExit]:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        return [self._ended.get_nowait() for _ in range(self._ended.qsize())]

    def kill(self, slot: int, pid: int) -> bool:
        """See :class:`.base.Launcher`. The task of the slot compares the process and ends it."""
        self._orders.kill(slot, pid)
        return True

    def lacks(self) -> str:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        return self._cores.missing(sum(job.is_alive() for job in self._jobs.values()))

    def stop(self, grace_s: float) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        self._orders.stop()
        deadline_s = time.monotonic() + grace_s
        for job in self._jobs.values():
            job.join(max(0.0, deadline_s - time.monotonic()))
        self._context.stop()
        end_gateway(self._context)
        self._orders.forget()

    def _run_job(self, slot: int) -> None:
        started_s = time.monotonic()
        try:
            code, words, doing, lacked_memory = self._submit(slot)
            remains = Remains(doing, lacked_memory)
        except Exception as error:  # Spark's own errors come in many types, over py4j
            (code, words), remains = failure(str(error)), Remains()
        self._ended.put(WorkerExit(slot, code, time.monotonic() - started_s, words, remains))

    def _submit(self, slot: int) -> tuple[int, str, bytes, bool]:
        task = SlotTask(slot, self._template, self._orders_path)
        name = f"{self._template.pipeline}: worker {slot}"
        self._context.setLocalProperty("spark.job.description", name)
        rows: list[tuple[int, str, bytes, bool]] = (
            self._context.parallelize([slot], 1).mapPartitions(task).collect()
        )
        return rows[0]


def failure(text: str) -> tuple[int, str]:
    """The exit of a job without an exit code: its task or executor was killed, or Spark could not
    run the job."""
    lines = [line.strip() for line in text.splitlines()]
    reasons = [line for line in lines if _PYTHON_ERROR.match(line)] or [
        line for line in lines if "Job aborted" in line
    ]
    return (-signal.SIGKILL if _LOST.search(text) else 1), reasons[-1] if reasons else text.strip()[
        -500:
    ]


class Cores:
    """The tasks of one application, which are its workers. Asked now and then, on any thread."""

    def __init__(self, context: SparkContext, master: str) -> None:
        self._context = context
        self._master = master

    def missing(self, workers: int) -> str:
        """The workers that have no core yet, and why, of so many that have been started; "" when
        all have one."""
        try:
            running, executors = self._running(), self._executors()
        except Exception:  # an application that is ending; its jobs report that
            return ""
        return (
            waiting(running, workers, executors, self._master, self._demand())
            if running < workers
            else ""
        )

    def _running(self) -> int:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    def _executors(self) -> int:
        """The registered executors, without the driver, which Spark counts among them."""
        tracker: Any = self._context._jsc.sc().statusTracker()
        return max(len(tracker.getExecutorInfos()) - 1, 0)

    def _demand(self) -> str:
        conf = self._context.getConf()
        cores, memory = (
            conf.get("spark.executor.cores", "1"),
            conf.get("spark.executor.memory", "1g"),
        )
        return f"{cores} core{'s' if cores != '1' else ''} and {memory} of memory"


def waiting(running: int, workers: int, executors: int, master: str, demand: str) -> str:
    """The sentence for ``running`` of ``workers`` workers that have a core."""
    sentence = f"Spark has given {running} of {workers} workers a core"
    if executors >= workers:
        return f"{sentence}: its {executors} executors have not begun their tasks yet"
    if executors > running:
        return f"{sentence}; it has started {executors} executors so far"
    return (
        f"{sentence}: no machine of {master} has {demand} free for another executor. Other"
        " applications may hold them, or spark.cores.max may be less than the workers need"
    )
