"""The contract of a launcher: it starts the worker of a slot somewhere, and reports the end of that
worker."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Protocol

from millwheel.adapters.processes.address import LOOPBACK, listen_on
from millwheel.adapters.processes.child import Remains
from millwheel.adapters.processes.interpreter import module_command
from millwheel.adapters.processes.logs import LogFormat

WORKER_MODULE = "millwheel.engine.workers"


@dataclass(frozen=True, slots=True)
class WorkerTemplate:
    """The command of every worker of a run, without slot and scratch directory.

    ``scratch`` is the folder below which each life of a worker gets a directory of its own; "" lets
    the launcher choose one on the machine where the worker runs. Queries are answered at
    ``query_port`` by the first slot and at free ports by the others (None: nowhere). ``logs``
    receives ``worker-<slot>.log`` and ``.out``.
    """

    root: str
    zookeeper: str
    pipeline: str
    logs: str
    scratch: str
    module: str = WORKER_MODULE
    listen: str = LOOPBACK
    security: str = ""
    secrets: str = ""
    log_format: LogFormat = LogFormat.TEXT
    query_port: int | None = None

    def command(self, slot: int, scratch: str, python: str = sys.executable) -> list[str]:
        """The argv of one worker, made on the machine where it will run."""
        return module_command(self.module, self.arguments(slot, scratch), python)

    def arguments(self, slot: int, scratch: str) -> list[str]:
        """The arguments behind the module name in that command."""
        return [
            *("--root", self.root, "--zookeeper", self.zookeeper),
            *("--pipeline", self.pipeline, "--slot", str(slot), "--scratch", scratch),
            *("--listen", listen_on(self.listen, self.zookeeper)),
            *(("--security", self.security) if self.security else ()),
            *self._queries(slot),
            *(("--secrets", self.secrets) if self.secrets else ()),
            *(
                ("--log-format", self.log_format.value)
                if self.log_format is not LogFormat.TEXT
                else ()
            ),
        ]

    def _queries(self, slot: int) -> list[str]:
        if self.query_port is None:
            return []
        host = listen_on(self.listen, self.zookeeper).rpartition(":")[0]
        return ["--queries", f"{host}:{self.query_port if slot == 0 else 0}"]


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """One life of a worker has ended. ``code`` is as in :mod:`subprocess`: negative for a
    signal."""

    slot: int
    code: int
    lived_s: float
    last_words: str = ""
    remains: Remains = field(default_factory=Remains)


class Launcher(Protocol):
    """Starts workers. Used by one thread, which must outlive them."""

    most: int | None
    """How many workers can run at a time; None: any number."""

    def start(self, slot: int) -> None:
        """Start the worker of ``slot``, which must have no living worker. Returns before the worker
        runs."""

    def exits(self) -> list[WorkerExit]:
        """The workers that ended since the last call. Never blocks."""

    def kill(self, slot: int, pid: int) -> bool:
        """Kill the worker of ``slot`` at once if its process is ``pid``. False: the slot already
        has another process. May return before the process has ended; :meth:`exits` reports the
        end."""

    def lacks(self) -> str:
        """The reason why workers that have been started do not run yet, as a sentence; "" if all
        run. Takes some milliseconds."""

    def stop(self, grace_s: float) -> None:
        """Ask all workers to stop (SIGTERM), wait up to ``grace_s`` seconds, kill the rest."""
