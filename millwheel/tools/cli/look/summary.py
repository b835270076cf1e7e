"""What a run shows of itself: ``millwheel summary`` its summary so far, in the form of the final
one; ``millwheel metrics`` what its driver serves at ``/metrics``; ``millwheel token`` its token."""

from __future__ import annotations

import sys

import msgspec
import typer
from rich.console import Console

from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.metrics.client import METRICS, fetched
from millwheel.control.roots.attach import attach, is_driven
from millwheel.control.roots.root import read_completed, read_run
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.progress.metrics import DRIVER, driver_address
from millwheel.launch.progress.report import read_progress, summary_lines
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.look.arguments import chosen_root
from millwheel.tools.cli.look.status import write_json


class SummaryShown(msgspec.Struct, frozen=True):
    """A run, in ``--json``: ``state`` is running, stopped or complete."""

    root: str
    state: str
    summary: Summary


def summary(address: str, console: Console, as_json: bool) -> None:
    """Print it. Raises SetupError when no run has been there for half a second."""
    root = chosen_root(address)
    done = read_completed(root)
    if done is not None:
        document = SummaryShown(str(root), "complete", msgspec.convert(done, Summary))
    else:
        noted = read_progress(root)
        if noted is None:
            raise SetupError(f"The run on {root} has done nothing yet; ask again in a second")
        document = SummaryShown(
            str(root), "running" if is_driven(root) else "stopped", noted.summary
        )
    if as_json:
        return write_json(document)
    console.print(
        f"The run on {root} is {document.state}.", markup=False, highlight=False, soft_wrap=True
    )
    for line in summary_lines(document.summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return None


def metrics(root_address: str) -> None:
    """Print the metrics of all processes, in Prometheus' format, on standard output."""
    root = chosen_root(root_address)
    run = attach(root)
    address = driver_address(root)
    if not address:
        raise UnavailableError(
            f"The driver of {root} does not serve metrics yet; ask again in a second"
        )
    texts = fetched({DRIVER: address}, METRICS, load_security(run.security, "client"))
    if DRIVER not in texts:
        raise UnavailableError(f"The driver does not answer at {address}; ask again in a second")
    sys.stdout.write(texts[DRIVER])


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
