"""Deliberate mistakes in current rows, in the rows of divided keys, and in records that wait in
columns while their shards move."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import msgspec

from millwheel.core.columns.segments import GroupsKind
from millwheel.core.formats.store_layout import ROW
from millwheel.core.grouping.epochs import EPOCH_US, KeyEpochs
from millwheel.core.pipeline import skew
from millwheel.core.windows.panes import as_retraction
from millwheel.core.windows.windows import Sessions
from millwheel.engine.workers.loop.traffic import Traffic
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.waiting import WaitingOperator
from millwheel.engine.workers.sinks.upsert import Table, UpsertOperator
from millwheel.engine.workers.sources import key_epochs
from millwheel.engine.workers.sources.partition import Part
from millwheel.engine.workers.state import column_segments
from tests.sim import mistakes_of_both
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=5, workload="tables")
def retraction_taken_for_a_row() -> Context:
    """A sink of the current rows keeps what was taken back."""
    right = Table.apply

    def wrong(self: Table, overlay: Any, record: Any) -> None:
        back = as_retraction(record.value)
        right(self, overlay, record if back is None else replace(record, value=back.value))

    return replaced(Table, "apply", wrong)


@mistake(within=20, workload="tables")
def rows_forgotten_by_a_commit() -> Context:
    """Changes of the current rows are not part of the commit."""
    right = UpsertOperator.run

    def wrong(self: UpsertOperator, bundle: Any) -> None:
        right(self, bundle)
        for store_key in [
            store_key for store_key in bundle.overlay._changes if store_key.startswith(ROW)
        ][:1]:
            del bundle.overlay._changes[store_key]

    return replaced(UpsertOperator, "run", wrong)


@mistake(within=10, faults="kill kill-again slow-disk sync power", workload="shown", first=6)
def uncommitted_rows_shown() -> Context:
    """A sink that shows at once gets what is not durable yet."""
    return replaced(Traffic, "_may_have_early", lambda self, target: target in self._served)


@mistake(within=3, workload="hot", faults="kill")
def hot_keys_are_found_anew() -> Context:
    """A new owner of a source decides again which keys are hot, also among records that have been
    sent."""
    return replaced(key_epochs, "stored_epochs", lambda partition, store, rules: [])


@mistake(within=5, workload="grouped", faults="kill")
def tables_are_made_anew() -> Context:
    """A new owner of a source makes new tables, also for records that have been sent."""
    return replaced(key_epochs, "stored_epochs", lambda partition, store, rules: [])


@mistake(within=2, workload="trickling", faults="kill kill-again")
def counts_are_lost() -> Context:
    """A new owner of a source counts from nothing: it chooses again for records that have been
    sent."""
    right = KeyEpochs.__init__

    def wrong(
        self: KeyEpochs, rules: Any, epochs: Any = (), position: int = 0, counts: Any = None
    ) -> None:
        right(self, rules, epochs, position)

    return replaced(KeyEpochs, "__init__", wrong)


@mistake(within=2, workload="trickling", faults="kill kill-again")
def counts_of_a_later_position() -> Context:
    """A position is committed with the counts that the source has reached by then."""
    right = Part.write

    def wrong(self: Part, overlay: Any) -> None:
        if self.epochs is not None:
            self.committed = msgspec.structs.replace(self.committed, counts=self.epochs.counts())
        right(self, overlay)

    return replaced(Part, "write", wrong)


@mistake(within=2, workload="trickling", faults="kill kill-again")
def epochs_of_earlier_owners_are_shortened() -> Context:
    """A new owner of a source ends the last epoch where it begins to read, because time has passed:
    it makes a new table for records that have been sent."""

    def wrong(self: KeyEpochs, now_us: int) -> bool:
        return (
            bool(self._epochs)
            and now_us - self._began_us >= EPOCH_US
            and self._epochs[-1].first < self._position
        )

    return replaced(KeyEpochs, "_is_over", wrong)


@mistake(within=3, workload="scattered")
def replay_decides_instances_anew() -> Context:
    """A record of a divided key goes to the next instance, as records arrive, and not to that of
    its number."""
    turn = count()
    return replaced(skew, "instance_of", lambda number, instances: next(turn) % instances)


@mistake(within=10, workload="grouped", faults="kill")
def instances_of_productions_are_chosen_anew() -> Context:
    """A new owner chooses instances for productions that it finds, and they come to others than
    before."""
    return mistakes_of_both.instances_are_chosen_anew()


@mistake(within=6, workload="scattered")
def pieces_of_sessions_hold_their_ends() -> Context:
    """A piece of a session holds the watermark at its end, and not at its first record: the session
    of the whole key may have ended by then."""
    return mistakes_of_both.session_pieces_hold_their_ends()


@mistake(within=6, workload="scattered")
def pieces_of_sessions_stay_apart() -> Context:
    """A final computation takes each piece of a session for a session."""
    return replaced(Sessions, "merge", lambda self, windows: [[window] for window in windows])


@mistake(within=2, faults="merge move kill", workload="waiting")
def an_heir_lets_records_come_that_have_come() -> Context:
    """Of two shards that become one, the one that was behind tells how far both have come."""
    return replaced(column_segments, "_FIRED", (GroupsKind.KEPT,))


@mistake(within=2, workload="waiting")
def what_waits_in_columns_holds_no_watermark() -> Context:
    """What comes of it is late for who takes it."""

    def wrong(self: WaitingOperator, now_us: int) -> Any:
        return CallbackOperator.hold(self, now_us)

    return replaced(WaitingOperator, "hold", wrong)
