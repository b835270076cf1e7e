"""Deliberate mistakes about windows, and about the ids of weak productions. The features that a pipeline must have to
show one stand in its docstring."""

from __future__ import annotations

from millwheel.core.panes import Pane
from millwheel.core.production_ids import Cause
from millwheel.core.timers import Due
from millwheel.workers import callbacks, windowed
from tests.search.mistakes import Context, replaced


def timers_named_by_their_time() -> Context:
    """The id of what a timer produces says for when it was set, not by which call. (Weak productions of a callback that
    sets an event-time timer again for a time that has passed.)"""

    def wrong(due: Due) -> Cause:
        return (due.key, due.tag, due.at)

    return replaced(callbacks, "timer_cause", wrong)


def panes_named_by_window_and_number() -> Context:
    """The id of a pane says its window and its number there, not what made it. (Weak productions of count windows, or
    of ``late: refire``.)"""

    def wrong(call: Cause, pane: Pane, complete_once: bool) -> Cause:
        return (pane.key, *pane.window, pane.index, pane.retraction)

    return replaced(windowed, "pane_cause", wrong)


def late_records_sent_aside_without_an_id() -> Context:
    """What a window with weak productions sends aside has no id. (``late: side:STREAM``, weak, and a crash.)"""
    return replaced(windowed, "aside_cause", lambda call, what, number: None)
