from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from millwheel.connect.connectors.postgres.lookup import PostgresRowLookup
from millwheel.connect.connectors.redis.lookup import RedisKeyLookup
from millwheel.connect.kinds import build_lookup, known_lookups
from millwheel.connect.lookups.base import (
    UNKNOWN,
    AnswerCache,
    Lookup,
    LookupKey,
    LookupRefusedError,
    NoAnswer,
    answers_to,
)
from millwheel.core.pipeline.work import LookupSpec


class Squares(Lookup):
    """Refuses whatever holds a negative number; gives one answer too few when 0 is asked for."""

    where = "the squares"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        numbers = [key[0] for key in keys]
        self.asked.append(len(numbers))
        if min(numbers) < 0:
            raise LookupRefusedError(f"{min(numbers)} has no root")
        return [number * number for number in numbers if number]


def test_all_keys_are_asked_for_at_once() -> None:
    lookup = Squares()
    assert answers_to(lookup, [(1,), (2,), (3,)]) == [1, 4, 9]
    assert lookup.asked == [3]


def test_halves_find_the_key_that_is_to_blame() -> None:
    lookup = Squares()
    assert answers_to(lookup, [(1,), (2,), (-3,), (4,)]) == [1, 4, NoAnswer("-3 has no root"), 16]
    assert lookup.asked == [4, 2, 2, 1, 1]


def test_answers_that_belong_to_nobody_are_given_to_nobody() -> None:
    answers = answers_to(Squares(), [(1,), (0,), (3,)])
    assert answers == [NoAnswer("the squares gave 2 answers to 3 keys")] * 3


def test_an_answer_is_used_for_its_time_and_no_longer() -> None:
    cache = AnswerCache(10, 100, absent=True)
    cache.put(b"a", 1, now_us=50)
    assert cache.get(b"a", 149) == 1
    assert cache.get(b"a", 150) is UNKNOWN
    assert len(cache) == 0


def test_the_one_that_was_used_longest_ago_goes_first() -> None:
    cache = AnswerCache(2, 100, absent=True)
    cache.put(b"a", 1, 0)
    cache.put(b"b", 2, 0)
    cache.get(b"a", 1)
    cache.put(b"c", 3, 1)
    assert [cache.get(name, 2) for name in (b"a", b"b", b"c")] == [1, UNKNOWN, 3]


def test_that_there_is_nothing_is_an_answer_unless_it_is_not_wanted() -> None:
    kept, not_kept = AnswerCache(2, 100, absent=True), AnswerCache(2, 100, absent=False)
    for cache in (kept, not_kept):
        cache.put(b"a", None, 0)
    assert kept.get(b"a", 1) is None
    assert not_kept.get(b"a", 1) is UNKNOWN


def test_without_a_size_nothing_is_kept() -> None:
    cache = AnswerCache(0, 100, absent=True)
    cache.put(b"a", 1, 0)
    assert cache.get(b"a", 0) is UNKNOWN


def test_the_built_in_kinds_are_known_and_built() -> None:
    assert known_lookups() == ["postgres", "redis"]
    redis = build_lookup(LookupSpec("redis", {"url": "redis://h", "key": "item:{item}"}), "")
    postgres = build_lookup(
        LookupSpec("postgres", {"dsn": "postgresql://h/db", "table": "t", "by": "item"}), ""
    )
    assert (type(redis), type(postgres)) == (RedisKeyLookup, PostgresRowLookup)


def test_a_kind_that_nobody_has_is_told_with_one_that_is_meant() -> None:
    with pytest.raises(ValueError, match=r"there is no lookup 'redsi'.*redis"):
        build_lookup(LookupSpec("redsi", {}), "")
