from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.range_table import Ancestor, Parent, RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.errors import CorruptionError, InvariantError

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
ANCESTORS = st.builds(Ancestor, NAMES, st.integers(0, 99), st.integers(-1, 99), st.integers(-1, 99))

PARENTS = st.builds(Parent, NAMES, st.sampled_from(tile(3)), st.integers(0, 99), st.integers(0, 99))


@st.composite
def tables(draw: st.DrawFn) -> RangeTable:
    pieces = tile(draw(st.integers(1, 5)))
    entries = [
        ShardEntry(
            f"traffic-{i}",
            piece,
            draw(st.sampled_from(["", "w0-1"])),
            draw(st.integers(0, 9)),
            tuple(draw(st.lists(ANCESTORS, max_size=3))),
            draw(st.sampled_from(["", "w1-2"])),
            draw(st.sampled_from([0, piece.lo + 1, piece.hi - 1])),
            draw(st.sampled_from(["", "traffic-9"])),
            tuple(draw(st.lists(PARENTS, max_size=2))),
        )
        for i, piece in enumerate(pieces)
    ]
    return RangeTable(
        "traffic", tuple(entries), draw(st.integers(-1, 99)), draw(st.integers(0, 99))
    )


@given(tables())
def test_a_table_is_read_as_it_was_written(table: RangeTable) -> None:
    assert RangeTable.decode(table.encode(), table.version) == table


def test_a_person_can_read_a_table() -> None:
    table = RangeTable("traffic", (ShardEntry("traffic-0", tile(1)[0], "w0-1", 3),))
    row = json.loads(table.encode())["shards"][0]
    assert row == {
        "shard": "traffic-0",
        "lo": "0" * 16,
        "hi": "1" + "0" * 16,
        "owner": "w0-1",
        "token": 3,
        "next_owner": "",
        "lineage": [],
    }


def test_a_new_owner_gets_a_new_token_and_ends_the_move() -> None:
    entry = ShardEntry("t-0", tile(1)[0], "w0", 4, (Ancestor("w9", 3, 7, -1),), "w1")
    after = entry.assigned("w1")
    assert (after.owner, after.token, after.next_owner) == ("w1", 5, "")
    assert after.lineage == entry.lineage


def test_a_table_with_a_hole_cannot_be_made() -> None:
    entries = [ShardEntry(f"t-{i}", piece, "", 0) for i, piece in enumerate(tile(3))]
    with pytest.raises(InvariantError, match="range table of t"):
        RangeTable("t", tuple(entries[:2]))


def test_entries_are_found_by_name() -> None:
    table = RangeTable(
        "t", tuple(ShardEntry(f"t-{i}", piece, "", i) for i, piece in enumerate(tile(3)))
    )
    found = table.entry("t-1")
    assert found is not None
    assert found.token == 1
    assert table.entry("t-9") is None
    assert replace(table, version=7).entry("t-1") == found


def test_a_split_outside_of_the_range_is_damage() -> None:
    entries = [ShardEntry(f"t-{i}", piece, "", i) for i, piece in enumerate(tile(2))]
    data = RangeTable("t", (replace(entries[0], split_at=5), entries[1])).encode()
    with pytest.raises(CorruptionError, match="does not lie inside the range of t-0"):
        RangeTable.decode(data.replace(b"%016x" % 5, b"f" * 16), 1)


def test_new_shards_have_names_that_no_shard_had() -> None:
    entries = tuple(ShardEntry(f"t-{i}", piece, "", i) for i, piece in enumerate(tile(3)))
    assert RangeTable("t", entries).next_number == 3
    assert RangeTable("t", entries, named=7).next_number == 7
