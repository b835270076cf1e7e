"""``millwheel serve``: the gateway of a root."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from millwheel.adapters.durable_store import open_space
from millwheel.adapters.spaces.query_table import QueryTable
from millwheel.adapters.spaces.s3_address import is_s3
from millwheel.cli.look.chosen import chosen_root
from millwheel.gateway.serving import ServeSettings
from millwheel.gateway.serving import serve as run


def serve(
    address: str, host: str, port: int, security: str, origins: Sequence[str], pages: str, hosts: Sequence[str]
) -> None:
    """Serve until Ctrl-C, and say where."""
    root = chosen_root(address)
    changes = QueryTable(open_space(address if is_s3(address) else str(root)))
    run(
        ServeSettings(root, host, port, security, origins, pages, hosts),
        changes,
        lambda url: typer.echo(f"Serving {url}"),
    )
