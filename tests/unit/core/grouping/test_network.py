"""NAG prefers near instances until they are slow, and then prefers others."""

from __future__ import annotations

from millwheel.core.grouping.network import NetworkAware
from millwheel.core.grouping.tables import Measured, Network, first_table
from tests.unit.core.grouping.test_base import run, zipf

NEAR_AND_FAR = (Network.HOST, Network.HOST, Network.ELSEWHERE, Network.ELSEWHERE)


def counts_after(*windows: tuple[float | None, ...]) -> list[int]:
    grouping = NetworkAware(first_table(4), network=NEAR_AND_FAR)
    for window in windows:
        run(grouping, zipf(10))
        grouping.begin(grouping.next_table(Measured(window)))
    run(grouping, zipf(1000))
    return grouping.counts


def test_before_anything_is_known_all_get_the_same() -> None:
    assert counts_after() == [250] * 4
    assert counts_after((None,) * 4) == [250] * 4
    assert counts_after((0.0,) * 4) == [250] * 4


def test_a_class_that_is_slow_loses_load_window_by_window() -> None:
    once = counts_after((100.0, 100.0, 400.0, 400.0))
    twice = counts_after(*[(100.0, 100.0, 400.0, 400.0)] * 2)
    assert twice[2] < once[2] < 250 < once[0] < twice[0]


def test_a_class_is_slow_or_fast_as_a_whole() -> None:
    """A slow instance among fast ones of its class keeps as much as they: that is what TAG sees and NAG does not."""
    counts = counts_after((100.0, 900.0, 400.0, 400.0))
    assert counts[0] == counts[1]
    assert counts[2] == counts[3]


def test_a_class_that_is_a_little_slower_keeps_its_load() -> None:
    assert counts_after((100.0, 100.0, 110.0, 110.0))[2] > 200


def test_no_class_loses_more_than_three_quarters_of_an_equal_load() -> None:
    counts = counts_after(*[(100.0, 100.0, 900.0, 900.0)] * 20)
    assert counts[0] == 4 * counts[2]
