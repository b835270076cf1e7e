"""Deliberate mistakes in reports by number."""

from __future__ import annotations

from typing import Any

from millwheel.adapters.grpc.node_reports import NodeReports
from millwheel.control.injector.node import NodeState
from millwheel.control.injector.range_index import RangeIndex
from millwheel.control.injector.session_directory import SessionDirectory
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=60, faults="zombie", workload="numbers", first=29)
def number_believed_without_its_token() -> Context:
    """A number stands for its shard, also when the table has given the shard another token."""

    def wrong(self: SessionDirectory, index: RangeIndex, version: int) -> None:
        self.rows = index.find(self.shards.tolist())
        self.version = version

    return replaced(SessionDirectory, "look_up", wrong)


class _OneForAll(dict[int, SessionDirectory]):
    """Whoever connects gets the same directory."""

    def get(self, key: int, default: Any = None) -> Any:
        return super().get(0, default)

    def setdefault(self, key: int, default: Any = None) -> Any:
        return super().setdefault(0, default)


@mistake(within=10)
def numbers_shared_by_sessions() -> Context:
    """A number is taken for what any connection has last named by it."""
    right = NodeState.__init__

    def wrong(self: NodeState) -> None:
        right(self)
        self._directories = _OneForAll()

    return replaced(NodeState, "__init__", wrong)


@mistake(within=10, faults="injector cut")
def numbers_of_the_session_before() -> Context:
    """A worker that connects again goes on with its numbers, although nobody there knows them."""
    right = NodeReports.begin

    def wrong(self: NodeReports) -> None:
        right(self)
        self._changed[list(self._fresh)] = self._any_changed = True
        self._fresh.clear()

    return replaced(NodeReports, "begin", wrong)
