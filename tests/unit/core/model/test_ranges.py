from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.model.ranges import SPACE, KeyRange, check_tiling, tile
from millwheel.errors import InvariantError


@given(st.integers(1, 300))
def test_tiles_cover_the_space_in_almost_equal_pieces(count: int) -> None:
    pieces = tile(count)
    widths = {piece.hi - piece.lo for piece in pieces}
    assert len(pieces) == count
    assert max(widths) - min(widths) <= 1
    assert check_tiling(pieces, "t") == pieces


@given(st.integers(1, 300), st.integers(0, 10).map(lambda bits: SPACE // 512 >> bits))
def test_edges_of_tiles_are_multiples_of_the_grain(count: int, grain: int) -> None:
    pieces = tile(count, grain)
    widths = {piece.hi - piece.lo for piece in pieces}
    assert len(pieces) == count
    assert not any(piece.lo % grain for piece in pieces)
    assert max(widths) - min(widths) <= grain
    assert check_tiling(pieces, "t") == pieces


@given(st.integers(1, 50), st.integers(0, SPACE - 1))
def test_every_hash_lies_in_exactly_one_tile(count: int, hashed: int) -> None:
    assert sum(hashed in piece for piece in tile(count)) == 1


def test_a_range_holds_its_lower_edge_and_not_its_upper_one() -> None:
    piece = KeyRange(10, 20)
    assert 10 in piece
    assert 19 in piece
    assert 20 not in piece
    assert 9 not in piece
    assert str(KeyRange(0, SPACE)) == "[0000000000000000, ffffffffffffffff]"


@pytest.mark.parametrize(("lo", "hi"), [(5, 5), (6, 5), (-1, 5), (0, SPACE + 1)])
def test_an_empty_range_or_one_outside_the_space_is_refused(lo: int, hi: int) -> None:
    with pytest.raises(InvariantError, match="empty or outside"):
        KeyRange(lo, hi)


def test_the_order_in_which_ranges_are_given_does_not_matter() -> None:
    pieces = tile(7)
    mixed = pieces.copy()
    random.Random(1).shuffle(mixed)
    assert check_tiling(mixed, "t") == pieces


@pytest.mark.parametrize("change", ["gap", "overlap", "first", "last", "none"])
def test_a_gap_or_an_overlap_is_told_with_its_owner(change: str) -> None:
    pieces = tile(3)
    broken = {
        "gap": [pieces[0], KeyRange(pieces[1].lo + 1, pieces[1].hi), pieces[2]],
        "overlap": [pieces[0], KeyRange(pieces[1].lo - 1, pieces[1].hi), pieces[2]],
        "first": pieces[1:],
        "last": pieces[:-1],
        "none": [],
    }
    with pytest.raises(InvariantError, match="table of traffic"):
        check_tiling(broken[change], "table of traffic")
