"""Longer lateness drops less and keeps more; with two days each record is counted."""

from __future__ import annotations

from bench.late_days import figure, records, table


def test_two_days_drop_nothing_and_keep_the_windows_of_two_days() -> None:
    rows = records(5_000, 2)
    assert sum(late for *_, late in rows) > 5
    none, days = figure("0s", rows), figure("2d", rows)
    assert (days.dropped, days.equal, none.equal) == (0, True, None)
    assert none.dropped > 5
    assert days.windows > 100 * max(none.windows, 1)
    assert days.state_bytes > 10 * none.state_bytes
    assert "| 2d |" in table([none, days])
