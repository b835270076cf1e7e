"""``millwheel status``: the watermarks of a run, what holds them, and the owners of shards."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.core.model.failures import kinds_in, without_kinds
from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND
from millwheel.core.pipeline.graph import Graph, build_graph
from millwheel.errors import UnavailableError
from millwheel.launch.progress.polling import LEADER_ROLE, addresses, cluster_view
from millwheel.launch.progress.report import summary_lines
from millwheel.launch.progress.summary import ClusterView, Summary, reason_texts
from millwheel.roots.attaching import LiveMembers, attach, connected, find_root
from millwheel.roots.root import read_completed
from millwheel.roots.shipped import load_shipped


def status(place: str, console: Console) -> None:
    """Print the nodes with their watermarks and holders, and the shards with their owners."""
    root = find_root(place)
    done = read_completed(root)
    if done is not None:
        console.print(f"The run on {root} is complete.", highlight=False, soft_wrap=True)
        for line in summary_lines(msgspec.convert(done, Summary)):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    run = attach(root)
    graph = _graph(root)
    with connected(run) as coordination:
        tables = coordination.tables()
        workers = LiveMembers(coordination, "workers").now()
        leaders = addresses(LiveMembers(coordination, LEADER_ROLE).some())
        view = _view(leaders, load_security(run.security, "client"))
    console.print(_nodes_table(graph, view))
    for line in _failures(view):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(_shards_table(tables, addresses(workers)))


def _graph(root: Path) -> Graph:
    return build_graph(load_shipped(str(root)))


def _view(leaders: Mapping[str, str], security: Security | None) -> ClusterView:
    """The answer of the leading injector. Raises UnavailableError when there is none."""
    for address in leaders.values():
        return cluster_view(fetch_status(address, security=security))
    raise UnavailableError("No injector leads at the moment; ask again in a second")


def _nodes_table(graph: Graph, view: ClusterView) -> Table:
    table = Table("node", "watermark", "held by", "counted", box=None, pad_edge=False)
    for name in graph.nodes:
        node = view.nodes.get(name)
        if node is None:
            table.add_row(name, "?", "not assigned yet", "")
            continue
        counters = without_kinds(node.counters)
        counted = ", ".join(f"{counter} {value:,}" for counter, value in sorted(counters.items()))
        table.add_row(name, watermark_words(node.watermark_us), node.holder, counted)
    return table


def _failures(view: ClusterView) -> list[str]:
    """Failures: dead letters by reason, and the share of recent calls that failed."""
    dead = reason_texts({name: kinds_in(node.counters) for name, node in view.nodes.items()})
    recent = [
        f"{call.judged}: {tally.failed:,} of its last {tally.tried:,} calls failed ({call.what})"
        for node in view.nodes.values()
        for call, tally in node.tallies.items()
        if tally.failed
    ]
    return [*(f"dead letters of {text}" for text in dead), *recent]


def _shards_table(tables: Mapping[NodeName, RangeTable], workers: Mapping[str, str]) -> Table:
    table = Table("shard", "range", "owner", "at", "token", box=None, pad_edge=False)
    for name in sorted(tables):
        for entry in tables[name].shards:
            owner = entry.owner or "nobody"
            moving = f" → {entry.next_owner}" if entry.next_owner else ""
            table.add_row(
                entry.shard,
                range_words(entry.range),
                owner + moving,
                workers.get(entry.owner, "gone"),
                str(entry.token),
            )
    return table


def range_words(keys: KeyRange) -> str:
    """A range by the first digits of its edges, e.g. ``4000…7fff``."""
    return f"{keys.lo >> 48:04x}…{(keys.hi - 1) >> 48:04x}"


def watermark_words(watermark_us: int) -> str:
    """A watermark in readable form: a time, or the meaning of its extremes."""
    if watermark_us == MIN_TIME:
        return "nothing yet"
    if watermark_us == MAX_TIME:
        return "drained"
    if watermark_us >= IDLE_TIME:
        return "idle"
    try:
        moment = datetime.fromtimestamp(watermark_us / SECOND, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{watermark_us} µs"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
