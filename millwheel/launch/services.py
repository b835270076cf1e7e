"""The services of a run on the driver's machine: master and injector, started, kept alive,
stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from socket import socket

from millwheel.adapters.front.listener import listening
from millwheel.adapters.processes.address import LOOPBACK, listen_on
from millwheel.adapters.processes.child import Living, stop_all
from millwheel.adapters.processes.logs import LogFormat
from millwheel.adapters.processes.supervisor import ProcessEnded
from millwheel.errors import SetupError
from millwheel.launch.launchers.warm_children import ChildSpec


@dataclass(frozen=True, slots=True)
class ServiceTemplate:
    """The settings of master and injector."""

    root: str
    zookeeper: str
    pipeline: str
    listen: str = LOOPBACK
    security: str = ""
    log_format: LogFormat = LogFormat.TEXT

    def arguments(self, *more: str) -> list[str]:
        """The arguments after the module name."""
        return [
            *("--root", self.root, "--zookeeper", self.zookeeper),
            *("--pipeline", self.pipeline, "--listen", listen_on(self.listen, self.zookeeper)),
            *(("--security", self.security) if self.security else ()),
            *(
                ("--log-format", self.log_format.value)
                if self.log_format is not LogFormat.TEXT
                else ()
            ),
            *more,
        ]


class Services:
    """Child processes by name. Used by one thread, which outlives them."""

    def __init__(self, logs: Path, start: Callable[[ChildSpec], Living]) -> None:
        self._logs = logs
        self._start = start
        self._children: dict[str, Living] = {}

    def start(self, name: str, module: str, argv: list[str]) -> None:
        """Start or restart the process of that name."""
        self._children[name] = self._start(ChildSpec(module, argv, self._logs / name))

    def ended(self) -> list[ProcessEnded]:
        """The processes that ended since the last call."""
        over = [
            (name, child, code)
            for name, child in self._children.items()
            if (code := child.poll()) is not None
        ]
        for name, _, _ in over:
            del self._children[name]
        return [
            ProcessEnded(name, code, child.lived_s(), child.last_words())
            for name, child, code in over
        ]

    def pids(self) -> dict[str, int]:
        """The process ids of the living processes."""
        return {name: child.pid for name, child in self._children.items() if child.pid}

    def stop_one(self, name: str, grace_s: float) -> None:
        """Stop the process of that name, if it lives."""
        child = self._children.pop(name, None)
        if child is not None:
            stop_all([child], grace_s)

    def stop(self, grace_s: float) -> None:
        """Stop all of them in the order of their latest starts."""
        for name in list(self._children):
            stop_all([self._children.pop(name)], grace_s)


PAGE_NEEDS = "The page needs starlette and uvicorn: pip install 'millwheel-spark[ui]'"


def check_page(host: str, port: int) -> None:
    """Raise SetupError if the page cannot be served there."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as ex:
        raise SetupError(PAGE_NEEDS) from ex
    page_listener(host, port).close()


def page_listener(host: str, port: int) -> socket:
    """A listening socket at this address. Raises SetupError when the port is taken."""
    return listening(f"{host}:{port}", "The page cannot be served at", "; choose another port")
