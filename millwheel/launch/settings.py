"""The settings of a run: the command line as a frozen value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from millwheel.adapters.processes.address import AUTO, LOOPBACK
from millwheel.adapters.processes.logs import LogFormat
from millwheel.control.roots.root import DEFAULT_FOLDER
from millwheel.errors import SetupError
from millwheel.launch.auto_spares import FIRST
from millwheel.launch.launchers.base import WORKER_MODULE

SparesNumber = int | Literal["auto"]


class LauncherKind(str, Enum):
    """Where workers run: inside Spark executors, or as plain processes of this machine."""

    SPARK = "spark"
    PROCESSES = "processes"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """``spares`` is their number, or "auto": as many as the hosts ask for. ``root`` "" is
    ``.millwheel/<pipeline>`` below the current folder, ``zookeeper`` "" the coordinator that fits
    the launcher, ``spark_master`` "" executors on this machine. ``conf`` has further settings of
    Spark. ``submitted`` is True when spark-submit has chosen the master. ``summary`` names a file
    that gets the summary as JSON. ``listen`` is the address that all processes serve on,
    ``security`` the folder with certificates and token ("": a token in the root, allowed only on
    the loopback; with ``open`` not even that), ``secrets`` the one with the values of
    ``${secret:NAME}`` ("": the environment has them). With ``balance`` shards are moved, split and
    merged by their measured load. With ``until_caught_up`` the run ends once it has processed the
    input that existed when it began. ``metrics_port`` is where the driver serves the metrics of all
    processes (0: a free port), ``metrics_listen`` the address of that port ("": that of
    ``listen``). ``log_format`` is how master, injector and workers write their logs. ``query_port``
    is where the first worker answers queries (None: no worker does; 0: a free port). ``ui_port`` is
    the port of the page (None: no page). With ``verbose`` the progress has a line for each node.
    ``from_savepoint`` is the folder of the savepoint that a new root begins with. ``fresh`` removes
    the contents of the root, and its results. ``group`` may read the root ("": only its user).
    """

    pipeline: str
    params: Mapping[str, str] = field(default_factory=dict)
    workers: int = 2
    spares: SparesNumber = 0
    launcher: LauncherKind = LauncherKind.SPARK
    spark_master: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    submitted: bool = False
    root: str = ""
    zookeeper: str = ""
    summary: str = ""
    listen: str = LOOPBACK
    security: str = ""
    open: bool = False
    secrets: str = ""
    from_savepoint: str = ""
    fresh: bool = False
    group: str = ""
    worker_module: str = WORKER_MODULE
    balance: bool = True
    until_caught_up: bool = False
    metrics_port: int = 0
    metrics_listen: str = ""
    log_format: LogFormat = LogFormat.TEXT
    query_port: int | None = None
    ui_port: int | None = None
    verbose: bool = False

    @property
    def slots(self) -> range:
        """The slots of workers and spares that a run begins with."""
        return range(self.workers + self.first_spares)

    @property
    def first_spares(self) -> int:
        """The spares that a run begins with."""
        return FIRST if self.spares == "auto" else self.spares

    @property
    def room(self) -> int:
        """The most workers and spares without another number of workers."""
        return 2 * self.workers if self.spares == "auto" else len(self.slots)

    @property
    def own_spark(self) -> bool:
        """Whether workers run in a Spark of this run's own, with a core for each slot."""
        local = not self.submitted and (
            not self.spark_master or self.spark_master.startswith("local")
        )
        return self.launcher is LauncherKind.SPARK and local

    @property
    def far(self) -> bool:
        """Whether workers may run on other machines."""
        return self.launcher is LauncherKind.SPARK and not self.own_spark

    @property
    def ui_host(self) -> str:
        """The address of this machine at which the page is served."""
        return LOOPBACK if self.listen == AUTO else self.listen

    def root_address(self, pipeline: str) -> str:
        """The requested root, or the default root of the pipeline."""
        return self.root or f"{DEFAULT_FOLDER}/{pipeline}"


def launcher_for(kind: LauncherKind | None, spark_master: str) -> LauncherKind:
    """The default of ``--launcher``: Spark if a Spark master is named, else plain processes, which
    need no Java."""
    return kind or (LauncherKind.SPARK if spark_master else LauncherKind.PROCESSES)


def parse_spares(text: str) -> SparesNumber:
    """``--spares`` as a number, or "auto". Raises SetupError for anything else."""
    if text == "auto":
        return "auto"
    if not text.isdecimal():
        raise SetupError(f"--spares {text}: it is a number, or `auto`")
    return int(text)


def parse_sets(pairs: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` pairs as a mapping. Raises SetupError that names a malformed pair."""
    return _pairs("--set", "NAME", pairs)


def parse_confs(pairs: Sequence[str]) -> dict[str, str]:
    """The settings of Spark, as :func:`parse_sets`."""
    return _pairs("--conf", "spark.NAME", pairs)


def _pairs(option: str, placeholder: str, pairs: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SetupError(f"{option} {pair}: write it as {option} {placeholder}=VALUE")
        values[name.strip()] = value
    return values
