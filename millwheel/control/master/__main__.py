"""``python -m millwheel.control.master``: one master; several may stand by, the elected one owns
the range tables."""

from __future__ import annotations

from typing import Annotated

import typer

from millwheel.adapters.clock import SystemClock
from millwheel.adapters.coordination import open_coordination
from millwheel.adapters.durable_store import open_journals, open_snapshots
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.ports import Coordination
from millwheel.adapters.processes.exits import Exit, leave
from millwheel.adapters.processes.interpreter import begin_process
from millwheel.adapters.processes.lifeline import die_with_parent
from millwheel.adapters.processes.logs import LogFormat, set_up
from millwheel.adapters.processes.signals import stop_on_signals
from millwheel.control.master.balance import BalanceConfig
from millwheel.control.master.config import MasterConfig
from millwheel.control.master.runtime import MasterPace
from millwheel.control.master.server import MasterOutside, MasterProcess
from millwheel.control.master.tables.planner import NodeDemand, why_fixed
from millwheel.control.roots.shipment import shared_folder
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.graph import Graph, Node, NodeKind, build_graph
from millwheel.errors import FencedError, MillwheelError, PipelineError, SetupError

SESSION_TIMEOUT_S = 2.0
"""How long a dead leader keeps the lead: short, because a restart costs a master nothing."""
GENTLY_US = 400_000
"""Longer than a shard without much state stands still while it moves."""
_CONNECT_S = 60.0
"""The driver has reached ZooKeeper; ZooKeeper may have died since, and its restart takes a
while."""


def main(
    root: Annotated[str, typer.Option(help="root of the pipeline, shared by all workers")],
    zookeeper: Annotated[
        str, typer.Option(help="hosts of ZooKeeper, with the chroot: host:port,host:port/chroot")
    ],
    pipeline: Annotated[str, typer.Option(help="name of the pipeline")],
    workers: Annotated[int, typer.Option(min=1, help="how many workers are expected")] = 1,
    spares: Annotated[int, typer.Option(min=0, help="how many more stand by")] = 0,
    listen: Annotated[
        str, typer.Option(help="host:port to serve on; port 0 takes a free one")
    ] = "127.0.0.1:0",
    security: Annotated[
        str, typer.Option(help='folder with certificates and token; "": none')
    ] = "",
    balance: Annotated[
        bool, typer.Option(help="move, split and merge shards by their measured load")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="how logs are written")] = LogFormat.TEXT,
) -> None:
    """Assign key ranges to workers, and the ranges of dead workers to others."""
    die_with_parent()
    begin_process(root)
    set_up(log_format, pipeline, "master")
    code: int = Exit.STOPPED
    try:
        nodes, secured = demands(root), load_security(security, "master")
        coordination = open_coordination(
            zookeeper, pipeline, SESSION_TIMEOUT_S, connect_timeout_s=_CONNECT_S, security=security
        )
        config = MasterConfig(
            nodes=nodes,
            expected_workers=workers,
            spares=spares,
            gently_us=GENTLY_US,
            balance=BalanceConfig() if balance else None,
        )
        _run(root, pipeline, coordination, config, listen, secured)
    except MillwheelError as error:
        typer.echo(f"master: {error}", err=True)
        code = _exit_code(error)
    leave(code)


def _exit_code(error: MillwheelError) -> int:
    if isinstance(error, SetupError | PipelineError):
        return Exit.BAD_CONFIG
    return Exit.FENCED if isinstance(error, FencedError) else 1


def demands(root: str) -> tuple[NodeDemand, ...]:
    """The nodes of the pipeline that the driver shipped to the root."""
    with shared_folder(root) as folder:
        graph = build_graph(load_shipped(folder))
    sources = [node.name for node in graph.nodes.values() if node.kind is NodeKind.SOURCE]
    turns = {name: turn for turn, name in enumerate(sources)}
    return tuple(_demand(graph, node, turns.get(node.name, 0)) for node in graph.nodes.values())


def _demand(graph: Graph, node: Node, turn: int) -> NodeDemand:
    standby = node.computation is not None and bool(node.computation.standby)
    name, fixed = NodeName(node.name), why_fixed(node.kind)
    return NodeDemand(name, graph.shards(name), fixed, standby, graph.grain(name), turn)


def _run(
    root: str,
    pipeline: str,
    coordination: Coordination,
    config: MasterConfig,
    listen: str,
    security: Security | None,
) -> None:
    try:
        outside = MasterOutside(
            SystemClock(),
            coordination,
            open_journals(root),
            open_snapshots(root),
            security,
            pipeline,
        )
        process = MasterProcess(config, outside, listen, MasterPace())
        stop_on_signals(process.stop)
        process.run()
    finally:
        coordination.close()


if __name__ == "__main__":
    typer.run(main)
