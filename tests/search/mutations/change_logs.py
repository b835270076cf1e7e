"""Deliberate mistakes about change logs, and about what is made of results."""

from __future__ import annotations

from typing import Any

from millwheel.core.machines.change_logs import ChangeLogMachine
from millwheel.core.machines.fixed import AlignedMachine
from millwheel.core.machines.triggered import TriggeredMachine
from millwheel.core.windows.calls import Call, Gone
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.core.windows.state import WindowState
from millwheel.core.windows.windows import GLOBAL_WINDOW, Window
from millwheel.engine.workers.operators.windowed import WindowedOperator
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=8, features="change_log", variants="reference", first=16)
def versions_have_the_time_of_their_newest_records() -> Context:
    """A version has the latest time of the records that are new in it, not of its group."""

    def wrong(
        self: ChangeLogMachine, own: WindowState, window: Window, call: Call, last: bool
    ) -> None:
        AlignedMachine._speak(self, own, window, call, last)

    return replaced(ChangeLogMachine, "_speak", wrong)


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

    def wrong(self: WindowedOperator, row: dict[str, Any], *others: Any) -> Any:
        if RETRACTION_FIELD in row:
            return row
        return right(self, row, *others)

    right = WindowedOperator.show
    return replaced(WindowedOperator, "show", wrong)


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
