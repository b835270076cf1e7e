"""Collects the state of a run from its processes: the coordinator, the leading injector, and each
worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from millwheel.adapters.grpc.certificates import warning_of
from millwheel.adapters.grpc.master_client import MasterClient
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.adapters.metrics.client import STANDING, fetched
from millwheel.adapters.pb.master_pb2 import DescribeReply, MemberState
from millwheel.adapters.waits import Waiting
from millwheel.control.roots.attach import LiveMembers, connected
from millwheel.control.roots.root import RunInfo
from millwheel.control.roots.shipping import load_shipped
from millwheel.core.grouping.observations import Division, InstanceLoads
from millwheel.core.model.names import NodeName, WorkerName
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeKind, build_graph
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.members import JoinedWorker, read_members
from millwheel.launch.progress.divided_nodes import DividedStanding, divided_standings
from millwheel.launch.progress.late_hour import LateStream, too_late
from millwheel.launch.progress.metrics import DRIVER, driver_address
from millwheel.launch.progress.run_standing import (
    ExposedHost,
    NodeStanding,
    RunStanding,
    WorkerStanding,
    exposed,
    failing,
    node_standings,
    together,
    troubles_of,
)
from millwheel.launch.progress.status_watch import LEADER_ROLE, MASTER_ROLE, addresses, cluster_view
from millwheel.launch.progress.summary import total


@dataclass(slots=True)
class ClusterEntries:
    """The data of a run in the coordinator: range tables by node, and the entries of workers,
    leading injectors and leading masters."""

    tables: Mapping[NodeName, RangeTable] = field(default_factory=dict)
    workers: Mapping[str, bytes] = field(default_factory=dict)
    leaders: Mapping[str, bytes] = field(default_factory=dict)
    masters: Mapping[str, bytes] = field(default_factory=dict)

    def joined(self) -> dict[str, JoinedWorker]:
        """The workers by incarnation."""
        return read_members(self.workers)


def asked(root: Path, run: RunInfo) -> RunStanding:
    """The present state of the run on a root. Raises UnavailableError when no injector leads."""
    graph = build_graph(load_shipped(str(root)))
    security = load_security(run.security, "client")
    with connected(run) as coordination:
        cluster = ClusterEntries(
            coordination.tables(),
            LiveMembers(coordination, "workers").now(),
            LiveMembers(coordination, LEADER_ROLE).some(),
            LiveMembers(coordination, MASTER_ROLE).now(),
        )
        view = _view(cluster, security)
    return standing_now(graph, run.pipeline, root, cluster, security, view)


def ask(
    graph: Graph, pipeline: str, root: Path, cluster: ClusterEntries, security: Security | None
) -> RunStanding:
    """As :func:`asked`, for a caller that follows the coordinator."""
    return standing_now(graph, pipeline, root, cluster, security, _view(cluster, security))


def standing_now(
    graph: Graph,
    pipeline: str,
    root: Path,
    cluster: ClusterEntries,
    security: Security | None,
    view: ClusterView,
) -> RunStanding:
    """The state from the answers of the injector and of each worker."""
    nodes = node_standings(graph, view, cluster.tables, list(cluster.workers))
    description, driver = _described(cluster, security), driver_address(root)
    steps = _steps(cluster, driver, security)
    workers = _workers(cluster, steps, description)
    waits = together([wait for step in steps.values() for wait in step.waits])
    exposures = tuple(
        ExposedHost(e.host, e.serving, e.spares, e.serving - e.spares)
        for e in description.exposures
    )
    driver_step = steps.get(DRIVER, _Step())
    divided = divided_standings(
        graph,
        [each for step in steps.values() for each in step.divided.divisions],
        [each for step in steps.values() for each in step.divided.loads],
    )
    facts = (graph, pipeline, str(root), view, nodes, workers, exposures, driver, waits)
    return standing_of(*facts, driver_step.deaths, ending(security), divided, driver_step.late)


def standing_of(
    graph: Graph,
    pipeline: str,
    root: str,
    view: ClusterView,
    nodes: tuple[NodeStanding, ...],
    workers: tuple[WorkerStanding, ...],
    exposures: tuple[ExposedHost, ...],
    metrics: str,
    waits: tuple[Waiting, ...] = (),
    deaths: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    divided: tuple[DividedStanding, ...] = (),
    late: tuple[LateStream, ...] = (),
) -> RunStanding:
    """All of it together."""
    counters = {name: node.counters for name, node in view.nodes.items()}
    read = total(graph, counters, "records_in", NodeKind.SOURCE)
    dead = sum(node.counters.get("dead_letters", 0) for node in nodes)
    wait_texts = [wait.in_words() for wait in waits]
    troubles = (
        *warnings,
        *wait_texts,
        *deaths,
        *troubles_of(nodes, workers),
        *failing(view),
        *exposed(exposures, workers),
        *too_late(graph, late),
    )
    about = (pipeline, root, read, dead, nodes, workers, troubles, metrics)
    return RunStanding(*about, exposures, waits, deaths, divided, late)


def ending(security: Security | None) -> tuple[str, ...]:
    """A warning when the run's certificates end soon or have expired."""
    if security is None or security.tls is None:
        return ()
    try:
        warning = warning_of(security.tls.current().ends())
    except SetupError as error:
        return (str(error),)
    return (warning,) if warning else ()


