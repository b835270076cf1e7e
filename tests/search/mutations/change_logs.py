"""Deliberate mistakes about change logs."""

from __future__ import annotations

from typing import Any

from millwheel.core.machines.change_logs import ChangeLogMachine
from millwheel.core.machines.fixed import AlignedMachine
from millwheel.core.windows.calls import Call
from millwheel.core.windows.state import WindowState
from millwheel.core.windows.windows import GLOBAL_WINDOW, Window
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
