from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.control.master.moves import RequestedReshardings
from millwheel.control.master.tables.planner import Census, NodeDemand, first_table
from millwheel.control.master.tables.resharding import Merge, Resharding, Split, fitted, refusal
from millwheel.control.master.tables.succession import Situation, successor
from millwheel.core.model.range_table import Ancestor, Parent, RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange, tile
from millwheel.core.slices.slots import SLOTS, WIDTH

HALF = SPACE // 2


def table(*entries: ShardEntry, named: int = 0) -> RangeTable:
    return RangeTable("n", entries, 3, named)


def whole(**fields: Any) -> ShardEntry:
    return ShardEntry(**{"shard": "n-0", "range": tile(1)[0], "owner": "w1", "token": 4, **fields})


def halves(**fields: Any) -> list[ShardEntry]:
    return [ShardEntry(f"n-{i}", piece, "w1", 4 + i, **fields) for i, piece in enumerate(tile(2))]


def follow(before: RangeTable, **fields: Any) -> RangeTable:
    now = Situation(**{"eligible": ("w1", "w2"), "dead": {}, **fields})
    return successor(before, now, Census(now.eligible, [before]))


def test_a_wanted_split_only_says_where() -> None:
    after = follow(table(whole()), reshardings=[Split("n", "n-0", HALF)])
    assert after.shards == (whole(split_at=HALF),)


def test_a_released_shard_is_split_into_two_with_new_names_and_higher_tokens() -> None:
    before = table(whole(split_at=HALF))
    after = follow(before, released={("w1", "n-0", 4): 9})
    parents = (Parent("n-0", tile(1)[0], 4, 9),)
    assert after.shards == (
        ShardEntry("n-1", KeyRange(0, HALF), "w1", 5, parents=parents),
        ShardEntry("n-2", KeyRange(HALF, SPACE), "w2", 5, parents=parents),
    )
    assert after.named == 3


def test_the_successor_of_an_owner_that_dies_before_its_release_releases() -> None:
    before = table(whole(split_at=HALF))
    after = follow(before, eligible=("w2",), dead={"w1": 77})
    assert after.shards == (
        whole(owner="w2", token=5, split_at=HALF, lineage=(Ancestor("w1", 4, 77, -1),)),
    )


def test_of_two_that_are_merged_the_first_one_released_waits_for_the_other() -> None:
    before = follow(table(*halves()), reshardings=[Merge("n", "n-0", "n-1")])
    assert {entry.merges_as for entry in before.shards} == {"n-2"}
    waiting = follow(before, released={("w1", "n-0", 4): 9})
    assert [entry.owner for entry in waiting.shards] == ["", "w1"]
    assert follow(waiting) == waiting
    after = follow(waiting, released={("w1", "n-1", 5): 6})
    parents = (Parent("n-0", tile(2)[0], 4, 9), Parent("n-1", tile(2)[1], 5, 6))
    assert after.shards == (ShardEntry("n-2", tile(1)[0], "w1", 6, parents=parents),)


def test_without_workers_the_new_shards_wait_and_are_given_away_later() -> None:
    waiting = follow(table(whole(split_at=HALF)), eligible=(), released={("w1", "n-0", 4): 9})
    assert [(entry.owner, entry.token) for entry in waiting.shards] == [("", 4), ("", 4)]
    assert [entry.token for entry in follow(waiting).shards] == [5, 5]


def test_parents_are_forgotten_once_there_is_a_snapshot_of_the_shard_itself() -> None:
    after = follow(table(whole(split_at=HALF)), released={("w1", "n-0", 4): 9})
    assert [bool(entry.parents) for entry in follow(after, manifest_tokens={"n-1": 5}).shards] == [
        False,
        True,
    ]


def test_a_shard_on_its_way_is_neither_split_nor_merged_nor_moved_again() -> None:
    moving = table(whole(next_owner="w2"))
    assert follow(moving, reshardings=[Split("n", "n-0", HALF)]) == moving
    splitting = table(whole(split_at=HALF))
    assert (
        follow(splitting, moves={("n", "n-0"): "w2"}, reshardings=[Split("n", "n-0", 7)])
        == splitting
    )


def test_a_refusal_says_why() -> None:
    known = {"n": table(*halves())}
    fixed = {"source.s": "it is read by partitions"}
    words: dict[Resharding, str] = {
        Split("m", "m-0", 5): "there is no node m; there are n",
        Split("n", "n-7", 5): "n has no shard n-7; it has n-0, n-1",
        Split("n", "n-1", 5): "does not lie inside the range",
        Merge("n", "n-1", "n-0"): "does not begin where n-1",
    }
    for requested, why in words.items():
        assert why in refusal(requested, known, fixed)
    assert not refusal(Split("n", "n-0", 5), known, fixed)
    source = RangeTable("source.s", (whole(shard="source.s-0"),))
    assert "by partitions" in refusal(
        Split("source.s", "source.s-0", 5), {"source.s": source}, fixed
    )
    assert "already" in refusal(Split("n", "n-0", 5), {"n": table(whole(split_at=9))}, {})


