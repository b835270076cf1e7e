"""Deliberate mistakes about objects that cross into user code: values of records, of productions
and of state."""

from __future__ import annotations

from typing import Any

from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.state.cells import Cell, Typed
from tests.search.mistakes import Context, mistake, replaced


@mistake(
    within=5,
    features="owning",
    variants="bundles together shards spread crashes careful uncached",
    first=1010,
)
def consumers_share_the_objects_of_a_source() -> Context:
    """A callback that changes its record changes it for the other consumers of the stream. (Two
    consumers.)"""
    return replaced(Fanout, "_own", lambda self, found: found)


@mistake(
    within=5,
    features="owning",
    variants="bundles together shards spread crashes careful uncached",
    first=1010,
)
def state_is_the_object_that_was_set() -> Context:
    """What a callback changes after it has set it is changed in the state, and is of another type
    until a crash."""

    def wrong(self: Typed, cell: Cell, value: Any) -> None:
        cell.value = value

    return replaced(Typed, "keep", wrong)
