"""``millwheel serve`` and ``millwheel ui``: the gateway and the page of a root."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import typer

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.root_address import in_bucket
from millwheel.adapters.spaces.root_notes import QueryTable, ReplayOrders
from millwheel.control.roots.root import read_run
from millwheel.errors import SetupError
from millwheel.tools.cli.arguments import chosen_root
from millwheel.tools.gateway.server import ServeSettings
from millwheel.tools.gateway.server import serve as serve_gateway
from millwheel.tools.ui.server import UiSettings
from millwheel.tools.ui.server import serve as serve_page

_AGAIN_S = 0.5  # before the next look for a run: a driver takes longer to start


def serve(
    address: str,
    host: str,
    port: int,
    security: str,
    origins: Sequence[str],
    pages: str,
    hosts: Sequence[str],
    wait: bool = False,
) -> None:
    """Serve until Ctrl-C, and print the address. With ``wait``, the root need not have a run
    yet."""
    root = _awaited(address) if wait else chosen_root(address)
    changes = QueryTable(open_space(address if in_bucket(address) else str(root)))
    serve_gateway(
        ServeSettings(root, host, port, security, origins, pages, hosts),
        changes,
        lambda url: typer.echo(f"Serving {url}"),
    )


def _awaited(address: str) -> Path:
    """The root, once it has had a run: a gateway that starts together with the run may be first."""
    announced = False
    while True:
        try:
            root = chosen_root(address)
        # a root in an object store has no folder here before its driver has begun
        except SetupError:
            root = None
        if root is not None and read_run(root) is not None:
            return root
        if not announced:
            typer.echo(f"Waiting for a run on {address}", err=True)
            announced = True
        time.sleep(_AGAIN_S)


def page(
    root: str, listen: str, port: int, security: str, writable: bool, hosts: Sequence[str]
) -> None:
    """Serve until Ctrl-C, and print the address."""
    settings = UiSettings(root or str(chosen_root(root)), listen, port, security, writable, hosts)
    serve_page(
        settings,
        lambda address: ReplayOrders(open_space(address)),
        lambda where: typer.echo(f"The page is at {where}"),
    )
