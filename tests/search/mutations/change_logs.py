"""Deliberate mistakes about change logs, and about what is made of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.aggregates import record_entries
from millwheel.core.aggregates.record_entries import KeptEntries
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.change_logs import FleetingGroups, LastingGroups
from millwheel.core.columns.state.growing_groups import GrowingGroups
from millwheel.core.columns.state.newest import NewestOfKey
from millwheel.core.columns.state.pair_set import PairSet
from millwheel.core.lazy_polars import pl
from millwheel.core.machines.aligned_windows import AlignedMachine
from millwheel.core.machines.change_logs import ChangeLogMachine
from millwheel.core.machines.triggers import TriggeredMachine
from millwheel.core.model.keys import Key
from millwheel.core.windows.calls import Call, Gone
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.core.windows.state import WindowState, as_state
from millwheel.core.windows.windows import GLOBAL_WINDOW, Window
from millwheel.engine.workers.operators.windows.change_log import ChangeLogOperator
from millwheel.engine.workers.operators.windows.outputs import WindowOutputs
from millwheel.engine.workers.operators.windows.table import WindowCells
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=8, features="change_log", variants="reference", first=16)
def versions_have_the_time_of_their_newest_records() -> Context:
    """A version has the latest time of the records that are new in it, not of its group."""

    def wrong(
        self: ChangeLogMachine, own: WindowState, window: Window, call: Call, last: bool
    ) -> None:
        AlignedMachine._emit(self, own, window, call, last)

    return replaced(ChangeLogMachine, "_emit", wrong)


@mistake(within=20, features="change_log behind_change_log", variants="reference")
def groups_of_nothing_stay() -> Context:
    """A group whose records have all been taken back keeps its time."""

    def wrong(self: Any, own: WindowState, call: Call) -> None:
        self._renew(own, call)
        call.state[GLOBAL_WINDOW] = own

    return replaced(ChangeLogMachine, "_drop", wrong)


@mistake(within=8, features="having change_log", variants="reference", first=4)
def what_is_left_out_is_taken_back() -> Context:
    """A record that takes back a result is shown although the result was not."""

    def wrong(self: WindowOutputs, row: dict[str, Any], *others: Any) -> Any:
        if RETRACTION_FIELD in row:
            return row
        return right(self, row, *others)

    right = WindowOutputs.shown
    return replaced(WindowOutputs, "shown", wrong)


@mistake(within=4, features="top change_log", variants="reference")
def rows_are_taken_back_at_their_own_time_alone() -> Context:
    """A row that goes when another comes, at the time of that, is not found."""
    right = TriggeredMachine._drop_kept

    def wrong(self: TriggeredMachine, own: WindowState, gone: Gone, call: Call) -> bool:
        if [gone.timestamp, gone.value] not in own.kept:
            self._not_held(gone, call)
            return False
        return right(self, own, gone, call)

    return replaced(TriggeredMachine, "_drop_kept", wrong)


@mistake(within=4, features="versions_in_columns", first=3)
def versions_are_those_of_a_bundle_alone() -> Context:
    """What columns have of its keys is not looked at."""

    def wrong(self: LastingGroups, keys: pl.Series) -> pl.DataFrame | None:
        return None

    return replaced(LastingGroups, "of_keys", wrong)


@mistake(within=4, features="taken_back_in_columns", variants="together", first=4)
def what_is_taken_back_in_columns_is_added() -> Context:
    """The groups of records that are taken back keep their sign."""

    def wrong(self: ColumnPlan) -> list[pl.Expr]:
        return []

    return replaced(ColumnPlan, "_negated", wrong)


@mistake(within=4, features="taken_back_in_columns", variants="uncached", first=2)
def columns_take_no_version_back() -> Context:
    """New versions come without those that they replace."""
    right = ChangeLogOperator._emit_versions

    def wrong(self: ChangeLogOperator, old: Any, new: pl.DataFrame, bundle: Any) -> None:
        right(self, None, new, bundle)

    return replaced(ChangeLogOperator, "_emit_versions", wrong)


@mistake(within=4, features="taken_back_in_columns", variants="large large-crashes", first=6)
def rows_do_not_know_what_columns_have_said() -> Context:
    """A group that has left the columns takes back none of its versions."""
    right = ChangeLogMachine.on_fired

    def wrong(self: ChangeLogMachine, state: Any, key: Key, *parts: Any) -> None:
        right(self, state, key, *parts)
        own = as_state(state.get(GLOBAL_WINDOW))
        if own is not None:
            own.emitted = []

    return replaced(ChangeLogMachine, "on_fired", wrong)


@mistake(within=4, features="versions_in_columns", variants="crashes", first=10)
def groups_in_columns_are_gone_with_the_worker() -> Context:
    """The next owner begins with nothing."""

    def wrong(self: LastingGroups, number: int, *parts: Any) -> None:
        self._changes.gone.append(number)
        self._next_number = max(self._next_number, number + 1)

    return replaced(LastingGroups, "restore", wrong)


@mistake(within=4, features="versions_in_columns", variants="large large-crashes", first=3)
def keys_in_rows_begin_anew_in_columns() -> Context:
    """Nobody asks which keys are in rows. (Some have left the columns.)"""

    def wrong(self: WindowCells, keys: Sequence[Key], slot: Any) -> list[Key]:
        return []

    return replaced(WindowCells, "among", wrong)


@mistake(within=4, features="versions_in_columns", variants="large large-crashes")
def keys_that_come_back_stay_in_rows() -> Context:
    """What rows had of them is merged into what columns have, and is found once more."""
    right = ChangeLogOperator._taken_back

    def wrong(self: ChangeLogOperator, keys: Sequence[Key]) -> set[Key]:
        save, self._cells.save = self._cells.save, lambda *parts: None  # type: ignore[method-assign]
        try:
            return right(self, keys)
        finally:
            self._cells.save = save  # type: ignore[method-assign]

    return replaced(ChangeLogOperator, "_taken_back", wrong)


@mistake(within=4, features="counted_in_columns", first=3)
def values_of_other_bundles_count_again() -> Context:
    """A value is new where its bundle alone has not had it."""

    def wrong(self: GrowingGroups) -> PairSet:
        return PairSet()

    return replaced(GrowingGroups, "_set", wrong)


@mistake(within=4, features="counted_in_columns", variants="crashes")
def values_are_forgotten_with_the_worker() -> Context:
    """The next owner has the segments, and does not look for what they have."""

    def wrong(self: GrowingGroups) -> PairSet:
        if self._seen is None:
            self._seen = PairSet()
        return self._seen

    return replaced(GrowingGroups, "_set", wrong)


@mistake(within=6, features="counted_in_columns", variants="large large-crashes")
def only_the_newest_values_go_on_in_rows() -> Context:
    """Those of older segments are left behind as a group leaves the columns."""

    def wrong(self: GrowingGroups, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return NewestOfKey().merge(parts)

    return replaced(GrowingGroups, "together", wrong)


@mistake(within=6, features="forgotten_in_columns", first=4)
def groups_in_columns_go_on_for_ever() -> Context:
    """Nobody asks how long ago the newest record of a group was."""

    def wrong(self: FleetingGroups, old: Any, new: pl.DataFrame) -> tuple[Any, list[Key]]:
        return old, []

    return replaced(FleetingGroups, "going_on", wrong)


@mistake(within=6, features="forgotten_in_columns", first=4)
def groups_end_with_whole_bundles_only() -> Context:
    """A group that ends within a bundle goes on there."""
    right = FleetingGroups.going_on

    def wrong(self: FleetingGroups, old: Any, new: pl.DataFrame) -> tuple[Any, list[Key]]:
        return right(self, old, new)[0], []

    return replaced(FleetingGroups, "going_on", wrong)


@mistake(within=8, features="whole_in_columns", variants="together", first=11)
def whole_records_of_a_bundle_take_the_place_of_those_held() -> Context:
    """What columns hold of a group is not looked at when its new records are chosen."""

    def wrong(self: KeptEntries, lists: pl.Series) -> pl.Series:
        return lists.list.tail(self._aggregator.k)

    return replaced(KeptEntries, "together", wrong)


@mistake(within=4, features="whole_in_columns", variants="together", first=18)
def whole_records_in_columns_have_no_direction() -> Context:
    """What is held is in ascending order."""
    right = record_entries.sort_columns

    def wrong(values: Any, kinds: Any, descending: Any) -> Any:
        return right(values, kinds, [False for _ in descending])

    return replaced(record_entries, "sort_columns", wrong)
