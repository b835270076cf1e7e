from __future__ import annotations

from millwheel.connect.lookups.cache import UNKNOWN, AnswerCache


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