def test_a_split_of_slices_is_at_the_nearest_edge_of_a_slot() -> None:
    known = {"n": table(*halves())}
    split = Split("n", "n-0", 5 * WIDTH + WIDTH // 2 - 1)
    assert fitted(split, WIDTH) == Split("n", "n-0", 5 * WIDTH)
    assert fitted(Split("n", "n-0", split.at + 1), WIDTH) == Split("n", "n-0", 6 * WIDTH)
    assert fitted(split, 1) == split
    assert fitted(Merge("n", "n-0", "n-1"), WIDTH) == Merge("n", "n-0", "n-1")
    assert not refusal(split, known, {}, WIDTH)


@pytest.mark.parametrize(
    ("lo", "hi", "at", "why"),
    [
        (
            0,
            HALF,
            7,
            (
                "empty. The nearest slot that can be the first of the upper half begins at"
                f" {WIDTH:016x}"
            ),
        ),
        (0, HALF, HALF - 7, f"begins at {HALF - WIDTH:016x}"),
        (WIDTH, 4 * WIDTH, WIDTH, f"begins at {2 * WIDTH:016x}"),
        (
            WIDTH,
            2 * WIDTH,
            WIDTH + 9,
            "cannot be split: no slot begins inside it, and a slot is never cut",
        ),
        (WIDTH + 3, 2 * WIDTH, WIDTH + 9, "no slot begins inside it"),
        (WIDTH + 3, 2 * WIDTH + 3, WIDTH + 9, f"begins at {2 * WIDTH:016x}"),
        (WIDTH, 4 * WIDTH, 9 * WIDTH, "does not lie inside the range"),
    ],
)
def test_an_edge_at_the_end_of_a_range_of_slots_is_refused_with_the_nearest_that_can_be(
    lo: int, hi: int, at: int, why: str
) -> None:
    pieces = [piece for piece in (KeyRange(lo, hi), KeyRange(hi, SPACE)) if piece.hi > piece.lo]
    pieces += [KeyRange(0, lo)] if lo else []
    known = {
        "n": table(*(whole(shard=f"n-{index}", range=piece) for index, piece in enumerate(pieces)))
    }
    assert why in refusal(Split("n", "n-0", at), known, {}, WIDTH)


def test_a_split_of_an_older_run_that_cuts_a_slot_is_carried_out() -> None:
    now = follow(table(whole(split_at=WIDTH + 9)))
    now = follow(now, released={("w1", "n-0", 4): 3})
    assert [entry.range.lo for entry in now.shards] == [0, WIDTH + 9]


@settings(max_examples=60)
@given(
    st.integers(1, 70),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 50), st.integers(1, SPACE - 1), st.booleans()),
        max_size=12,
    ),
)
def test_whatever_is_split_and_merged_no_slot_is_in_two_shards(
    count: int, steps: list[tuple[bool, int, int, bool]]
) -> None:
    demand = NodeDemand("n", count, grain=WIDTH)
    now = first_table(demand, 2, Census(["w1", "w2"], []))
    for split, which, at, near in steps:
        entries = sorted(now.shards, key=lambda entry: entry.range.lo)
        index = which % len(entries)
        entry = entries[index]
        within = min(entry.range.hi - entry.range.lo, 2 * WIDTH if near else SPACE)
        requested: Resharding = Split("n", entry.shard, entry.range.lo + at % within)
        if not split and index + 1 < len(entries):
            requested = Merge("n", entry.shard, entries[index + 1].shard)
        asked = RequestedReshardings([demand])
        asked.plan([requested])
        now = follow(now, reshardings=asked.requested)
        for one in [one for one in now.shards if one.resharded]:
            now = follow(now, released={(one.owner, one.shard, one.token): 3})
        taken = Counter[int]()
        for lo, hi in ((one.range.lo, one.range.hi) for one in now.shards):
            taken.update((lo // WIDTH, (hi - 1) // WIDTH) if hi - lo > WIDTH else (lo // WIDTH,))
        assert max(taken.values()) == 1
        assert sum(one.range.hi - one.range.lo for one in now.shards) == SLOTS * WIDTH


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(1, SPACE - 1)), max_size=12)
)
def test_whatever_is_split_and_merged_ranges_tile_names_are_new_and_tokens_rise(
    steps: list[tuple[bool, int, int]],
) -> None:
    now, names = table(whole()), {"n-0"}
    for split, which, at in steps:
        entries = sorted(now.shards, key=lambda entry: entry.range.lo)
        index = which % len(entries)
        entry = entries[index]
        requested: Resharding = Split(
            "n", entry.shard, entry.range.lo + at % (entry.range.hi - entry.range.lo)
        )
        if not split and index + 1 < len(entries):
            requested = Merge("n", entry.shard, entries[index + 1].shard)
        before = now
        now = follow(now, reshardings=[requested])
        for one in [one for one in now.shards if one.resharded]:
            now = follow(now, released={(one.owner, one.shard, one.token): 3})
        fresh = [one for one in now.shards if before.entry(one.shard) is None]
        assert not {one.shard for one in fresh} & names
        for one in fresh:
            assert all(one.token > parent.token for parent in one.parents)
        names |= {one.shard for one in fresh}
        assert RangeTable.decode(now.encode(), now.version) == now
