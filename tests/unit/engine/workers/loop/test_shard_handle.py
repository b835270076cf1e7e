from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from millwheel.core.model.times import MAX_TIME
from millwheel.core.model.watermark import Watermarks
from millwheel.core.pipeline.graph import Graph
from millwheel.engine.workers.loop.shard_handle import TRANSITIONS, Life, LifeChange, Served
from millwheel.errors import InvariantError


class Shard:
    identity = SimpleNamespace(shard="n-0")

    def __init__(self) -> None:
        self.starts = 0

    def start(self) -> None:
        self.starts += 1


def served(*changes: LifeChange) -> Served:
    one = Served(cast("Any", Shard()), "n")
    for change in changes:
        one.change(change)
    return one


def test_a_shard_works_from_its_beginning_until_it_must_leave() -> None:
    one = served(LifeChange.TOKEN_KNOWN)
    assert not one.works
    one.begin()
    assert one.works
    assert cast("Any", one.shard).starts == 1
    one.change(LifeChange.MUST_LEAVE)
    assert (one.works, one.leaving) == (False, True)


def test_nobody_begins_under_a_token_that_the_injector_does_not_know() -> None:
    with pytest.raises(InvariantError, match="n-0 is opened, and it begins"):
        served().begin()


def test_what_must_leave_does_not_begin_and_is_released_once_per_master() -> None:
    leaving = served(LifeChange.TOKEN_KNOWN, LifeChange.MUST_LEAVE)
    with pytest.raises(InvariantError):
        leaving.begin()
    leaving.change(LifeChange.IS_RELEASED)
    with pytest.raises(InvariantError):
        leaving.change(LifeChange.IS_RELEASED)
    leaving.change(LifeChange.NEW_MASTER)
    assert leaving.life is Life.LEAVING, "the new master was not told"


def test_the_table_says_of_every_life_what_may_come_at_any_time() -> None:
    at_any_time = {LifeChange.TOKEN_KNOWN, LifeChange.MUST_LEAVE, LifeChange.NEW_MASTER}
    assert {life for life, changes in TRANSITIONS.items() if at_any_time <= changes.keys()} == set(
        Life
    )


def test_what_a_shard_knew_from_an_earlier_run_is_reported_once_it_is_heard_in_this_one() -> None:
    one = served()
    cast("Any", one.shard).operator = SimpleNamespace(fellows=None, first=None)
    cast("Any", one.shard).watermark = SimpleNamespace(input=MAX_TIME)  # as its store has it
    cast("Any", one.shard).input_shares = {}
    graph, watermarks = Graph({}, {}, {"n": ("m",)}), Watermarks()
    assert not one.follow(watermarks, graph, 0)
    watermarks.rise({"m": MAX_TIME})
    assert one.follow(watermarks, graph, 0)
    assert one.published_us == MAX_TIME
    assert not one.follow(watermarks, graph, 0)
