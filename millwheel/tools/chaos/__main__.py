"""``python -m millwheel.tools.chaos``: `millwheel run` from within the hub of
:mod:`millwheel.tools.chaos.namespaces`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.terminal import Terminal
from millwheel.errors import PipelineError, SetupError
from millwheel.launch.coordinator import ZooKeeperKeeper
from millwheel.launch.driver import Driver
from millwheel.launch.head_start import children_for
from millwheel.launch.settings import (
    LauncherKind,
    RunSettings,
    SparesNumber,
    parse_sets,
    parse_spares,
)
from millwheel.tools.chaos.namespaced_worker import MODULE
from millwheel.tools.chaos.namespaces import HUB_ADDRESS


def main(
    pipeline: str,
    root: Annotated[str, typer.Option()],
    workers: Annotated[int, typer.Option()],
    security: Annotated[str, typer.Option()],
    spares: Annotated[str, typer.Option()] = "0",
    sets: Annotated[list[str] | None, typer.Option("--set")] = None,
) -> None:
    """One run, whose ZooKeeper, master and injector serve all workers over the bridge, with
    certificates."""
    begin_process()
    sys.exit(_run(pipeline, root, workers, parse_spares(spares), security, sets or []))


def _run(
    pipeline: str, root: str, workers: int, spares: SparesNumber, security: str, sets: list[str]
) -> int:
    console = Terminal(stderr=True)
    zookeeper = ZooKeeperKeeper(Path(f"{root}-zookeeper"), console.print, HUB_ADDRESS)
    try:
        settings = RunSettings(
            pipeline=pipeline,
            params=parse_sets(sets),
            workers=workers,
            spares=spares,
            launcher=LauncherKind.PROCESSES,
            root=root,
            zookeeper=zookeeper.start(),
            listen=HUB_ADDRESS,
            security=security,
            worker_module=MODULE,
        )
        with children_for(settings) as children:
            return Driver(settings, console, children).run()
    except (PipelineError, SetupError) as error:
        console.print(str(error), markup=False, highlight=False)
        return 1
    finally:
        zookeeper.stop()


if __name__ == "__main__":
    typer.run(main)
