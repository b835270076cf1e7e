"""``millwheel ui``: the page of a root."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.replay_orders import ReplayOrders
from millwheel.tools.cli.look.arguments import chosen_root
from millwheel.tools.ui.server import UiSettings, serve


def page(
    root: str, listen: str, port: int, security: str, writable: bool, hosts: Sequence[str]
) -> None:
    """Serve until Ctrl-C, and say where."""
    settings = UiSettings(root or str(chosen_root(root)), listen, port, security, writable, hosts)
    serve(
        settings,
        lambda address: ReplayOrders(open_space(address)),
        lambda where: typer.echo(f"The page is at {where}"),
    )
