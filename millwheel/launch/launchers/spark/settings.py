"""The settings of Spark: required by a run, requested by it, and the user's (``--conf``)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millwheel.errors import SetupError
from millwheel.launch.launchers.spark import daemon

_EXECUTOR_MEMORY_MB = 1024  # of an executor of `local-cluster`, which has no data
# The JVMs only carry Python: the better compiler and the concurrent collector cost half of their
# start for nothing. To verify Spark's own classes, which come from one package, takes half a second
# of it.
LIGHT_JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+IgnoreUnrecognizedVMOptions"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_REQUIRED = {
    "spark.python.worker.reuse": "false",  # threads and locks of one task must not meet the next
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.scheduler.mode": "FIFO",
    "spark.ui.showConsoleProgress": "false",
    "spark.excludeOnFailure.enabled": "false",
}
_PAGES = "org.apache.spark.ui.JWSFilter"
_PAGE_KEY = f"spark.{_PAGES}.param.secretKey"
_CLOSED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.master.rest.enabled": "false",
    # the pages of its master and workers require a signature that nobody can make
    "spark.ui.filters": _PAGES,
    "spark.ui.killEnabled": "false",
    "spark.master.ui.decommission.allow.mode": "DENY",
}
"""Settings that close a Spark of the run's own to other users of the machine: whoever can submit to
it, or is taken for one of its processes, has code executed as the user of the run."""
_WITH_EXECUTORS = ("yarn", "k8s://")
"""Masters whose executors are counted; a standalone one counts cores."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``master`` is "" for the embedded cluster, or a Spark master URL; ``submitted`` when
    spark-submit set it.

    ``scratch`` is a folder of this run for the files of an embedded cluster (logs of executors,
    blocks), and ``log`` the file for Spark's log on the driver. ``conf`` has the settings of
    ``--conf``. ``room`` is how many workers may run at a time (0: as many as there are slots).
    ``secured``: the run has a security folder. ``archive``: where the JVM of the driver writes an
    archive of its classes when it ends.
    """

    master: str
    slots: int
    app_name: str
    scratch: str
    log: str
    submitted: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)
    room: int = 0
    secured: bool = False
    archive: Path | None = None

    @property
    def local(self) -> bool:
        """Whether all of Spark runs on this machine and belongs to this run."""
        return not self.submitted and (not self.master or self.master.startswith("local"))

    @property
    def url(self) -> str:
        """The master to connect to. The default is a cluster of real executor processes on this
        machine."""
        return self.master or f"local-cluster[{self.slots},1,{_EXECUTOR_MEMORY_MB}]"

    def configuration(self) -> dict[str, str]:
        """The settings that the jobs of a run need, and the user's. They come before those of
        Spark's own files."""
        conf = dict(_REQUIRED)
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
                "spark.python.daemon.module": daemon.MODULE,
                **_CLOSED,
            }
        return conf | dict(self.conf)

    def hidden(self) -> dict[str, str]:
        """Random secrets of a Spark of this run's own. They go into its JVM when that runs: on a
        command line everybody could read them, and whoever has them can have code executed."""
        if not self.local:
            return {}
        return {
            "spark.authenticate.secret": secrets.token_hex(32),
            _PAGE_KEY: secrets.token_urlsafe(32),
        }

    def placement(self, value_of: Callable[[str], str | None], master: str) -> dict[str, str]:
        """The settings that give each worker an executor of its own, besides those that are
        set already.

        Spark places the job of each worker by itself, so an executor with several free cores would
        get several workers although others have none, and its loss would take all of them. With one
        core each, a standalone master spreads the executors over its machines. The application
        takes no core that none of its workers needs."""
        if self.local or master.startswith("local"):
            return {}
        cpus = _number(value_of("spark.task.cpus"), 1)
        cores = _number(value_of("spark.executor.cores"), cpus)
        executors = -(-max(self.slots, self.room) // max(cores // cpus, 1))
        defaults = {
            "spark.executor.cores": str(cores),
            "spark.executor.memory": f"{_EXECUTOR_MEMORY_MB // 2}m",
            "spark.cores.max": str(executors * cores),
        }
        if master.startswith(_WITH_EXECUTORS):
            defaults["spark.executor.instances"] = str(executors)
        return {name: value for name, value in defaults.items() if value_of(name) is None}


def most_workers(value_of: Callable[[str], str | None], master: str) -> int | None:
    """The number of workers for which an application may take cores; None where nothing limits
    it."""
    cpus = _number(value_of("spark.task.cpus"), 1)
    if master.startswith("spark://"):
        cores, size = (
            _number(value_of("spark.cores.max"), 0),
            _number(value_of("spark.executor.cores"), cpus),
        )
        return cores // size * (size // cpus) if cores else None
    if master.startswith(_WITH_EXECUTORS):
        executors, size = (
            _number(value_of("spark.executor.instances"), 0),
            _number(value_of("spark.executor.cores"), cpus),
        )
        return executors * (size // cpus) if executors else None
    return None


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and int(text) > 0 else default


def open_to_all(value_of: Callable[[str], str | None], secured: bool) -> str:
    """A warning about a Spark that does not authenticate its callers; "" if it does, or if that was
    set explicitly.

    Raises SetupError instead where the run is ``secured``.
    """
    if value_of("spark.authenticate") is not None:
        return ""
    problem = (
        "This Spark does not authenticate its callers (spark.authenticate): anybody who reaches its"
        " ports can have code executed as its user"
    )
    fix = (
        "Set spark.authenticate and its secret for all of Spark, or accept it with --conf"
        " spark.authenticate=false"
    )
    if secured:
        raise SetupError(f"{problem}, and the run has --security. {fix}")
    return f"Warning: {problem}. {fix}"


def check_conf(conf: Mapping[str, str]) -> None:
    """Raise SetupError for a setting that is not one of Spark's, or for which every run needs
    another value."""
    for name, value in conf.items():
        if not name.startswith("spark."):
            raise SetupError(
                f"--conf {name}={value}: settings of Spark begin with spark., for example"
                " spark.cores.max"
            )
        if name == "spark.master":
            raise SetupError(f"--conf {name}={value}: name the master with --spark-master {value}")
        if _REQUIRED.get(name, value).lower() != value.lower():
            raise SetupError(
                f"--conf {name}={value}: a run sets it to {_REQUIRED[name]}, because the driver"
                " itself restarts each worker that dies, once; leave it out"
            )
