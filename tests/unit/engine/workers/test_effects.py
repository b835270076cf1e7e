from __future__ import annotations

import inspect
from typing import Any, cast, get_args

from millwheel.engine.workers import events
from millwheel.engine.workers.effects import (
    CommitGroup,
    DeleteSegment,
    GatheredDeletions,
    Gathering,
    Outgoing,
    Ready,
    Unfollow,
)


def test_what_was_gathered_is_taken_once() -> None:
    out = Gathering()
    assert out.take() is None
    out.drop(cast("Any", "s-0"))
    out.sends.append(cast("Outgoing", "send"))
    ready = out.take()
    assert ready == Ready(
        sends=cast("Any", ["send"]), acks=[], refusals=[], others=[Unfollow(cast("Any", "s-0"))]
    )
    assert out.take() is None
    out.drop(cast("Any", "s-1"))
    assert ready is not None
    assert len(ready.others) == 1, "what is taken does not grow"


def test_a_group_alone_is_something_to_do() -> None:
    group = CommitGroup([b"x"], [], {}, True)
    assert Gathering().take(group) == Ready([], [], [], [], group)


def test_a_segment_that_is_to_be_deleted_counts_as_gone() -> None:
    class Port:
        def segments(self) -> list[int]:
            return [1, 2, 3]

    out = Gathering()
    deletions = GatheredDeletions(out, cast("Any", Port()))
    deletions.delete_segment(2)
    assert deletions.segments() == [1, 3]
    assert out.others == [DeleteSegment(2)]


# events.py


def test_the_loop_knows_every_event() -> None:
    defined = {
        kind
        for _, kind in inspect.getmembers(events, inspect.isclass)
        if kind.__module__ == events.__name__
    }
    assert set(get_args(events.Event)) == defined
