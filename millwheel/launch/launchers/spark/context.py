"""From a run's settings to its Spark context: the environment, the JVM, and the reason when there
is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millwheel.errors import SetupError
from millwheel.launch.launchers.java import find_java, java_environment
from millwheel.launch.launchers.spark.class_archive import archive_settings
from millwheel.launch.launchers.spark.settings import LIGHT_JVM, SparkSettings, open_to_all

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

_OF_ANOTHER_PROGRAM = (
    *("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH"),
    *(
        "SPARK_REMOTE",
        "SPARK_LOCAL_REMOTE",
        "SPARK_CONNECT_MODE_ENABLED",
        "SPARK_CONNECT_MODE",
        "SPARK_API_MODE",
    ),
)
"""Variables that spark-submit, a shell, a notebook or Spark Connect set for the session of a
program. A run has a Spark application of its own, beside that session."""
_JVM_GRACE_S = 20.0  # for the JVM to end in order; then it is killed
_SLOW_S = 8.0  # a start of Spark that takes longer is announced
_CAUSE = re.compile(r"(?:[\w.$]+\.)?\w*(?:Exception|Error)\b.*")
_LOG_BYTES = 1 << 16  # of the end of Spark's log, where the reason of a failure is looked for


Announce = Callable[[str], None]


def connected(settings: SparkSettings, announce: Announce) -> SparkContext:
    """The Spark context of this run. ``announce`` gets a sentence when it takes long: YARN answers
    only once it has room.

    Raises SetupError when Spark is not installed or cannot be reached."""
    try:
        from pyspark import SparkConf, SparkContext
    except ImportError as error:
        raise SetupError(
            "Spark is not installed: pip install 'millwheel-spark[spark]', or run without"
            " --launcher spark"
        ) from error
    if not settings.submitted:
        return _launched(settings, announce)
    SparkContext._ensure_initialized()
    conf = SparkConf().setAll(list(settings.configuration().items())).setAppName(settings.app_name)
    _warn(conf, settings, announce)
    with _announced_if_slow(
        f"Spark on {conf.get('spark.master')} has not started the application yet", announce
    ):
        return SparkContext(conf=_placed(conf, settings))


def _launched(settings: SparkSettings, announce: Announce) -> SparkContext:
    """With a JVM of our own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    jars = installed_jars()
    prepare_environment(settings, os.environ)
    configuration = settings.configuration()
    if settings.local:
        configuration |= archive_settings(jars, configuration, settings.archive)
    conf = SparkConf(loadDefaults=False).setAll(list(configuration.items()))
    conf.setAppName(settings.app_name).setMaster(settings.url)
    log = Path(settings.log)
    began = log.stat().st_size if log.exists() else 0
    slow = f"Spark on {settings.url} has not started the application yet; {log} has its output"
    try:
        # Spark logs a lot about every death that is not an error.
        with log.open("ab") as file, _announced_if_slow(slow, announce):
            streams = {"stdout": file, "stderr": file, "start_new_session": True}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
            conf = SparkConf(_jvm=gateway.jvm)  # with the settings in Spark's own files
            _warn(conf, settings, announce)
            conf.setAll(list(settings.hidden().items()))
            return SparkContext(conf=_placed(conf, settings), gateway=gateway)
    except SetupError:
        raise
    except Exception as error:  # Spark's own errors come in many types, over py4j
        why = reason(str(error), _log_end(log, began))
        raise SetupError(f"Spark did not start on {settings.url}: {why}; see {log}") from error


def _warn(conf: SparkConf, settings: SparkSettings, announce: Announce) -> None:
    """Warn of a Spark that is not ours and open to all. Raises SetupError."""
    if not settings.local and (warning := open_to_all(conf.get, settings.secured)):
        announce(warning)


def _placed(conf: SparkConf, settings: SparkSettings) -> SparkConf:
    """Add settings for the placement of workers, unless they are set."""
    placement = settings.placement(conf.get, conf.get("spark.master") or settings.url)
    return conf.setAll(list(placement.items()))


@contextmanager
def _announced_if_slow(sentence: str, announce: Announce) -> Iterator[None]:
    """Announce the sentence if the body takes long."""
    timer = threading.Timer(_SLOW_S, announce, (sentence,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def end_gateway(context: SparkContext, grace_s: float = _JVM_GRACE_S) -> None:
    """End the JVM that we have started for the context: pyspark keeps it until Python ends."""
    gateway = context._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return  # spark-submit's own JVM, which started us
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    context.__class__._gateway = None
    context.__class__._jvm = None


def prepare_environment(settings: SparkSettings, environment: MutableMapping[str, str]) -> None:
    """Make ``environment`` that of a Spark application of this run's own."""
    for name in _OF_ANOTHER_PROGRAM:
        environment.pop(name, None)
    environment.update(java_environment(find_java()))
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.local:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        environment["SPARK_HOME"] = spark_home(Path(settings.scratch) / "spark-home")


def spark_home(folder: Path) -> str:
    """A Spark home of links to the installed one: a local cluster writes its ``work`` folder there,
    not into the installed package."""
    installed = _installed_spark()
    if installed == folder:
        return str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in installed.iterdir():
        link = folder / entry.name
        if entry.name not in ("work", "logs") and not link.is_symlink():
            link.symlink_to(entry)
    return str(folder)


def installed_jars() -> Path:
    """Where the jars of the installed Spark lie."""
    return (_installed_spark() / "jars").resolve()


def _installed_spark() -> Path:
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def reason(error: str, log: str = "") -> str:
    """Why Spark did not start, in its own words: the innermost cause of an error of the JVM, else
    what the JVM has logged. py4j's first line only names the call."""
    for text in (error, log):
        lines = [line.strip() for line in text.splitlines() if not line.strip().startswith("at ")]
        causes = [line.removeprefix("Caused by: ").removeprefix(": ") for line in lines]
        if messages := [
            cause for cause in causes if _CAUSE.match(cause) and "py4j.protocol" not in cause
        ]:
            return messages[-1][:500]
    lines = [line.strip() for line in (log or error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it gave no reason"


def _log_end(log: Path, begin: int) -> str:
    """The end of the log that the JVM has written since its file had this size."""
    try:
        with log.open("rb") as file:
            file.seek(max(begin, log.stat().st_size - _LOG_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def ask_executors(master: str) -> list[tuple[str, str, str]]:
    """(machine, version of Python, modules of ours that cannot be imported) for each slot of the
    executors of a Spark. This package need not be there."""
    from pyspark.sql import SparkSession

    def look(_: int) -> tuple[str, str, str]:
        import importlib.util
        import platform
        import socket

        lacks = [
            name
            for name in ("grpc", "msgspec", "rocksdict", "polars")
            if importlib.util.find_spec(name) is None
        ]
        return socket.gethostname(), platform.python_version(), ", ".join(lacks)

    os.environ.update(java_environment(find_java()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # as a run does
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.defaultJavaOptions": LIGHT_JVM,
    }
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    try:
        slots = session.sparkContext.defaultParallelism
        answers: list[tuple[str, str, str]] = (
            session.sparkContext.parallelize(range(slots), slots).map(look).collect()
        )
        return answers
    finally:
        session.stop()
