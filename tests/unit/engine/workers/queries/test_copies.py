"""Answers from followed stores: as of which commit, how old, and no longer once the store is
taken."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import pytest

from millwheel.adapters.ports import StoreView
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.queries.model import Consistency, Finding, Query
from millwheel.engine.workers.queries.copies import FollowedCopies
from millwheel.engine.workers.recovery.following import Following, Standbys
from tests.unit.engine.workers.recovery.test_recovery import Storage, sealed

OWNED = ShardEntry("t-0", tile(1)[0], "w1", 1, standby="w9")
QUERY = Query("t", 1, 1, 1, consistency=Consistency.STANDBY)


def newest(query: Query, store: StoreView, watermark_us: int) -> Finding:
    """The highest commit whose entry is in the store."""
    return Finding({"n": max((n for n in range(1, 9) if store.get(b"k%d" % n)), default=0)})


@dataclass
class Bench:
    now_us: int = 100

    def __post_init__(self) -> None:
        self.storage = Storage()
        parts = self.storage
        clock = lambda: self.now_us  # noqa: E731
        self.standbys = Standbys(
            Following(parts.stores, parts.snapshots, parts.journals, "/scratch", Lock, clock)
        )
        self.copies = FollowedCopies(self.standbys, newest, clock)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_answer_is_as_of_the_commit_that_it_names_and_says_how_old_it_is(bench: Bench) -> None:
    bench.storage.commits("w1", 1, 1, 2, 3)
    assert bench.copies.answer("t-0", QUERY) is None
    bench.standbys.follow(OWNED)
    bench.standbys.round()
    bench.storage.commits("w1", 1, 4)  # not looked at yet
    bench.now_us = 175
    found = bench.copies.answer("t-0", QUERY)
    assert found is not None
    assert found.values == {"n": 2}  # the newest group is not certain
    assert (found.commit, found.token, found.lag_us, found.consistency) == (
        2,
        1,
        75,
        Consistency.STANDBY,
    )
    bench.standbys.round()
    again = bench.copies.answer("t-0", QUERY)
    assert again is not None
    assert (again.values, again.commit, again.lag_us) == ({"n": 3}, 3, 0)
    assert bench.copies.answer("t-1", QUERY) is None


def test_a_store_that_is_taken_or_dropped_answers_no_more(bench: Bench) -> None:
    bench.storage.commits("w1", 1, 1, 2)
    bench.standbys.follow(OWNED)
    bench.standbys.round()
    follower = bench.standbys.follower("t-0")
    assert follower is not None
    bench.standbys.take(ShardEntry("t-0", tile(1)[0], "w9", 2, (sealed("w1", 1, 2),)))
    assert bench.copies.answer("t-0", QUERY) is None
    bench.standbys._followers["t-0"] = follower  # it was looked up before it was taken
    assert bench.copies.answer("t-0", QUERY) is None


def test_how_old_a_copy_is_is_not_known_before_all_that_is_certain_was_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.storage.commits("w1", 1, 1, 2, 3)
    journals, right = bench.storage.journals, bench.storage.journals.follow

    def in_parts(incarnation, since):  # type: ignore[no-untyped-def]
        found = right(incarnation, since)
        return type(found)(found.groups, found.position, whole=False)

    monkeypatch.setattr(journals, "follow", in_parts)
    bench.standbys.follow(OWNED)
    bench.standbys.round()
    found = bench.copies.answer("t-0", QUERY)
    assert found is not None
    assert (found.commit, found.lag_us) == (2, None)
