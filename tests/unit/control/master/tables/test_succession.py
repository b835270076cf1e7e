from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millwheel.control.master.events import TableSeen
from millwheel.control.master.tables.planner import Census
from millwheel.control.master.tables.succession import Situation, _with_shards, successor
from millwheel.core.model.range_table import Ancestor, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import InvariantError
from tests.unit.control.master.test_state import served

KEY = ("traffic", "traffic-0")


def entry(**fields: Any) -> ShardEntry:
    return ShardEntry(
        **{"shard": "traffic-0", "range": tile(1)[0], "owner": "w1", "token": 4, **fields}
    )


def follow(before: ShardEntry, **fields: Any) -> ShardEntry:
    now = Situation(**{"eligible": ("w1", "w2"), "dead": {}, **fields})
    table = RangeTable("traffic", (before,), version=7)
    after = successor(table, now, Census(now.eligible, [table]))
    assert after.version == 7
    return after.shards[0]


def test_a_shard_that_is_served_stays_as_it_is() -> None:
    assert follow(entry()) == entry()


def test_nothing_changes_about_a_dead_owners_shard_before_its_journal_is_sealed() -> None:
    moving = entry(next_owner="w2")
    assert (
        follow(moving, eligible=("w2",), dead={"w1": None}, released={("w1", "traffic-0", 4): 9})
        == moving
    )


def test_a_sealed_owner_becomes_an_ancestor_and_another_worker_the_owner() -> None:
    older = Ancestor("w0", 3, -1, 8)
    after = follow(entry(lineage=(older,)), eligible=("w2",), dead={"w1": 120})
    assert after == entry(owner="w2", token=5, lineage=(older, Ancestor("w1", 4, 120, -1)))


def test_without_workers_a_sealed_owners_shard_waits_and_is_given_away_later() -> None:
    waiting = follow(entry(), eligible=(), dead={"w1": 120})
    assert waiting == entry(owner="", lineage=(Ancestor("w1", 4, 120, -1),))
    assert follow(waiting, eligible=()) == waiting
    assert follow(waiting) == entry(owner="w1", token=5, lineage=waiting.lineage)


def test_a_wanted_move_names_the_next_owner_and_nothing_else() -> None:
    assert follow(entry(), moves={KEY: "w2"}) == entry(next_owner="w2")
    assert follow(entry(), moves={KEY: "w1"}) == entry()
    assert follow(entry(), moves={KEY: "gone"}) == entry()
    assert follow(entry(next_owner="w2"), moves={KEY: "w3"}, eligible=("w1", "w2", "w3")) == entry(
        next_owner="w2"
    )


def test_a_release_hands_the_shard_on_with_its_last_commit() -> None:
    after = follow(entry(next_owner="w2"), released={("w1", "traffic-0", 4): 17})
    assert after == entry(owner="w2", token=5, lineage=(Ancestor("w1", 4, -1, 17),))


def test_a_release_under_an_older_token_is_old_news() -> None:
    moving = entry(next_owner="w2")
    assert (
        follow(moving, released={("w1", "traffic-0", 3): 17, ("w2", "traffic-0", 4): 18}) == moving
    )


def test_the_seal_wins_over_a_planned_move() -> None:
    after = follow(
        entry(next_owner="w2"),
        eligible=("w2", "w3"),
        dead={"w1": 55},
        released={("w1", "traffic-0", 4): 17},
    )
    assert after == entry(owner="w2", token=5, lineage=(Ancestor("w1", 4, 55, -1),))


def test_a_move_whose_taker_died_waits_for_the_release_and_finds_another_taker() -> None:
    moving = entry(next_owner="w9")
    assert follow(moving) == moving
    released = follow(moving, eligible=("w2",), released={("w1", "traffic-0", 4): 17})
    assert released == entry(owner="w2", token=5, lineage=(Ancestor("w1", 4, -1, 17),))


def test_a_move_whose_taker_died_goes_back_to_its_owner_when_nobody_else_lives() -> None:
    after = follow(entry(next_owner="w9"), eligible=("w1",), released={("w1", "traffic-0", 4): 17})
    assert after == entry(owner="w1", token=5, lineage=(Ancestor("w1", 4, -1, 17),))


def test_ancestors_older_than_the_newest_snapshot_are_dropped_and_those_of_its_token_kept() -> None:
    line = tuple(Ancestor(f"w{token}", token, 10 * token, -1) for token in (1, 2, 3))
    assert follow(entry(lineage=line), manifest_tokens={"traffic-0": 2}).lineage == line[1:]
    assert follow(entry(lineage=line), manifest_tokens={"traffic-0": 4}).lineage == ()
    assert follow(entry(lineage=line), manifest_tokens={"other": 4}).lineage == line


def test_a_snapshot_under_a_dying_owners_token_hides_no_later_commit() -> None:
    after = follow(entry(), eligible=("w2",), dead={"w1": 120}, manifest_tokens={"traffic-0": 4})
    assert after.lineage == (Ancestor("w1", 4, 120, -1),)


def test_an_orphan_stays_on_the_machine_that_may_have_its_files() -> None:
    table = RangeTable("traffic", (entry(),))
    now = Situation(eligible=("w2", "w3"), dead={"w1": 0})
    for near in ("w2", "w3"):
        census = Census(now.eligible, [table], {"w1": "here", near: "here"})
        assert successor(table, now, census).shards[0].owner == near


def test_orphans_of_one_table_are_spread() -> None:
    rows = [ShardEntry(f"traffic-{i}", piece, "w1", 1) for i, piece in enumerate(tile(4))]
    table = RangeTable("traffic", tuple(rows))
    now = Situation(eligible=("w2", "w3"), dead={"w1": 0})
    after = successor(table, now, Census(now.eligible, [table]))
    assert [row.owner for row in after.shards] == ["w2", "w3", "w2", "w3"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"token": 3}, "the token of n-0 would fall from 4 to 3"),
        ({"owner": "w2", "token": 5}, "the lineage of n-0 ends with None, its last owner was w1"),
        ({"owner": ""}, "its last owner was w1"),
    ],
)
def test_no_table_forgets_an_owner_or_gives_an_old_token(
    change: dict[str, Any], sentence: str
) -> None:
    entry = ShardEntry("n-0", tile(1)[0], "w1", 4)
    with pytest.raises(InvariantError, match=sentence):
        _with_shards(RangeTable("n", (entry,), 1), [replace(entry, **change)])


# holdings.py: Range tables as stored, and as they will be.


def test_old_versions_of_a_table_are_old_news_and_tokens_never_go_back() -> None:
    state, table = served("w1", "w2")
    newer = replace(table, shards=tuple(e.assigned("w2") for e in table.shards), version=4)
    state.handle(TableSeen(table=newer))
    state.handle(TableSeen(table=table))
    assert state.tables == (newer,)
    with pytest.raises(InvariantError, match="token of traffic-0 went back"):
        state.handle(TableSeen(table=replace(table, version=5)))
