"""``millwheel ranges``: owners of key ranges, and planned moves, splits and merges of shards.
``millwheel scale``: the number of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.table import Table

from millwheel.adapters.grpc.master_client import MasterClient
from millwheel.adapters.grpc.security import load_security
from millwheel.adapters.pb.master_pb2 import Work
from millwheel.control.roots.attach import LiveMembers, attach, connected, find_root, is_driven
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.model.names import shard_parts
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.graph import Graph, build_graph
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.progress.status_watch import MASTER_ROLE, addresses
from millwheel.launch.scale import answer, ask
from millwheel.tools.cli.arguments import chosen_root
from millwheel.tools.cli.status import write_json


@contextmanager
def _master(address: str) -> Iterator[MasterClient]:
    """The master that leads the run on the root at ``address``."""
    run = attach(chosen_root(address))
    with connected(run) as coordination:
        masters = addresses(LiveMembers(coordination, MASTER_ROLE).some())
        if not masters:
            raise UnavailableError("No master leads at the moment; ask again in a second")
        yield MasterClient(next(iter(masters.values())), load_security(run.security, "client"))


class ShardShown(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shard, in ``--json``: its key range by the hashes of its edges (hex), its owner ("":
    none), the planned change, and its work."""

    node: str
    shard: str
    first: str
    last: str
    owner: str
    next_owner: str = ""
    split_at: str = ""
    merges_as: str = ""
    standby: str = ""
    busy: float | None = None
    records_per_s: float | None = None


def shards_shown(tables: Mapping[str, RangeTable], work: Mapping[str, Work]) -> list[ShardShown]:
    """All shards in the order of their nodes and ranges."""
    shards = []
    for node, table in tables.items():
        for entry in sorted(table.shards, key=lambda entry: entry.range.lo):
            done = work.get(entry.shard)
            shard = ShardShown(
                *(
                    node,
                    entry.shard,
                    f"{entry.range.lo:016x}",
                    f"{entry.range.hi - 1:016x}",
                    entry.owner,
                ),
                next_owner=entry.next_owner,
                split_at=f"{entry.split_at:016x}" if entry.split_at else "",
                merges_as=entry.merges_as,
                standby=entry.standby,
                busy=None if done is None else round(done.busy, 4),
                records_per_s=None if done is None else round(done.records_per_s, 1),
            )
            shards.append(shard)
    return shards


def show(address: str, node: str, console: Console, as_json: bool = False) -> None:
    """Print the shards of all nodes, or of one, with their ranges, owners and work."""
    with _master(address) as master:
        description = master.describe()
    tables = {
        table.computation: table
        for table in (RangeTable.decode(data, -1) for data in description.tables)
    }
    if node and node not in tables:
        raise SetupError(f"There is no node {node}; there are {', '.join(sorted(tables))}")
    work = {each.shard: each for each in description.work}
    chosen: dict[str, RangeTable] = {
        name: tables[name] for name in sorted(tables) if node in ("", name)
    }
    if as_json:
        return write_json(shards_shown(chosen, work))
    return console.print(shards_table(chosen, work))


def shards_table(tables: Mapping[str, RangeTable], work: Mapping[str, Work]) -> Table:
    """One row per shard, in the order of ranges; with standbys, if there are any."""
    heads = ("shard", "first key hash", "last key hash", "owner", "busy", "records/s")
    followed = any(entry.standby for each in tables.values() for entry in each.shards)
    table = Table(*heads, *(["standby"] if followed else []), box=None, pad_edge=False)
    for range_table in tables.values():
        for entry in sorted(range_table.shards, key=lambda entry: entry.range.lo):
            edges = (f"{entry.range.lo:016x}", f"{entry.range.hi - 1:016x}")
            going = f" → {entry.next_owner}" if entry.next_owner else ""
            going += f", to be split at {entry.split_at:016x}" if entry.split_at else ""
            going += f", to be merged as {entry.merges_as}" if entry.merges_as else ""
            done = work.get(entry.shard)
            figures = (
                (f"{done.busy:.0%}", f"{done.records_per_s:,.0f}") if done is not None else ("", "")
            )
            standby = (entry.standby,) if followed else ()
            table.add_row(
                entry.shard, *edges, (entry.owner or "nobody") + going, *figures, *standby
            )
    return table


class RangeChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change that the master has taken, in ``--json``: the ``shards`` it is about, where one is
    cut (hex), and the worker that one moves to."""

    change: str
    shards: tuple[str, ...]
    at: str = ""
    worker: str = ""


def split(
    address: str, shard: str, at: str, key: str, console: Console, as_json: bool = False
) -> None:
    """Cut a shard in two: in the middle of its range, at a hash, or so that the upper half begins
    with a key."""
    if at and key:
        raise SetupError("Give --at or --key, not both")
    node = node_of(shard)
    with _master(address) as master:
        if key:
            at = (
                f"{edge_before(build_graph(load_shipped(str(find_root(address)))), node, key):016x}"
            )
        master.split(node, shard, at)
    _report(RangeChange("split", (shard,), at), f"{shard} is being split.", console, as_json)


def edge_before(graph: Graph, node: str, key: str) -> int:
    """The lower edge of a range of a node that begins with a text key, or with the slot of a key of
    slices."""
    hashed = graph.hash_of(node)(key)
    return hashed - hashed % graph.grain(node)


def merge(address: str, lower: str, upper: str, console: Console, as_json: bool = False) -> None:
    """Make one shard of two neighbours."""
    if node_of(lower) != node_of(upper):
        raise SetupError(
            f"{lower} and {upper} belong to different nodes; only neighbours in one can be merged"
        )
    _ask(address, lambda master: master.merge(node_of(lower), lower, upper))
    _report(
        RangeChange("merge", (lower, upper)),
        f"{lower} and {upper} are being merged.",
        console,
        as_json,
    )


def move(address: str, shard: str, worker: str, console: Console, as_json: bool = False) -> None:
    """Let another worker serve a shard."""
    _ask(address, lambda master: master.move(node_of(shard), shard, worker))
    change = RangeChange("move", (shard,), worker=worker)
    _report(change, f"{shard} is on its way to {worker}.", console, as_json)


def _report(change: RangeChange, sentence: str, console: Console, as_json: bool) -> None:
    if as_json:
        return write_json(change)
    return console.print(sentence, highlight=False)


def _ask(address: str, question: Callable[[MasterClient], None]) -> None:
    with _master(address) as master:
        question(master)


def node_of(shard: str) -> str:
    """The node that a shard belongs to, by its name. Raises SetupError when it names none."""
    parts = shard_parts(shard)
    if parts is None:
        raise SetupError(f"{shard!r} names no shard: it is a node and a number, such as traffic-0")
    return parts[0]


_POLL_S = 0.1  # between looks whether the driver has obeyed


class Scaled(msgspec.Struct, frozen=True):
    """The output of ``--json`` once the requested number of workers is reached."""

    root: str
    workers: int


def scale(
    address: str, workers: int, limit_s: float, console: Console, as_json: bool = False
) -> None:
    """Request another number of workers from the driver, and wait until the change has been made or
    refused.

    Raises SetupError with the driver's reason when the request is refused, and UnavailableError
    when the change takes too long.
    """
    root = chosen_root(address)
    attach(root)
    ask(root, workers)
    deadline_s = time.monotonic() + limit_s
    with console.status(f"waiting for {workers} workers"):
        while (outcome := answer(root)) is None or outcome.workers != workers:
            if time.monotonic() > deadline_s:
                raise UnavailableError(
                    f"There are not {workers} workers after {limit_s:.0f} s; the run keeps trying. "
                    "`millwheel status` shows the owners, and on Spark a worker needs a free core"
                )
            if not is_driven(root):
                raise UnavailableError(f"The run ended before there were {workers} workers")
            time.sleep(_POLL_S)
    if outcome.problem:
        raise SetupError(f"There cannot be {workers} workers: {outcome.problem}")
    if as_json:
        return write_json(Scaled(str(root), workers))
    console.print(
        "There is 1 worker." if workers == 1 else f"There are {workers} workers.", highlight=False
    )
    return None
