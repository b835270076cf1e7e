"""Open sessions in columns: one row each, and a newer one replaces what it overlaps."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.columns.groups_frame import END, KEY, START
from millwheel.core.columns.state.sessions import SessionColumns, sessions_among, without_replaced
from millwheel.core.windows.windows import Sessions, Window
from tests.unit.core.columns.state.test_windows import SESSION, Row, batch_of, plan_of

Piece = tuple[int, int, int]
pieces = st.lists(
    st.builds(
        lambda key, at, size: (key, at, at + size),
        st.integers(0, 2),
        st.integers(0, 40),
        st.integers(1, 9),
    ),
    max_size=12,
)


def frame(found: list[Piece]) -> pl.DataFrame:
    return pl.DataFrame(found, {KEY: pl.Int64, START: pl.Int64, END: pl.Int64}, orient="row")


@given(pieces)
def test_pieces_of_a_key_that_overlap_are_of_one_session(found: list[Piece]) -> None:
    numbers = sessions_among(frame(found)).tolist()
    merged: dict[int, set[Piece]] = {}
    for piece, number in zip(found, numbers, strict=True):
        merged.setdefault(number, set()).add(piece)
    expected = []
    for key in {key for key, _, _ in found}:
        windows = {Window(start, end) for mine, start, end in found if mine == key}
        expected += [
            {(key, *window) for window in group} for group in Sessions(1).merge(sorted(windows))
        ]
    assert sorted(map(sorted, merged.values())) == sorted(map(sorted, expected))


def test_a_newer_session_replaces_the_older_ones_that_it_overlaps_and_no_other() -> None:
    older = frame([(1, 0, 10), (1, 20, 30), (2, 0, 10), (1, 40, 50)])
    newer = frame([(1, 9, 21), (2, 10, 12)])
    kept, _ = without_replaced([older, newer])
    assert kept.rows() == [(2, 0, 10), (1, 40, 50)]
    assert without_replaced([older, frame([])])[0].equals(older)


def test_a_session_that_grows_is_one_row_and_the_entries_of_its_parts_go() -> None:
    plan = plan_of(SESSION)
    assert plan is not None
    windows = SessionColumns(plan)
    for at in range(0, 300, 3):
        windows.add(plan.group(batch_of([Row(1, "view", 0.5, 1, at)])))
    assert windows.all_groups().select(START, END, "count").rows() == [(0, 302, 100)]
    assert windows.close(301) is None
    [closed] = [windows.close(302)]
    assert closed is not None
    assert not windows
