"""Workers inside Spark executors: one long-running job with a single task per slot.

The job of a slot is submitted by a thread of its own, which waits for the job's end. Spark is configured to give up a
failed task at once (``spark.task.maxFailures=1``), and the supervisor submits a new job. So one place detects, counts
and handles deaths, and Spark never runs two attempts of a slot.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millwheel.errors import SetupError
from millwheel.launch.launchers import spark_daemon
from millwheel.launch.launchers.base import WorkerExit, WorkerTemplate
from millwheel.launch.launchers.executor_orders import orders_at
from millwheel.launch.launchers.java import find_java, java_environment
from millwheel.launch.launchers.task import SlotTask

if TYPE_CHECKING:
    from pyspark import SparkContext

_EXECUTOR_MEMORY_MB = 1024  # of an executor of `local-cluster`, which has no data
# The JVMs only carry Python: the better compiler and the concurrent collector cost half of their start for nothing. To
# verify Spark's own classes, which come from one package, takes half a second of it.
LIGHT_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_JVM_GRACE_S = 20.0  # for the JVM to end in order; then it is killed
_PYTHON_ERROR = re.compile(r"\w+Error: ")
_LOST = re.compile(r"ExecutorLostFailure|crashed|EOFException|exited unexpectedly|TaskKilled|killed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``master`` is "" for the embedded cluster, or a Spark master URL; ``submitted`` when spark-submit set it.

    ``scratch`` is a folder of this run for the files of an embedded cluster (logs of executors, blocks), and ``log``
    the file for Spark's log on the driver.
    """

    master: str
    slots: int
    app_name: str
    scratch: str
    log: str
    submitted: bool = False

    @property
    def local(self) -> bool:
        """Whether all of Spark runs on this machine and belongs to this run."""
        return not self.submitted and (not self.master or self.master.startswith("local"))

    @property
    def url(self) -> str:
        """The master to connect to. The default is a cluster of real executor processes on this machine."""
        return self.master or f"local-cluster[{self.slots},1,{_EXECUTOR_MEMORY_MB}]"

    def configuration(self) -> dict[str, str]:
        """The settings that the jobs of a run need. Explicit settings of the user's submission override ``soft``
        ones."""
        conf = {
            "spark.python.worker.reuse": "false",  # threads and locks of one task must not meet the next
            "spark.task.maxFailures": "1",
            "spark.speculation": "false",
            "spark.dynamicAllocation.enabled": "false",
            "spark.scheduler.mode": "FIFO",
            "spark.ui.showConsoleProgress": "false",
            "spark.excludeOnFailure.enabled": "false",
        }
        if self.local:
            conf |= {
                "spark.driver.defaultJavaOptions": LIGHT_JVM,
                "spark.executor.defaultJavaOptions": LIGHT_JVM,
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.local.dir": str(Path(self.scratch) / "blocks"),
                "spark.executor.memory": f"{_EXECUTOR_MEMORY_MB // 2}m",
                "spark.deploy.maxExecutorRetries": "-1",
                "spark.python.daemon.module": spark_daemon.MODULE,
            }
        return conf


class SparkLauncher:
    """The `spark` launcher. Construct it on the thread that will live as long as the run."""

    def __init__(self, template: WorkerTemplate, settings: SparkSettings, orders: str) -> None:
        self._template = template
        self._orders_path = orders
        self._orders = orders_at(orders)
        self._orders.forget()
        self._ended: queue.SimpleQueue[WorkerExit] = queue.SimpleQueue()
        self._jobs: dict[int, threading.Thread] = {}
        self._context = _connect(settings)

    def start(self, slot: int) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        job = threading.Thread(target=self._run_job, args=(slot,), daemon=True, name=f"spark-slot-{slot}")
        self._jobs[slot] = job
        job.start()

    def exits(self) -> list[WorkerExit]:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        return [self._ended.get_nowait() for _ in range(self._ended.qsize())]

    def kill(self, slot: int, pid: int) -> bool:
        """See :class:`.base.Launcher`. The task of the slot compares the process and ends it."""
        self._orders.kill(slot, pid)
        return True

    def stop(self, grace_s: float) -> None:
        """See :class:`millwheel.launch.launchers.base.Launcher`."""
        self._orders.stop()
        deadline_s = time.monotonic() + grace_s
        for job in self._jobs.values():
            job.join(max(0.0, deadline_s - time.monotonic()))
        self._context.stop()
        _end_gateway(self._context)
        self._orders.forget()

    def _run_job(self, slot: int) -> None:
        started_s = time.monotonic()
        try:
            code, words = self._submit(slot)
        except Exception as error:  # Spark's own errors come in many types, over py4j
            code, words = failure(str(error))
        self._ended.put(WorkerExit(slot, code, time.monotonic() - started_s, words))

    def _submit(self, slot: int) -> tuple[int, str]:
        task = SlotTask(slot, self._template, self._orders_path)
        name = f"{self._template.pipeline}: worker {slot}"
        self._context.setLocalProperty("spark.job.description", name)
        rows: list[tuple[int, str]] = self._context.parallelize([slot], 1).mapPartitions(task).collect()
        return rows[0]


