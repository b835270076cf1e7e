"""``millwheel status``: a line for each node, what stands still, and why."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from millwheel.control.roots.attach import attach
from millwheel.control.roots.root import RunInfo, read_completed
from millwheel.core.model.times import SECOND, duration_text
from millwheel.errors import UnavailableError
from millwheel.launch.progress.collector import asked
from millwheel.launch.progress.divided_nodes import divided_lines
from millwheel.launch.progress.report import summary_lines
from millwheel.launch.progress.run_standing import NodeStanding, RunStanding
from millwheel.launch.progress.summary import Summary
from millwheel.tools.cli.look.arguments import chosen_root

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
    """About ten lines: the run, a line for each node, and what stands still."""
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
