"""The rivals of key windows produce the same results, and figures that can be counted by hand."""

from __future__ import annotations

import pytest

from bench.rivals import (
    COARSE,
    WAYS,
    Result,
    figure,
    native_windows,
    on_grid,
    records,
    table,
    truth,
    worst_age,
)

S = 1_000_000


def test_records_are_in_order_at_times_of_their_own_and_some_keys_have_many() -> None:
    rows = records(2_000, 50, 600)
    times = [at for _, at, _ in rows]
    assert times == sorted(set(times))
    counts = sorted([sum(row[0] == key for row in rows) for key in range(50)])
    assert counts[-1] > 10 * counts[0] > 0


@pytest.mark.parametrize("function", ["sum", "max"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_has_the_results_of_counting_all_records_anew(way: str, function: str) -> None:
    found = figure(way, function, "20s", "1s", records(300, 8, 200))
    assert found.equal
    assert found.outputs
    assert found.state_bytes
    assert found.windows <= found.at_most
    assert (found.unsaid == 0) == (way != "native")
    if way != "native":
        most = {"raw": 0, "coarse": COARSE * 1000}.get(way, 1000)
        assert found.age_ms is not None
        assert most / 2 <= found.age_ms <= most


def test_key_windows_make_eight_windows_where_native_ones_make_thirteen() -> None:
    """The published example: size 4, slide 1, four records."""
    rows = [(0, at, at + 1) for at in (0, 5, 10, 11)]
    made = {
        way: figure(way, "sum", "4us", "1us", rows).windows for way in ("native", "key", "literal")
    }
    assert made == {"native": 13, "key": 8, "literal": 8}
    assert native_windows(rows, 4, 1) == 13


def test_native_windows_that_would_be_too_many_are_counted_only() -> None:
    found = figure("native", "sum", "1h", "10ms", [(0, 5 * S, 1)])
    assert (found.windows, found.at_most, found.us_per_record, found.equal) == (
        360_000,
        360_000,
        None,
        None,
    )
    assert "| 1h, 10ms | native | 360,000 | 360,000 | not run |" in table([found])


def test_the_truth_is_what_lies_in_the_window_at_each_point() -> None:
    rows = [(1, 3, 5), (1, 12, 7), (2, 4, 1)]
    assert truth(rows, 20, 10, "sum") == {
        1: [(10, 5), (20, 12), (30, 7), (40, 0)],
        2: [(10, 1), (30, 0)],
    }
    assert truth(rows, 20, 10, "max")[1] == [(10, 5), (20, 7), (40, None)]


def test_a_result_that_native_windows_leave_standing_is_taken_away_by_the_consumer() -> None:
    outputs: list[Result] = [(1, 10, 5), (1, 20, 5), (1, 50, 4)]
    assert on_grid(outputs, 10, 0, native=True) == {1: [(10, 5), (30, 0), (50, 4), (60, 0)]}
    assert on_grid(outputs, 10, 0, native=False) == {1: [(10, 5), (50, 4)]}


def test_age_counts_from_the_first_change_that_a_result_has() -> None:
    rows = [(1, 3, 5), (1, 7, 2)]
    exact, visible = truth(rows, 20, 1, "sum"), truth(rows, 20, 10, "sum")
    assert worst_age([(1, 10, 7), (1, 30, 0)], exact, visible, 10) == 6
    assert worst_age([(1, 10, 7), (1, 90, 0)], exact, visible, 10) == 66
