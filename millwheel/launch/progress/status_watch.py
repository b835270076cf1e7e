"""Polls the injector for the state of a run, a few times a second, on a thread that nothing waits
for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from millwheel.adapters.grpc.security import Security
from millwheel.adapters.grpc.watermark_client import StatusLine
from millwheel.adapters.pb import injector_pb2
from millwheel.adapters.ports import Coordination
from millwheel.core.model.failures import firsts_in, of_nodes, plain_counters, tallies_in
from millwheel.core.model.range_table import RangeTable
from millwheel.core.pipeline.graph import ClusterView, NodeView
from millwheel.errors import MillwheelError
from millwheel.launch.members import STOP, JoinedWorker, read_members
from millwheel.launch.progress.late_hour import LateHour

_INTERVAL_S = 0.2  # between questions about progress
_YOUNG_INTERVAL_S = 0.02  # the same when the run begins
_INTERVAL_PER_AGE = 0.1
"""A young run is polled more often, so that noticing the end of a short run takes only a small part
of its time."""
LEADER_ROLE = "injector-leader"
MASTER_ROLE = "masters-leader"
MASTER_ROLE = "masters-leader"
LEAVING_ROLE = "leaving"
SEATS_ROLE = "seats"


class _Address(msgspec.Struct):
    address: str
    metrics: str = ""


class StatusWatcher:
    """Follows the leading injector. ``latest`` is the newest answer, None before the first, and
    ``late`` the late records in the answers of the last hour. ``members`` are the workers that are
    members now, by incarnation, and ``entries`` the data that they have registered. ``stop_asked``
    receives the requests to stop the driver."""

    def __init__(
        self,
        coordination: Callable[[], Coordination],
        security: Security | None = None,
        stop_asked: Callable[[Mapping[str, bytes]], None] | None = None,
    ) -> None:
        self._security = security
        self._stop_asked = stop_asked
        self._connect = coordination
        self._address = ""
        self._line: StatusLine | None = None
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="status")
        self._began_s = time.monotonic()
        self.latest: ClusterView | None = None
        self.late = LateHour()
        self.members: Mapping[str, JoinedWorker] = {}
        self.entries: Mapping[str, bytes] = {}
        self.services: dict[str, str] = {}
        """The addresses of ``/metrics`` of master and injector, by name."""
        self.tables: dict[str, RangeTable] = {}
        self._draining: frozenset[str] = frozenset()
        self._seats: frozenset[str] = frozenset()

    def start(self) -> None:
        """Start polling."""
        self._began_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._thread.join()

    @property
    def workers(self) -> frozenset[JoinedWorker]:
        """The workers that are members now."""
        return frozenset(self.members.values())

    @property
    def owners(self) -> frozenset[str]:
        """Every incarnation that a range table names as an owner or as the next owner."""
        entries = [entry for table in [*self.tables.values()] for entry in table.shards]
        return frozenset(
            {entry.owner for entry in entries} | {entry.next_owner for entry in entries}
        )

    def drain(self, incarnations: frozenset[str]) -> None:
        """Set the workers that must give their shards away. The master is notified soon, and again
        after an outage."""
        self._draining = incarnations

    def seat(self, workers: int) -> None:
        """Set the number of serving workers. The master is notified soon, and again after an
        outage."""
        self._seats = frozenset({str(workers)})

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow_session(self._connect())
            except MillwheelError:
                self._stop.wait(_INTERVAL_S)

    def _follow_session(self, session: Coordination) -> None:
        """Poll until stopped or until the ZooKeeper session is gone."""
        self._lost.clear()
        session.on_lost(self._lost.set)
        session.watch_members(LEADER_ROLE, self._leader_changed)
        session.watch_members(MASTER_ROLE, partial(self._service_changed, "master"))
        session.watch_members("workers", self._workers_changed)
        if self._stop_asked is not None:
            session.watch_members(STOP, self._stop_asked)
        session.watch_tables(self._table_changed)
        leaving: frozenset[str] = frozenset()
        seats: frozenset[str] = frozenset()
        try:
            while not self._stop.wait(self._pause_s()) and not self._lost.is_set():
                leaving = _set_members(session, LEAVING_ROLE, self._draining, leaving)
                seats = _set_members(session, SEATS_ROLE, self._seats, seats)
                self._ask()
        finally:
            self._hang_up()
            session.close()

    def _pause_s(self) -> float:
        return pause_s(time.monotonic() - self._began_s)

    def _leader_changed(self, members: Mapping[str, bytes]) -> None:
        self._address = next(iter(addresses(members).values()), "")
        self._service_changed("injector", members)

    def _service_changed(self, name: str, members: Mapping[str, bytes]) -> None:
        for data in members.values():
            self.services[name] = msgspec.json.decode(data, type=_Address).metrics

    def _workers_changed(self, members: Mapping[str, bytes]) -> None:
        self.entries, self.members = members, read_members(members)

    def _table_changed(self, table: RangeTable) -> None:
        self.tables[table.computation] = table

    def _ask(self) -> None:
        address = self._address
        if self._line is not None and self._line.address != address:
            self._hang_up()
        if not address:
            return
        if self._line is None:
            self._line = StatusLine(address, self._security)
        try:
            self.latest = cluster_view(self._line.ask())
            self.late.note(self.latest, time.monotonic())
        except MillwheelError:
            self._hang_up()  # it is being replaced; the next answer comes from its successor

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def _set_members(
    session: Coordination, role: str, names: frozenset[str], former: frozenset[str]
) -> frozenset[str]:
    """Make these the members of a role for as long as this session lives. Returns the names that
    are set."""
    for name in names - former:
        session.join(role, name, b"{}")
    for name in former - names:
        session.leave(role, name)
    return names


def pause_s(age_s: float) -> float:
    """The time to wait before the next poll of a run of this age."""
    return min(_INTERVAL_S, max(_YOUNG_INTERVAL_S, age_s * _INTERVAL_PER_AGE))


def addresses(members: Mapping[str, bytes]) -> dict[str, str]:
    """The gRPC address of each member, by its name."""
    return {
        name: msgspec.json.decode(data, type=_Address).address for name, data in members.items()
    }


def cluster_view(reply: injector_pb2.StatusReply) -> ClusterView:
    """The injector's answer as a :class:`ClusterView`."""
    counters = of_nodes({node.node: plain_counters(node.counters) for node in reply.nodes})
    nodes = {
        node.node: NodeView(
            name=node.node,
            watermark_us=node.watermark_us,
            complete=node.complete,
            holder=f"{node.holder_shard}: {node.holder}" if node.holder else node.holder_shard,
            counters=counters[node.node],
            tallies=tallies_in(node.counters),
            firsts=firsts_in(node.counters),
        )
        for node in reply.nodes
    }
    return ClusterView(nodes, tuple(reply.latency_quantiles_ms))
