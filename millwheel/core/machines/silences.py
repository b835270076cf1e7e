"""Tumbling windows of keys that fall silent.

A window with records opens the next one of its key when it fires. If no record comes into that one,
it fires empty. A window without records opens none, so a silent key says so once, and then costs
nothing.
"""

from __future__ import annotations

from millwheel.core.aggregates.aggregation import Aggregation
from millwheel.core.machines.fixed import AlignedMachine
from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.calls import Call
from millwheel.core.windows.contract import Windowing
from millwheel.core.windows.state import WindowState
from millwheel.core.windows.windows import Tumbling, Window
from millwheel.errors import RecordError


class SilencesMachine(AlignedMachine):
    """Windows that fire once, each followed by the result of no records if the next has none."""

    def __init__(self, windowing: Windowing, aggregation: Aggregation, window: Tumbling) -> None:
        super().__init__(windowing, aggregation)
        self._tumbling = window

    def _fire(self, own: WindowState, window: Window, call: Call, last: bool) -> None:
        records = own.count
        super()._fire(own, window, call, last)
        if records and window.end < MAX_TIME:
            self._await(window.end, call)

    def _await(self, start: int, call: Call) -> None:
        """Open the window that begins at ``start``, unless it has records already. Where the
        watermark has passed its end, too, it fires at once."""
        try:
            following = self._tumbling.window(start)
        except RecordError:  # its time zone knows no more years
            return
        if call.state.get(following) is None:
            self._settle(following, WindowState(self.aggregation.create()), following, call)
