"""Detects when a run has caught up with the input that existed when it began (``millwheel run
--until-caught-up``): no record and no watermark is in flight."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from millwheel.adapters.ports import Clock, Coordination
from millwheel.control.injector.events import (
    PublishDue,
    RangesChanged,
    ReportColumns,
    ReportsArrived,
)
from millwheel.control.injector.state import InjectorState
from millwheel.control.savepoints.orders import Standing
from millwheel.control.savepoints.runtime import Taker
from millwheel.control.savepoints.state import SavepointRequest, Taking
from millwheel.core.model.failures import of_nodes, plain_counters
from millwheel.core.model.range_table import RangeTable
from millwheel.core.model.times import IDLE_TIME, MIN_TIME
from millwheel.core.model.watermark import ShardReport, Watermarks
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeView
from millwheel.errors import MillwheelError


def has_caught_up(
    graph: Graph, tables: Sequence[RangeTable], standing: Mapping[str, Standing]
) -> bool:
    """Whether no shard of a computation would get a higher watermark than it has, and every source
    that is read to its end has received the watermarks of the streams that it meets. All shards
    stand still.

    Their reports are combined by the rules of the watermark service, so it does not matter how many
    of them the service itself has received."""
    service = InjectorState()
    for table in tables:
        service.handle(RangesChanged(table))
        reports = [
            ShardReport(entry.shard, at.token, at.reports, idle_us=at.idle_us)
            for entry, at in [(entry, standing[entry.shard]) for entry in table.shards]
        ]
        service.handle(ReportsArrived(1, table.computation, ReportColumns.of(reports)))
    service.handle(PublishDue())
    published = Watermarks()
    published.rise(service.published())
    if any(_lags(graph, table, standing, published) for table in tables):
        return False
    return all(
        standing[entry.shard].received >= published.lowest_of(graph.feeders[table.computation])
        for table in tables
        if graph.nodes[table.computation].computation is not None
        for entry in table.shards
    )


def _lags(
    graph: Graph, table: RangeTable, standing: Mapping[str, Standing], published: Watermarks
) -> bool:
    """Whether a silent source will still follow another one."""
    stream = graph.nodes[table.computation].stream
    reports = [standing[entry.shard] for entry in table.shards]
    if (
        stream is None
        or stream.idle_after_us is None
        or any(at.reports != IDLE_TIME for at in reports)
    ):
        return False
    return max(at.idle_us for at in reports) < published.furthest_of(
        graph.fellows(table.computation)
    )


def counters_of(
    standing: Mapping[str, Standing], tables: Sequence[RangeTable]
) -> dict[str, dict[str, int]]:
    """The counters of all shards, summed by node."""
    by_node: dict[str, dict[str, int]] = {}
    for table in tables:
        sums = by_node.setdefault(table.computation, {})
        for entry in table.shards:
            for name, count in standing[entry.shard].counters.items():
                sums[name] = sums.get(name, 0) + count
    return by_node


_STEP_S = 0.02  # between looks at the answers of workers
_AGAIN_S = 0.5  # before another session, after one was lost
_PATIENCE_US = 2**62  # such a run takes as long as it takes


class CatchingUp:
    """Polls all shards, on a thread of its own, until they have processed the input up to its ends.
    Then they pause until :meth:`close`."""

    def __init__(self, graph: Graph, connect: Callable[[], Coordination], clock: Clock) -> None:
        self._graph = graph
        self._connect = connect
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="catching-up")
        self._counters: Mapping[str, Mapping[str, int]] | None = None

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def view(self, latest: ClusterView | None) -> ClusterView | None:
        """The state of the graph once it has caught up, else None. ``latest`` is the injector's
        latest answer; the counters are those at which all shards pause."""
        counters = self._counters
        if counters is None:
            return None
        views = latest.nodes if latest is not None else {}
        nodes = {
            name: replace(
                views.get(name, NodeView(name, MIN_TIME, True, "", {})),
                counters=counted,
            )
            for name, counted in of_nodes(
                {name: plain_counters(each) for name, each in counters.items()}
            ).items()
        }
        return ClusterView(nodes, latest.latency_ms if latest is not None else ())

    def _follow(self) -> None:
        while not self._stop.is_set():
            # the session is gone: so are the orders, and all goes on meanwhile
            with suppress(MillwheelError):
                self._follow_session(self._connect())
            self._stop.wait(_AGAIN_S)

    def _follow_session(self, session: Coordination) -> None:
        lost = threading.Event()
        session.on_lost(lost.set)
        request = SavepointRequest(
            f"c{secrets.token_hex(6)}",
            "",
            tuple(self._graph.nodes),
            patience_us=_PATIENCE_US,
            caught_up=partial(has_caught_up, self._graph),
        )
        taker = Taker(Taking(request), session)
        try:
            while not self._stop.is_set() and not lost.is_set():
                if taker.step(self._clock.monotonic_us()):
                    self._found(taker.taking.stands, taker)
                    self._stop.wait()
                self._stop.wait(_STEP_S)
        finally:
            with suppress(MillwheelError):
                taker.release()
            session.close()

    def _found(self, stands: Mapping[str, Standing], taker: Taker) -> None:
        self._counters = counters_of(stands, taker.taking.tables)
