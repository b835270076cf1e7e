"""Runs a join whose windows may fire more than once: each firing emits what has changed since the
one before.

The windows work as they do with ``accumulation: retracting``: a window that fires again gives what
it fired with before, as retractions, and all that it has. Here the records of the one are told from
those of the other, so that only pairs with new records are made. A window that is another by then
(sessions that grew, or became one) takes back all of its results, since their bounds are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.formats.store_layout import pack
from millwheel.core.model.records import Record
from millwheel.core.pipeline.joins import WindowSide
from millwheel.core.pipeline.production_ids import Cause
from millwheel.core.windows.panes import Pane
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.joined import Joined
from millwheel.engine.workers.operators.window_callback import WindowCallbackOperator
from millwheel.errors import invariant


class FiringAgainOperator(WindowCallbackOperator):
    """See the head of this file."""

    _standing: Sequence[Pane] = ()
    """What the windows emitted that the next pane replaces."""

    def _emit(self, pane: Pane, cause: Cause, bundle: Bundle) -> None:
        if pane.retraction:
            # those of a window come right before what replaces them
            self._standing = (*self._standing, pane)
            return
        try:
            super()._emit(pane, cause, bundle)
        finally:
            self._standing = ()

    def _process(self, pane: Pane, records: list[Record], cause: Cause) -> None:
        before, join = self._standing, self._instance
        assert isinstance(join, Joined)
        if len(before) == 1 and before[0].window == pane.window:
            is_new = news(before[0].result, pane.result)
            sides = [_side(stream, records, is_new) for stream in self._streams]
            join.change(self._context, pane.key, pane.window, *sides)
            return
        for each in before:
            self._context.point(each.key, each.timestamp, cause)
            join.take_back(self._context, each.key, each.window, self._records(each))
        self._context.point(pane.key, pane.timestamp, cause)
        super()._process(pane, records, cause)


def news(before: int | Sequence[Any], now: Sequence[Any]) -> list[bool]:
    """Of each record that a window has: whether it was not there ``before``. Both are in one order;
    where that is the order of arrival, the number of those before is enough."""
    if isinstance(before, int):
        return [number >= before for number in range(len(now))]
    # As bytes: a NaN does not equal itself, and 1 equals 1.0.
    stood = list(map(pack, before))
    found, is_new = 0, []
    for record in map(pack, now):
        known = found < len(stood) and record == stood[found]
        is_new.append(not known)
        found += known
    invariant(found == len(stood), "a window that fires again has lost records")
    return is_new


def _side(stream: str, records: Sequence[Record], is_new: Sequence[bool]) -> WindowSide:
    old: list[Any] = []
    new: list[Any] = []
    for record, fresh in zip(records, is_new, strict=True):
        if record.stream == stream:
            (new if fresh else old).append(record.value)
    return WindowSide(old, new)
