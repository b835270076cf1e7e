"""``python -m millwheel.control.injector``: a watermark service. Several may run; the elected one
serves, others stand by."""

from __future__ import annotations

import json
import threading
import time
from typing import Annotated
from uuid import uuid4

import typer

from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.metrics.client import METRICS
from millwheel.adapters.metrics.endpoint import Endpoint
from millwheel.adapters.metrics.text import text_of
from millwheel.adapters.ports import Coordination
from millwheel.adapters.processes.exits import Exit, leave
from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.processes.lifeline import die_with_parent
from millwheel.adapters.processes.logs import LogFormat, set_up
from millwheel.adapters.processes.signals import stop_on_signals
from millwheel.control.injector.server import InjectorServer
from millwheel.control.injector.wire import figures_of
from millwheel.errors import MillwheelError, SetupError

_SESSION_TIMEOUT_S = 2.5
"""How long the leadership of a dead leader lasts. A restarted ZooKeeper should be back before
that."""
_CONNECT_S = 60.0
"""The driver found ZooKeeper running. It may have died since, and take some time to come back."""


class Shutdown:
    """The exit code, set by the first thread that has a reason to end."""

    def __init__(self) -> None:
        self.won = threading.Event()
        self._code: int | None = None
        self._wake = threading.Event()

    def end(self, code: int) -> None:
        if self._code is None:
            self._code = code
        self.won.set()
        self._wake.set()

    @property
    def code(self) -> int | None:
        return self._code

    def wait(self) -> int:
        self._wake.wait()
        return self._code or 0


def serve(
    coordination: Coordination, server: InjectorServer, ending: Shutdown, metrics: str = ""
) -> int:
    """Stand by, lead when elected, and return the exit code once ``ending`` is set. ``metrics`` is
    the address of ``/metrics``.

    A leader that loses its session ends at once. It may have missed a new token, and would then
    accept a zombie's reports.
    """
    coordination.on_lost(lambda: ending.end(Exit.FENCED))
    coordination.watch_tables(server.table_changed)
    server.start()
    try:
        data = json.dumps({"address": server.address, "metrics": metrics}).encode()
        coordination.elect("injector", uuid4().hex, data, ending.won.set)
        ending.won.wait()
        if ending.code is None:
            server.lead(coordination.tables().values())
        return ending.wait()
    finally:
        server.stop()


def main(
    zookeeper: Annotated[
        str, typer.Option(help="hosts of ZooKeeper, with the chroot: host:port,host:port/chroot")
    ],
    pipeline: Annotated[str, typer.Option(help="name of the pipeline")],
    root: Annotated[
        str, typer.Option(help="root of the pipeline; the injector keeps nothing there")
    ] = "",
    listen: Annotated[
        str, typer.Option(help="host:port to serve on; port 0 takes a free one")
    ] = "127.0.0.1:0",
    security: Annotated[
        str, typer.Option(help='folder with certificates and token; "": none')
    ] = "",
    log_format: Annotated[LogFormat, typer.Option(help="how logs are written")] = LogFormat.TEXT,
) -> None:
    """Aggregate watermark reports of a pipeline and broadcast them."""
    die_with_parent()
    begin_process(root)
    set_up(log_format, pipeline, "injector")
    ending = Shutdown()
    stop_on_signals(lambda: ending.end(Exit.STOPPED))
    try:
        secured = load_security(security, "injector")
        server = InjectorServer(listen, secured)
        labels = {"pipeline": pipeline, "process": "injector"}
        pages = {METRICS: lambda: text_of(figures_of(server.status(), time.time()), labels)}
        endpoint = Endpoint(f"{listen.rpartition(':')[0]}:0", secured, pages)
        coordination = open_coordination(
            zookeeper, pipeline, _SESSION_TIMEOUT_S, connect_timeout_s=_CONNECT_S, security=security
        )
        try:
            endpoint.start()
            code = serve(coordination, server, ending, endpoint.address)
        finally:
            coordination.close()
    except MillwheelError as ex:
        typer.echo(f"injector: {ex}", err=True)
        code = Exit.BAD_CONFIG if isinstance(ex, SetupError) else 1
    leave(code)


if __name__ == "__main__":
    typer.run(main)
