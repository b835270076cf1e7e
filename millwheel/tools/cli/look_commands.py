"""The commands that look at a run or a machine. Their code is imported when they are called."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millwheel.adapters.processes.address import LOOPBACK
from millwheel.adapters.terminal import Terminal
from millwheel.tools.cli.arguments import (
    AsJson,
    RootArgument,
    RunningRoot,
    ServerAddress,
    ServerSecurity,
    the_root,
)

looking = typer.Typer()


@looking.command()
def status(
    folder: RootArgument = "",
    root: RunningRoot = "",
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="again every second, until the run is over")
    ] = False,
) -> None:
    """Show how far each node is, what stands still, and why. `millwheel ranges show` has the owners
    of ranges."""
    from millwheel.tools.cli.status import status as show

    show(
        the_root(folder, root), Terminal(width=None if sys.stdout.isatty() else 200), as_json, watch
    )


@looking.command()
def ui(
    folder: RootArgument = "",
    root: RunningRoot = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8081,
    listen: ServerAddress = LOOPBACK,
    security: ServerSecurity = "",
    writable: Annotated[
        bool,
        typer.Option(
            "--writable", help="let the page replay dead letters; prints its address with a token"
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="a further name by which browsers call it; repeatable"),
    ] = None,
) -> None:
    """Show a run as a page: its graph, what stands still and why, restarts, dead letters, rows
    (docs/ui.md).

    Needs `pip install 'millwheel-spark[ui]'`. The run may be over.
    """
    from millwheel.tools.cli.serving import page

    page(the_root(folder, root), listen, port, security, writable, allow_host or [])


@looking.command()
def summary(folder: RootArgument = "", root: RunningRoot = "", as_json: AsJson = False) -> None:
    """Print the summary of a run so far: records, rate, latency, dead letters. The run may be
    over."""
    from millwheel.tools.cli.status import summary as printed

    printed(the_root(folder, root), Terminal(width=None if sys.stdout.isatty() else 200), as_json)


@looking.command()
def token(folder: RootArgument = "", root: RunningRoot = "") -> None:
    """Print the token of a run, for programs that ask it: redis-cli -a "$(millwheel token
    ROOT)"."""
    from millwheel.tools.cli.status import token as printed

    printed(the_root(folder, root))


@looking.command()
def metrics(folder: RootArgument = "", root: RunningRoot = "") -> None:
    """Print the metrics of all processes of a run, in Prometheus' format."""
    from millwheel.tools.cli.status import metrics as printed

    printed(the_root(folder, root))


@looking.command()
def logs(
    folder: RootArgument = "",
    root: RunningRoot = "",
    computation: Annotated[
        str, typer.Option(metavar="NAME", help="only entries about this computation")
    ] = "",
    level: Annotated[str, typer.Option(help="only entries of this level, or graver")] = "info",
    as_json: AsJson = False,
) -> None:
    """Print the logs of all processes of a run in the order of time. The run may be over."""
    from millwheel.tools.cli.logs import logs as printed

    printed(the_root(folder, root), computation, level, as_json)


@looking.command()
def doctor(
    root: Annotated[
        str, typer.Option(metavar="FOLDER", help="where the root is to be; its disk is measured")
    ] = "",
    spark_master: Annotated[
        str,
        typer.Option(
            metavar="URL", help="also ask the Python of this Spark's executors; takes ten seconds"
        ),
    ] = "",
    zookeeper: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="also try to reach this ZooKeeper")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Check whether this machine can run pipelines: Python, Java, ports, clock, disk, permissions.

    Exits with 1 if it cannot.
    """
    from millwheel.tools.cli.doctor import doctor as examine

    console = Terminal(width=None if sys.stdout.isatty() else 200)
    raise typer.Exit(examine(root, spark_master, zookeeper, as_json, console))
