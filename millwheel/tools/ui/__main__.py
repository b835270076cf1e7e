"""``python -m millwheel.tools.ui``: the page beside a run. The driver keeps it alive."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.processes.exits import Exit
from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.processes.lifeline import die_with_parent
from millwheel.adapters.spaces.root_notes import ReplayOrders
from millwheel.errors import MillwheelError, SetupError
from millwheel.tools.ui.server import UiSettings, serve


def main(
    root: Annotated[str, typer.Option(help="root of the pipeline, on this machine")],
    port: Annotated[int, typer.Option(help="where it is served")],
    host: Annotated[str, typer.Option(help="the address of this machine that it listens on")],
    security: Annotated[
        str, typer.Option(help='folder with certificates and token; "": none')
    ] = "",
) -> None:
    """Serve the page until stopped."""
    die_with_parent()
    begin_process(root)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    try:
        settings = UiSettings(root, host, port, security)
        serve(settings, lambda address: ReplayOrders(open_space(address)), lambda where: None)
    except MillwheelError as error:
        typer.echo(f"ui: {error}", err=True)
        raise typer.Exit(Exit.BAD_CONFIG if isinstance(error, SetupError) else 1) from error


if __name__ == "__main__":
    typer.run(main)
