"""Runs a join in windows record by record: each key's window is an entry, and what it says when it
fires may span several commits (:mod:`millwheel.engine.workers.operators.suspension`).

The windows themselves wait for nothing. A firing that has no more room is stored with the records
that it is made of, and the next firings of its key wait behind it, in their order. So the results
are those of one step, whatever the windows take, or forget, meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from millwheel.core.model.records import Record
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.production_ids import Cause
from millwheel.core.windows.contract import Times
from millwheel.core.windows.panes import Pane
from millwheel.engine.workers.bundle.attempts import Subject
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import timer_mark
from millwheel.engine.workers.operators.record_joins import Joined
from millwheel.engine.workers.operators.suspension import SUSPENDED_TAG, Resumed
from millwheel.engine.workers.operators.windows.window_callback import WindowCallbackOperator


class WindowJoinOperator(WindowCallbackOperator):
    """See the head of this file."""

    _instance: Joined

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._suspension = self._context.suspension
        if self._identified:
            # the name of a production is its number in its window's own step
            self._suspension.most_room = sys.maxsize
        self._room = 0
        """Before the call that is tried now."""

    def run(self, bundle: Bundle) -> None:
        super().run(bundle)
        self._suspension.hold()

    def intake(self, waiting: int, now_us: int, watermark: int) -> int:
        return 0 if self._suspension.crowded else waiting

    def _take(self, bundle: Bundle, times: Times) -> None:
        super()._take(bundle, times)
        self._suspension.room = self._suspension.most_room

    def _emit(self, pane: Pane, cause: Cause, bundle: Bundle) -> None:
        self._room = self._suspension.room
        super()._emit(pane, cause, bundle)

    def _process(self, pane: Pane, records: list[Record], cause: Cause) -> None:
        self._suspension.room = self._room  # of an attempt before, nothing is left
        self._join(pane, records)

    def _records(self, pane: Pane) -> list[Record]:
        """Those of a pane. They are no copies: a join changes none."""
        rows: list[Any] = pane.result
        return [
            Record(
                pane.key, self._typed_value(self._streams[number], value), at, self._streams[number]
            )
            for (number, value), at in rows
        ]

    def _join(self, pane: Pane, records: list[Record]) -> None:
        self._instance.process_window(self._context, pane.key, pane.window, records)

    def _fire(self, due: Iterable[Due], times: Times, bundle: Bundle) -> None:
        for timer in due:
            if timer.tag == SUSPENDED_TAG:
                self._go_on(timer, bundle)
            else:
                super()._fire([timer], times, bundle)

    def _go_on(self, due: Due, bundle: Bundle) -> None:
        """The firings of a key that wait."""
        self._context.point(due.key, MIN_TIME)
        for each in self._instance.resumed(self._context):
            self._go_on_with(each, due, bundle)

    def _go_on_with(self, firing: Resumed, due: Due, bundle: Bundle) -> None:
        room = self._suspension.room

        def call() -> None:
            self._suspension.room = room
            self._context.point(due.key, firing.timestamp)
            self._instance.process_record(self._context, firing)
            self._state.settle()

        start, end = firing.value.window
        bounds = {"window_start": start, "window_end": end}
        about = Subject("window", due.key, firing.timestamp, bounds)
        self._attempts.run(bundle, call, lambda: about, lambda: timer_mark(due))