def _view(cluster: ClusterEntries, security: Security | None) -> ClusterView:
    """The answer of the leading injector. Raises UnavailableError when there is none."""
    for address in addresses(cluster.leaders).values():
        return cluster_view(fetch_status(address, security=security))
    raise UnavailableError("No injector leads at the moment; ask again in a second")


class _Call(msgspec.Struct):
    shard: str
    what: str
    key: str


class _Divided(msgspec.Struct, frozen=True):
    divisions: tuple[Division, ...] = ()
    loads: tuple[InstanceLoads, ...] = ()


class _Step(msgspec.Struct):
    step_s: float = 0.0
    where: str = ""
    calls: tuple[_Call, ...] = ()
    waits: tuple[Waiting, ...] = ()
    deaths: tuple[str, ...] = ()
    divided: _Divided = _Divided()
    late: tuple[LateStream, ...] = ()


def _described(cluster: ClusterEntries, security: Security | None) -> DescribeReply:
    """The leading master's reply about workers and hosts; empty while none leads."""
    for address in addresses(cluster.masters).values():
        with suppress(UnavailableError):
            return MasterClient(address, security).members()
    return DescribeReply()


def _steps(cluster: ClusterEntries, driver: str, security: Security | None) -> dict[str, _Step]:
    """The answer of each worker and of the driver: the state of its step, and its waits."""
    served = {name: worker.metrics for name, worker in cluster.joined().items() if worker.metrics}
    endpoints = served | ({DRIVER: driver} if driver else {})
    return {
        name: msgspec.json.decode(text, type=_Step)
        for name, text in fetched(endpoints, STANDING, security).items()
    }


def _workers(
    cluster: ClusterEntries, steps: Mapping[str, _Step], description: DescribeReply
) -> tuple[WorkerStanding, ...]:
    joined, at = cluster.joined(), addresses(cluster.workers)
    owned = Counter(entry.owner for table in cluster.tables.values() for entry in table.shards)
    members: dict[str, MemberState] = {member.worker: member for member in description.members}
    standings = []
    for name, worker in sorted(joined.items(), key=lambda each: each[1].slot):
        step = steps.get(name, _Step())
        calls = tuple(f"{call.what} of key {call.key} in {call.shard}" for call in step.calls)
        member = members.get(name, MemberState(weight=worker.weight, slowness=1.0))
        about = (step.step_s, step.where, calls, member.weight, member.slowness, member.memory)
        where = (worker.host, worker.rack)
        standings.append(
            WorkerStanding(
                name, worker.slot, at[name], owned[WorkerName(name)], name in steps, *about, *where
            )
        )
    return tuple(standings)
