"""``millwheel run`` inside a Spark submission: the launcher is Spark's, the master the submission's."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from millwheel.cli.app import Pipeline, Sets, parse_sets
from millwheel.errors import MillwheelError


def _run(
    pipeline: Pipeline,
    sets: Sets = None,
    workers: Annotated[int, typer.Option(min=1, help="worker slots, one Spark task each")] = 2,
    root: Annotated[str, typer.Option(help="folder shared by all executors and the driver")] = "",
    zookeeper: Annotated[str, typer.Option(help="host:port[,…]/chroot; default: one is started by the driver")] = "",
    summary: Annotated[str, typer.Option(metavar="FILE.json", help="write the summary there, as JSON")] = "",
) -> None:
    """Run a pipeline in the executors of this Spark application."""
    from millwheel.launch.driver import Driver, RunSettings

    settings = RunSettings(
        pipeline=pipeline,
        params=parse_sets(sets),
        workers=workers,
        submitted=True,
        root=root,
        zookeeper=zookeeper,
        summary=summary,
    )
    raise typer.Exit(Driver(settings, Console(stderr=True)).run())


def main() -> None:
    """Entry point of ``deploy/spark_submit.py``."""
    try:
        typer.run(_run)
    except MillwheelError as error:
        sys.stderr.write(f"millwheel: {error}\n")
        sys.exit(1)
