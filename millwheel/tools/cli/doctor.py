"""``millwheel doctor``: checks whether a machine can run pipelines, and shows how to fix it if it
cannot."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import msgspec
import psutil
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millwheel.adapters.spaces.probe import NEED_BYTES, probe
from millwheel.connect.built_in import connectors
from millwheel.control.roots.root import DEFAULT_FOLDER
from millwheel.errors import MillwheelError
from millwheel.launch.launchers.java import find_java
from millwheel.launch.launchers.spark.context import ask_executors
from millwheel.launch.launchers.spark.master import check_master
from millwheel.tools.cli.status import write_json

GOOD, NOTE, BAD = "ok", "note", "bad"
EXTRAS = {
    "spark": "pyspark",
    **{each.extra: each.library for each in connectors().values() if each.extra},
    "avro": "fastavro",
    "s3": "obstore",
}
_SYNCS = 40  # of a file, to measure how long one takes
_SYNC_BYTES = 4096  # of a small group of commits
_SLOW_SYNC_S = 0.01
"""Every commit waits for one sync: with more than this, latencies of milliseconds are out of
reach."""
_FILES = 4096  # open files: sockets to all workers, and the stores of large shards
_MEMORY_BYTES = 1 << 30  # for a driver, its services and two workers
_UNSYNCHRONIZED = 5  # Fixed: TIME_ERROR of adjtimex(2)
_CONNECT_S = 3.0  # for a server that is there to take a connection


class Diagnosis(msgspec.Struct, frozen=True):
    """One check. ``verdict`` is ok, note (it works, but look) or bad; ``words`` are the finding and
    the remedy."""

    check: str
    verdict: str
    words: str


def doctor(root: str, spark_master: str, zookeeper: str, as_json: bool, console: Console) -> int:
    """Print what was found; the exit code is 1 if anything is bad."""
    folder = root or DEFAULT_FOLDER
    diagnoses = list(findings(folder, spark_master, zookeeper))
    if as_json:
        write_json(diagnoses)
    else:
        console.print(_table(diagnoses))
    return int(any(each.verdict == BAD for each in diagnoses))


def findings(folder: str, spark_master: str = "", zookeeper: str = "") -> Iterator[Diagnosis]:
    """All checks, one after the other."""
    yield _python()
    yield _extras()
    yield java(bool(spark_master))
    yield _ports()
    yield _clock()
    yield _limits()
    yield permissions(folder)
    yield disk(folder)
    if zookeeper:
        yield reach(zookeeper)
    if spark_master:
        yield executors(spark_master, ask_executors)


def _table(diagnoses: list[Diagnosis]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for each in diagnoses:
        table.add_row(each.verdict, each.check, Text(each.words))
    return table


def _python() -> Diagnosis:
    words = (
        f"{sys.version.split()[0]} at {sys.executable}, millwheel-spark"
        f" {version('millwheel-spark')}"
    )
    return Diagnosis("Python", GOOD, words)


def _extras() -> Diagnosis:
    have = [extra for extra, module in EXTRAS.items() if find_spec(module) is not None]
    lack = [extra for extra in EXTRAS if extra not in have]
    hint = (
        f"; not installed: {', '.join(lack)} (pip install 'millwheel-spark[NAME]')" if lack else ""
    )
    return Diagnosis("extras", GOOD, f"{', '.join(have) or 'none'}{hint}")


def java(needed: bool) -> Diagnosis:
    """Java 17 or newer, without which there is no Spark."""
    try:
        return Diagnosis("Java", GOOD, find_java())
    except MillwheelError as error:
        words = (
            str(error) if needed else f"none; only Spark needs it, plain processes do not ({error})"
        )
        return Diagnosis("Java", BAD if needed else NOTE, words)


def _ports() -> Diagnosis:
    """A server on the loopback, and a client of it, as in every process of a run."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_CONNECT_S).close()
    except OSError as error:
        return Diagnosis("ports", BAD, f"processes cannot reach each other on 127.0.0.1: {error}")
    try:
        name = socket.gethostname()
        return Diagnosis("ports", GOOD, f"127.0.0.1 works; {name} is {socket.gethostbyname(name)}")
    except OSError as error:
        return Diagnosis(
            "ports",
            NOTE,
            f"127.0.0.1 works; other machines cannot find this one by its name: {error}",
        )


