"""``millwheel token``: what a run wants to be shown."""

from __future__ import annotations

import typer

from millwheel.adapters.grpc.security import load_security
from millwheel.control.roots.root import read_run
from millwheel.errors import SetupError
from millwheel.tools.cli.look.chosen import chosen_root


def token(root: str) -> None:
    """Print the token of the run on a root, and nothing else on standard output."""
    folder = chosen_root(root)
    run = read_run(folder)
    if run is None:
        raise SetupError(
            f"{folder} is not the root of a run: give the --root of its `millwheel run`"
        )
    credentials = load_security(run.security, "client")
    if credentials is None:
        raise SetupError(f"The run on {folder} was started with --open: it wants no token")
    typer.echo(credentials.token)
