"""The total of a queue of buckets is that of its buckets, whatever entered and left."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import Collected, SingleAggregation
from millwheel.core.aggregates.families.numeric import Sum
from millwheel.core.machines.key_window_queue import BucketQueue, Steps

SIZE = 100


class Key(dict[Any, Any]):
    """A key's state that is stored and read back with every access, so that nothing is shared by
    accident."""

    def get(self, slot: Any, default: Any = None) -> Any:
        return deepcopy(super().get(slot, default))

    def __setitem__(self, slot: Any, value: Any) -> None:
        super().__setitem__(slot, deepcopy(value))


@pytest.mark.parametrize("keeps", [False, True])
@given(st.lists(st.booleans(), max_size=40))
def test_the_result_is_that_of_all_that_entered_and_did_not_leave(
    keeps: bool, enters: list[bool]
) -> None:
    made = Collected()
    queue, state, own = BucketQueue(made, SIZE, keeps), Key(), Steps(None, None, made.create())
    inside: list[int] = []
    for point, enter in enumerate(enters):
        if enter:
            state[point] = [[point], None, None]
            queue.enter(own, point, state)
            inside.append(point)
        elif inside:
            queue.leave(own, state)
            inside.pop(0)
        assert queue.result(own, state) == inside
        assert keeps or sorted(state) == inside, "what has left is forgotten"
        assert not inside or queue.chain(own.first, state) == inside
    if keeps:  # each bucket has its own records still, whatever was put together meanwhile
        queue.rebuild(own, (inside[0] if inside else len(enters)) + SIZE - 1, state)
        assert queue.result(own, state) == inside


@given(st.lists(st.integers(0, 30), unique=True, min_size=1), st.integers(0, 160))
def test_after_late_buckets_the_queue_is_built_anew_from_those_that_are_inside(
    points: list[int], at: int
) -> None:
    made = SingleAggregation(Sum())
    queue, state, own = BucketQueue(made, SIZE, True), Key(), Steps(None, None, made.create())
    for point in points:  # in any order
        bucket = [made.add_many(made.create(), [point], [0]), None, None]
        queue.link(own, point, bucket, state)
        state[point] = bucket
    assert queue.chain(own.kept, state) == sorted(points)
    assert own.tail == max(points)
    queue.rebuild(own, at, state)
    assert queue.result(own, state) == sum(point for point in points if point + SIZE > at)
