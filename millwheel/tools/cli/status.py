"""Views of a run: ``millwheel status`` prints a line for each node, and the causes of standstill;
``millwheel summary`` its summary so far, ``millwheel metrics`` the metrics of its driver
(``/metrics``), ``millwheel token`` its token."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.metrics.client import METRICS, fetched
from millwheel.control.roots.attach import attach, is_driven
from millwheel.control.roots.root import RunInfo, read_completed, read_run
from millwheel.core.model.times import SECOND, duration_text
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.progress.collector import asked
from millwheel.launch.progress.divided_nodes import divided_lines
from millwheel.launch.progress.metrics import DRIVER, driver_address
from millwheel.launch.progress.report import read_progress, summary_lines
from millwheel.launch.progress.run_standing import NodeStanding, RunStanding
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.arguments import chosen_root

WATCH_S = 1.0
"""Between two looks of ``--watch``."""


class CompleteStanding(msgspec.Struct, frozen=True):
    """A run whose input has drained, in ``--json``."""

    root: str
    summary: Summary
    complete: bool = True


def status(address: str, console: Console, as_json: bool = False, watch: bool = False) -> None:
    """Print how a run stands; with ``watch`` again and again, until it is complete or has ended, or
    Ctrl-C."""
    root = chosen_root(address)
    done = read_completed(root)
    if done is not None:
        return _print_complete(root, msgspec.convert(done, Summary), console, as_json)
    run = attach(root)
    if not watch:
        return _print(asked(root, run), console, as_json)
    if as_json:
        for standing in _watched(root, run):
            _print(standing, console, as_json)
        return None
    with Live(console=console, auto_refresh=False) as live:
        for standing in _watched(root, run):
            live.update(shown(standing), refresh=True)
    return None


def _watched(root: Path, run: RunInfo) -> Iterator[RunStanding]:
    """The standings, again and again, until the run is over. Raises SetupError when its driver is
    gone."""
    while read_completed(root) is None:
        with suppress(UnavailableError):  # a new leader is being elected
            yield asked(root, run)
        time.sleep(WATCH_S)
        attach(root)


def _print_complete(root: Path, summary: Summary, console: Console, as_json: bool) -> None:
    if as_json:
        return write_json(CompleteStanding(str(root), summary))
    console.print(f"The run on {root} is complete.", highlight=False, soft_wrap=True)
    for line in summary_lines(summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return None


def _print(standing: RunStanding, console: Console, as_json: bool) -> None:
    if as_json:
        return write_json(standing)
    return console.print(shown(standing))


def write_json(value: object) -> None:
    """One line of JSON on standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


# --- for people -----------------------------------------------------------------------------------


def shown(standing: RunStanding) -> RenderableType:
    """About ten lines: the run, a line for each node, and the causes of standstill."""
    dead = (
        f", {standing.dead_letters:,} dead letters (`millwheel letters`)"
        if standing.dead_letters
        else ""
    )
    head = (
        f"{standing.pipeline}: {standing.records_in:,} records read by {len(standing.workers)}"
        f" workers{dead}"
    )
    table = Table("node", "watermark", "behind", "shards", "held by", box=None, pad_edge=False)
    for node in standing.nodes:
        if not node.node.endswith(".dead_letters"):
            table.add_row(*map(Text, _row(node)))
    troubles = [Text(f"! {trouble}") for trouble in standing.troubles]
    return Group(Text(head), table, *map(Text, divided_lines(standing.divided)), *troubles)


def _row(node: NodeStanding) -> tuple[str, ...]:
    behind = "" if node.behind_s is None else _duration(node.behind_s)
    held = node.held_by
    words = (
        "" if held is None else held.words if held.node == node.node else f"waits for {held.node}"
    )
    return node.node, node.watermark or node.state, behind, str(node.shards), words


def _duration(seconds: float) -> str:
    us = int(seconds * SECOND)
    return duration_text(us - us % SECOND) if us >= SECOND else f"{seconds:.1f}s"


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
        raise SetupError(f"The run on {folder} was started with --open: it asks for no token")
    typer.echo(credentials.token)
