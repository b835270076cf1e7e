"""Runs a join in windows record by record: each key's window is an entry, and the results of a
firing may span several commits (:mod:`millwheel.engine.workers.operators.suspension`).

The windows themselves wait for nothing. A firing that has no more room is stored with its records,
and the next firings of its key wait behind it, in their order. So the results are those of one
step, even if the windows take or forget records meanwhile.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress, islice
from typing import Any

from msgspec.structs import replace

from millwheel.core.aggregates.families.rows import content
from millwheel.core.model.records import Record
from millwheel.core.model.timers import Due
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.joins import WindowSide
from millwheel.core.pipeline.production_ids import Cause
from millwheel.core.windows.contract import Effects, Times
from millwheel.core.windows.panes import Pane
from millwheel.engine.workers.bundle.attempts import Subject
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import timer_mark
from millwheel.engine.workers.operators.record_joins import Joined
from millwheel.engine.workers.operators.suspension import SUSPENDED_TAG, Resumed
from millwheel.engine.workers.operators.windows.callback import WindowCallbackOperator


class WindowJoinOperator(WindowCallbackOperator):
    """A join whose windows fire once."""

    _instance: Joined

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._suspension = self._context.suspension
        if self._identified:
            # the name of a production is its number in its window's own step
            self._suspension.most_room = sys.maxsize
        self._room = 0
        """The room before the call that is tried now."""

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
        """The records of a pane. They are not copied: a join changes none."""
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
        """Go on with the firings of a key that wait."""
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


class FiringAgainOperator(WindowJoinOperator):
    """A join whose windows may fire more than once: each firing emits the changes since the one
    before.

    The windows work as they do with ``accumulation: retracting``: a window that fires again gives
    what it fired with before, as retractions, and all that it has. Here the records of the two are
    compared, so that only results with other records are made. A window that is another by then
    (sessions that grew, or became one), or has no records any more, takes back all of its results.

    Where no record is taken back, windows remember only how many records they fired with: those are
    the first, in the order of arrival, of all that lie in their bounds.
    """

    _standing: tuple[tuple[Pane, Cause], ...] = ()
    """Emitted panes that are to be taken back, which the next pane may replace."""
    _before: Pane | None = None
    """The pane of the same window before the one that is emitted now."""

    def _perform(self, effects: Effects, cause: Cause, bundle: Bundle) -> None:
        super()._perform(effects, cause, bundle)
        self._take_back(self._stood(), bundle)

    def _emit(self, pane: Pane, cause: Cause, bundle: Bundle) -> None:
        if pane.retraction:
            # those of a window come right before what replaces them
            self._standing = (*self._standing, (pane, cause))
            return
        before, others = None, []
        for each, its in self._stood():
            if before is None and (each.key, each.window) == (pane.key, pane.window):
                before = each
            else:
                others.append((_whole(each, pane), its))
        self._take_back(others, bundle)
        self._before = before
        super()._emit(pane, cause, bundle)

    def _stood(self) -> tuple[tuple[Pane, Cause], ...]:
        stood, self._standing = self._standing, ()
        return stood

    def _take_back(self, panes: Iterable[tuple[Pane, Cause]], bundle: Bundle) -> None:
        for each, cause in panes:
            super()._emit(each, cause, bundle)

    def _join(self, pane: Pane, records: list[Record]) -> None:
        join = self._instance
        if pane.retraction:
            join.take_back(self._context, pane.key, pane.window, records)
        elif self._before is None:
            super()._join(pane, records)
        else:
            sides = self._changes(self._before, pane, records)
            join.change(self._context, pane.key, pane.window, sides)

    def _changes(self, before: Pane, pane: Pane, records: list[Record]) -> list[WindowSide]:
        stay, gone = compared(before.result, pane.result)
        went = list(compress(self._records(before), gone)) if any(gone) else []
        stayed = list(compress(records, stay))
        came = [record for record, old in zip(records, stay, strict=True) if not old]
        return [
            WindowSide(*(_values(stream, each) for each in (went, stayed, came)))
            for stream in self._streams
        ]


def compared(before: int | Sequence[Any], now: Sequence[Any]) -> tuple[list[bool], list[bool]]:
    """For each record that a window has, whether it was there ``before``; and for each that was
    there, whether it has gone. The number of those before is enough where none goes."""
    if isinstance(before, int):
        return [number < before for number in range(len(now))], []
    # As bytes: a NaN does not equal itself, and 1 equals 1.0.
    names = [content(value) for value, _ in before]
    left = Counter(names)
    return [_taken(left, content(value)) for value, _ in now], [
        _taken(left, each) for each in names
    ]


def _taken(left: Counter[bytes], name: bytes) -> bool:
    is_there = left[name] > 0
    left[name] -= is_there
    return is_there


def _whole(before: Pane, now: Pane) -> Pane:
    """A pane with its records: a later pane has all of them, where only their number was
    remembered."""
    if not isinstance(before.result, int):
        return before
    start, end = before.window
    inside = (record for record in now.result if start <= record[1] < end)
    return replace(before, result=list(islice(inside, before.result)))


def _values(stream: str, records: Iterable[Record]) -> list[Any]:
    return [record.value for record in records if record.stream == stream]
