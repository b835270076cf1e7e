"""NAG gives the nearest class most, as long as it is not slower than the others."""

from __future__ import annotations

import pytest

from millwheel.core.grouping.network import NetworkAware, weight_of
from millwheel.core.grouping.tables import Measured, Network, first_table
from tests.unit.core.grouping.test_base import run, zipf

FOUR = tuple(Network)
NEAR_AND_FAR = (Network.HOST, Network.HOST, Network.ELSEWHERE, Network.ELSEWHERE)
Window = tuple[float | None, ...]


def counts_after(
    *windows: Window, network: tuple[Network, ...] = FOUR, records: int = 1000
) -> list[int]:
    grouping = NetworkAware(first_table(4))
    for window in windows:
        run(grouping, zipf(10))
        grouping.begin(grouping.next_table(Measured(window, network=network)))
    run(grouping, zipf(records))
    return grouping.counts


@pytest.mark.parametrize("windows", [1, 2, 20])
@pytest.mark.parametrize("window", [(100.0,) * 4, (None,) * 4, (0.0,) * 4])
def test_equal_times_leave_the_nearest_with_most(window: Window, windows: int) -> None:
    process, host, rack, elsewhere = counts_after(*[window] * windows)
    assert process > host > rack > elsewhere > 0


def test_the_nearest_comes_first_up_to_its_weight() -> None:
    """9.2 and 3.9: two records before the first one of another class; 1: the farthest gets its
    first record after as many as all others have weight."""
    assert counts_after((None,) * 4, records=2) == [2, 0, 0, 0]
    assert counts_after((None,) * 4, records=3) == [2, 1, 0, 0]
    assert counts_after((None,) * 4, records=13) == [9, 3, 1, 0]
    assert counts_after((None,) * 4, records=14) == [9, 3, 1, 1]


def test_before_distances_are_known_all_get_the_same() -> None:
    assert counts_after() == [250] * 4


def test_a_class_that_is_slow_loses_load_window_by_window_and_gets_it_back() -> None:
    slow, calm = (400.0, 400.0, 100.0, 100.0), (100.0,) * 4
    first = counts_after(calm, network=NEAR_AND_FAR)
    once = counts_after(calm, slow, network=NEAR_AND_FAR)
    twice = counts_after(calm, slow, slow, network=NEAR_AND_FAR)
    assert first[0] > once[0] > twice[0]
    again = counts_after(calm, slow, slow, calm, network=NEAR_AND_FAR)
    assert twice[0] < again[0] < once[0]
    assert counts_after(calm, slow, slow, *[calm] * 30, network=NEAR_AND_FAR) == first


def test_a_farther_class_gets_most_once_all_nearer_ones_are_slow() -> None:
    counts = counts_after((None,) * 4, *[(400.0, 400.0, 400.0, 10.0)] * 20)
    assert counts[3] > max(counts[:3])
    assert min(counts) > 50, "all are still measured"


def test_a_class_that_is_a_little_slower_keeps_its_weight() -> None:
    assert counts_after((None,) * 4, (115.0, 95.0, 95.0, 95.0)) == counts_after((None,) * 4)


def test_a_class_that_completed_nothing_keeps_its_weight() -> None:
    slow = (900.0, 900.0, 100.0, 100.0)
    before = counts_after((None,) * 4, slow, network=NEAR_AND_FAR)
    assert (
        counts_after((None,) * 4, slow, (None, None, 100.0, 100.0), network=NEAR_AND_FAR) == before
    )


def test_a_class_is_slow_or_fast_as_a_whole() -> None:
    """A slow instance among fast ones of its class keeps as much as they: that is what TAG sees and
    NAG does not."""
    counts = counts_after((None,) * 4, (100.0, 900.0, 400.0, 400.0), network=NEAR_AND_FAR)
    assert counts[0] == counts[1]
    assert counts[2] == counts[3]


def test_weight_is_lost_at_once_when_an_instance_moves_away_and_gained_slowly() -> None:
    times = (100.0,) * 4
    grouping = NetworkAware(first_table(4))
    grouping.begin(grouping.next_table(Measured(times, network=FOUR)))
    weights = []
    for _ in range(50):
        run(grouping, zipf(10))
        grouping.begin(grouping.next_table(Measured(times, network=(*FOUR[1:], Network.PROCESS))))
        weights.append([1 / each for each in grouping.table.prices])
    assert weights[0][2] == 1
    assert weights[0][3] == pytest.approx(1.05)
    assert weights[-1] == pytest.approx([weight_of(each) for each in (*FOUR[1:], Network.PROCESS)])
