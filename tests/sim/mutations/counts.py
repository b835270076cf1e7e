"""Deliberate mistakes in what parts count and keep in memory, which results show late or never."""

from __future__ import annotations

from typing import Any

from millwheel.control.injector.range_index import RangeIndex
from millwheel.control.injector.session_directory import SessionDirectory
from millwheel.control.master.tables.holdings import Holdings, facts_of
from millwheel.core.model.range_table import RangeTable
from millwheel.engine.workers.delivery.inbox import Arrival, Inbox
from millwheel.engine.workers.delivery.outbox import Outbox, OutputChunk
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=2)
def weight_in_flight_never_falls() -> Context:
    """What consumers have applied still counts as in flight, until a shard takes nothing more."""
    right = Outbox._finish

    def wrong(self: Outbox, chunk: OutputChunk) -> None:
        right(self, chunk)
        self.pending_weight += chunk.weight

    return replaced(Outbox, "_finish", wrong)


@mistake(within=2)
def waiting_records_counted_as_taken() -> Context:
    """The records of a bundle leave the count of those that wait twice."""
    right = Inbox.take

    def wrong(self: Inbox, *args: Any) -> list[Arrival]:
        taken = right(self, *args)
        self.records -= sum(len(arrival.batch) for arrival in taken)
        return taken

    return replaced(Inbox, "take", wrong)


@mistake(within=2)
def numbers_keep_their_rows() -> Context:
    """A number of a connection stands for the row that its shard had in an earlier table."""

    def wrong(self: SessionDirectory, index: RangeIndex, version: int) -> None:
        self.version = version

    return replaced(SessionDirectory, "look_up", wrong)


@mistake(within=5)
def former_owners_are_counted() -> Context:
    """A worker counts as an owner although no table names it any more: its membership stays."""
    right = Holdings._note

    def wrong(self: Holdings, table: RangeTable) -> None:
        before = self._facts.get(table.computation)
        right(self, table)
        if before is not None:
            self._owned.update(before.owners - facts_of(table).owners)

    return replaced(Holdings, "_note", wrong)