def _clock() -> Diagnosis:
    """Processing-time timers and idle sources use the wall clock of each machine."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        return Diagnosis(
            "clock", NOTE, "this system does not report whether its clock is synchronized"
        )
    if state == _UNSYNCHRONIZED:
        words = "not synchronized: run chrony or systemd-timesyncd, above all with several machines"
        return Diagnosis("clock", NOTE, words)
    return (
        Diagnosis("clock", GOOD, "synchronized")
        if state >= 0
        else Diagnosis("clock", NOTE, "it cannot be asked")
    )


def _limits() -> Diagnosis:
    files, memory = resource.getrlimit(resource.RLIMIT_NOFILE)[0], psutil.virtual_memory().available
    words = f"{os.cpu_count()} cores, {memory >> 20:,} MB of memory free, {files:,} open files"
    if files < _FILES:
        return Diagnosis("limits", NOTE, f"{words}: raise the last to {_FILES:,} (ulimit -n)")
    return Diagnosis("limits", GOOD if memory > _MEMORY_BYTES else NOTE, words)


def permissions(folder: str) -> Diagnosis:
    """Whether a root can be created there: files can be written and linked, and a name can be
    created only once."""
    first_new = _first_new(Path(folder).absolute())
    try:
        probe(folder, need_bytes=NEED_BYTES)
    except (MillwheelError, OSError) as error:
        return Diagnosis("permissions", BAD, str(error))
    finally:
        _remove_empty(Path(folder).absolute(), first_new)
    return Diagnosis(
        "permissions", GOOD, f"{folder} can be written, and keeps the promises a root rests on"
    )


def _first_new(path: Path) -> Path | None:
    """The topmost folder of the path that does not exist yet."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    return missing[-1] if missing else None


def _remove_empty(path: Path, first_new: Path | None) -> None:
    """Remove the folders that the check made."""
    for each in (path, *path.parents) if first_new is not None else ():
        if not each.is_dir() or any(each.iterdir()):
            return
        each.rmdir()
        if each == first_new:
            return


def disk(folder: str) -> Diagnosis:
    """The duration of a sync in the folder of the journals."""
    existing = next(
        each
        for each in (Path(folder).absolute(), *Path(folder).absolute().parents)
        if each.is_dir()
    )
    try:
        took_s = sorted(_sync_times(existing))
    except OSError as error:
        return Diagnosis("disk", BAD, f"{existing}: {error.strerror or error}")
    free = os.statvfs(existing)
    median_s, worst_s = took_s[len(took_s) // 2], took_s[-1]
    words = (
        f"a sync takes {median_s * 1000:.1f} ms, at worst {worst_s * 1000:.1f}; "
        f"{free.f_bavail * free.f_frsize >> 30:,} GB free at {existing}"
    )
    if median_s > _SLOW_SYNC_S:
        return Diagnosis(
            "disk",
            NOTE,
            f"{words}. Every commit waits for one: choose a faster disk for low latency",
        )
    return Diagnosis("disk", GOOD, words)


def _sync_times(folder: Path) -> Iterator[float]:
    data = os.urandom(_SYNC_BYTES)
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            began_s = time.monotonic()
            os.write(file.fileno(), data)
            os.fdatasync(file.fileno())
            yield time.monotonic() - began_s


def reach(address: str) -> Diagnosis:
    """Whether a server accepts connections at the first of these addresses."""
    host, _, port = address.partition("/")[0].partition(",")[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError) as error:
        return Diagnosis("ZooKeeper", BAD, f"nothing answers at {address}: {error}")
    return Diagnosis("ZooKeeper", GOOD, f"{host}:{port} takes connections")


AskExecutors = Callable[[str], list[tuple[str, str, str]]]
"""URL of a Spark master -> (machine, version of Python, modules that cannot be imported) of each
executor asked."""


def executors(master: str, ask: AskExecutors) -> Diagnosis:
    """The Python of the executors: its version must be ours, and it must have the modules that
    workers import."""
    try:
        if not master.startswith("local"):
            check_master(master)
        answers = ask(master)
    except Exception as error:  # the user must read any error of Spark
        text = str(error).strip() or repr(error)
        return Diagnosis("executors", BAD, f"{master}: {text.splitlines()[0]}")
    ours = ".".join(map(str, sys.version_info[:2]))
    for machine, theirs, missing in answers:
        if not theirs.startswith(f"{ours}."):
            words = (
                f"Python {theirs} on {machine}, {ours} here: set PYSPARK_PYTHON to the same version"
            )
            return Diagnosis("executors", BAD, words)
        if missing:
            return Diagnosis(
                "executors", BAD, f"{machine} lacks {missing}: install millwheel-spark there"
            )
    machines = sorted({machine for machine, _, _ in answers})
    return Diagnosis("executors", GOOD, f"Python {ours} with all packages on {', '.join(machines)}")
