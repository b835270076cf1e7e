from __future__ import annotations

from typing import Any, cast

from millwheel.core.model.times import MAX_TIME
from millwheel.workers.bundle.bundle import Hold
from millwheel.workers.loop.beginning import LONGEST_US, Beginning
from millwheel.workers.loop.served import Life, LifeChange, Served

SOURCES = frozenset({"source.hits"})


class Shard:
    def __init__(self, at: int) -> None:
        self.at = at
        self.watermark = self

    def held(self, now_us: int) -> Hold:
        return Hold(self.at)


def served(node: str, known: bool = True, at: int = 0) -> Served:
    roots = frozenset[str]() if node.startswith("source.") else SOURCES
    return Served(cast("Any", Shard(at)), node, roots, life=Life.KNOWN if known else Life.OPENED)


def test_a_shard_begins_when_its_token_is_known() -> None:
    known, unknown = served("counts"), served("counts", known=False)
    assert Beginning().due([known, unknown], False, 5) == [known]


def test_what_has_begun_does_not_begin_again() -> None:
    one = served("counts")
    one.change(LifeChange.BEGINS)
    assert Beginning().due([one], False, 5) == []


def test_a_source_waits_for_what_is_being_opened_here_and_the_others_do_not() -> None:
    source, counts = served("source.hits"), served("counts")
    beginning = Beginning()
    assert beginning.due([source, counts], True, 5) == [counts]
    assert beginning.until_us == 5 + LONGEST_US
    assert beginning.due([source, counts], False, 7) == [source, counts]
    assert beginning.until_us == MAX_TIME


def test_a_source_waits_for_the_token_of_another_node_but_not_for_that_of_another_source() -> None:
    source, other, counts = served("source.hits"), served("source.hits", known=False), served("counts", known=False)
    assert Beginning().due([source, counts], False, 5) == []
    assert Beginning().due([source, other], False, 5) == [source]


def test_a_source_waits_only_so_long_and_its_time_is_not_put_off() -> None:
    source = served("source.hits")
    beginning = Beginning()
    assert beginning.due([source], True, 5) == []
    assert beginning.due([source], True, 4 + LONGEST_US) == []
    assert beginning.due([source], True, 5 + LONGEST_US) == [source]


def test_nobody_is_waited_for_while_no_source_could_begin() -> None:
    beginning = Beginning()
    assert beginning.due([served("source.hits", known=False)], True, 5) == []
    assert beginning.until_us == MAX_TIME


def test_the_end_of_a_source_is_news_until_it_is_told() -> None:
    source = served("source.hits", at=MAX_TIME)
    assert source.has_ended(5)
    source.last.state = (MAX_TIME, 3)
    assert not source.has_ended(5)
    assert not served("source.hits", at=7).has_ended(5)


def test_the_end_of_another_node_is_news_once_the_sources_before_it_have_ended() -> None:
    counts = served("counts", at=MAX_TIME)
    assert not counts.has_ended(5)
    counts.ended = True
    assert counts.has_ended(5)
    counts.last.state = (MAX_TIME, 3)
    assert not counts.has_ended(5)