def failure(text: str) -> tuple[int, str]:
    """The exit of a job without an exit code: its task or executor was killed, or Spark could not run the job."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if _PYTHON_ERROR.match(line)] or [line for line in lines if "Job aborted" in line]
    return (-signal.SIGKILL if _LOST.search(text) else 1), telling[-1] if telling else text.strip()[-500:]


def _connect(settings: SparkSettings) -> SparkContext:
    """The Spark context of this run. Raises SetupError when Spark is not installed or cannot be reached."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        raise SetupError(
            "Spark is not installed: pip install 'millwheel-spark[spark]', or run without --launcher spark"
        ) from error
    _prepare_environment(settings)
    conf = SparkConf().setAppName(settings.app_name).setAll(list(settings.configuration().items()))
    if settings.submitted:
        return SparkContext(conf=conf)
    conf.setMaster(settings.url)
    try:
        with open(settings.log, "ab") as log:  # Spark has much to say about every death that is none of an error
            streams = {"stdout": log, "stderr": log, "start_new_session": True}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
            return SparkContext(conf=conf, gateway=gateway)
    except Exception as error:  # Spark's own errors come in many types, over py4j
        raise SetupError(f"Spark did not start on {settings.url}: {_first_line(error)}; see {settings.log}") from error


def _end_gateway(context: SparkContext) -> None:
    """End the JVM that we have started for the context: pyspark keeps it until Python ends."""
    gateway = context._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return  # spark-submit's own JVM, which started us
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(_JVM_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    context.__class__._gateway = None
    context.__class__._jvm = None


def _prepare_environment(settings: SparkSettings) -> None:
    if settings.submitted:
        return
    os.environ.update(java_environment(find_java()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["SPARK_HOME"] = spark_home(Path(settings.scratch) / "spark-home")


def spark_home(folder: Path) -> str:
    """A Spark home of links to the installed one: a local cluster writes its ``work`` folder there, not into
    the installed package."""
    import pyspark

    installed = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    if installed == folder:
        return str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in installed.iterdir():
        link = folder / entry.name
        if entry.name not in ("work", "logs") and not link.is_symlink():
            link.symlink_to(entry)
    return str(folder)


def _first_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def ask_executors(master: str) -> list[tuple[str, str, str]]:
    """(machine, version of Python, modules of ours that cannot be imported) for each slot of the executors of a Spark.
    It has no need of this package there."""
    from pyspark.sql import SparkSession

    def look(_: int) -> tuple[str, str, str]:
        import importlib.util
        import platform
        import socket

        lacks = [name for name in ("grpc", "msgspec", "rocksdict", "polars") if importlib.util.find_spec(name) is None]
        return socket.gethostname(), platform.python_version(), ", ".join(lacks)

    os.environ.update(java_environment(find_java()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # as a run does
    settings = {"spark.ui.enabled": "false", "spark.driver.defaultJavaOptions": LIGHT_JVM}
    session = SparkSession.builder.master(master).config(map={**settings}).getOrCreate()
    try:
        slots = session.sparkContext.defaultParallelism
        answers: list[tuple[str, str, str]] = session.sparkContext.parallelize(range(slots), slots).map(look).collect()
        return answers
    finally:
        session.stop()
