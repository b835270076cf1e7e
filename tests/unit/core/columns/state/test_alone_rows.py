"""What stands alone in a join changes once for each key."""

from __future__ import annotations

import numpy as np
import pytest

from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.pairs import AT
from millwheel.core.columns.state.alone_rows import alone_changes
from millwheel.core.columns.state.near_pairs import NUMBER, Bounds, NearPairing
from millwheel.core.lazy_polars import pl
from millwheel.core.pipeline.work import JoinKind

NONE = Bounds(None, None)
PAIRING = NearPairing(("a", "b"), ({"n": "int"}, {"n": "int"}), ("k",), (NONE, NONE), True)
Told = list[tuple[int, int, str, int]]


def frame(side: int, rows: list[tuple[str, int]], first: int = 0) -> pl.DataFrame:
    """Records of one stream by key and time, with numbers from ``first`` on."""
    keys, times = pl.Series("k", [key for key, _ in rows]), [at for _, at in rows]
    at = np.array(times, np.int64)
    values = pl.DataFrame({"n": times})
    made = PAIRING._frame(side, [keys], at, at, at, values)
    return made.with_columns(pl.Series(NUMBER, range(first, first + len(rows)), pl.Int64))


def told(kind: JoinKind, new: list[pl.DataFrame], kept: list[pl.DataFrame]) -> Told:
    """Side, sign, key and time of each change."""
    found = alone_changes(kind, new, [each.drop(NUMBER) for each in kept])
    return [
        (each.side, each.sign, *row)
        for each in found
        for row in each.rows.select(KEY, AT).iter_rows()
    ]


def test_what_was_kept_is_taken_back_with_its_first_partner_alone() -> None:
    """At the later of both times."""
    kept = [frame(0, [("x", 5), ("y", 5), ("x", 9)])]
    new = [frame(1, [("x", 7), ("x", 1), ("z", 3)])]
    assert told(JoinKind.LEFT, new, kept) == [(0, -1, "x", 7), (0, -1, "x", 9)]
    assert told(JoinKind.LEFT, new, [*kept, frame(1, [("x", 2)])]) == []


def test_what_finds_its_partner_in_its_own_bundle_never_stood_alone() -> None:
    new = [frame(0, [("x", 5), ("y", 6)]), frame(1, [("x", 7), ("z", 8)], 2)]
    assert told(JoinKind.LEFT, new, []) == [(0, 1, "y", 6)]
    assert told(JoinKind.OUTER, new, []) == [(0, 1, "y", 6), (1, 1, "z", 8)]
    assert told(JoinKind.RIGHT, new, [frame(0, [("z", 1)])]) == []


def test_in_a_semi_join_what_waited_has_the_time_of_its_first_partner() -> None:
    """What came behind it has its own."""
    new = [
        frame(0, [("x", 5)]),
        frame(1, [("x", 7)], 1),
        frame(0, [("x", 6), ("y", 4)], 2),
        frame(1, [("x", 1)], 4),
    ]
    kept = [frame(0, [("x", 2)])]
    assert sorted(told(JoinKind.SEMI, new, kept)) == [
        (0, 1, "x", 6),
        (0, 1, "x", 7),
        (0, 1, "x", 7),
    ]
    assert told(JoinKind.SEMI, [frame(0, [("x", 3)])], [frame(1, [("x", 9)])]) == [(0, 1, "x", 3)]


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.ANTI])
def test_a_record_without_any_partner_stands_alone_at_its_own_time(kind: JoinKind) -> None:
    assert told(kind, [frame(0, [("x", 3)])], [frame(0, [("x", 1)])]) == [(0, 1, "x", 3)]


def test_an_inner_join_has_nothing_that_stands_alone() -> None:
    assert told(JoinKind.INNER, [frame(0, [("x", 3)])], []) == []
