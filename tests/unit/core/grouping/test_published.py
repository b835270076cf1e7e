"""TAG and NAG beside plain programs that were written from the paper's formulas and know nothing of
the runtime."""

from __future__ import annotations

from collections import Counter
from math import isclose, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.grouping.network import NetworkAware
from millwheel.core.grouping.tables import Measured, Network, first_table, hashed
from millwheel.core.grouping.time_aware import TimeAware
from tests.unit.core.grouping.test_base import zipf

INSTANCES = 6
WINDOW = 3000
TIMES = st.lists(st.floats(50.0, 800.0), min_size=INSTANCES, max_size=INSTANCES)


class Tag:
    """The two phases of the paper. Which instances a hot key's segments draw is random there, so a
    test hands in those that were drawn. Times are half of the last window, and half of what was
    gone by before."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.candidates: dict[int, tuple[int, ...]] = {}
        self.begin()

    def begin(self) -> None:
        self.seen, self.given = Counter[int](), [0] * INSTANCES

    def group(self, key: int) -> int:
        among = self.candidates.get(key) or (hashed(key, 0, INSTANCES), hashed(key, 1, INSTANCES))
        times = self.times or [1.0] * INSTANCES
        chosen = min(among, key=lambda i: times[i] * (self.given[i] + 1))
        self.given[chosen] += 1
        self.seen[key] += 1
        return chosen

    def hot(self) -> dict[int, int]:
        """Keys above 1/(5n) of the records, and how many segments of m/(5n) records each has."""
        records = sum(self.seen.values())
        threshold = records / (5 * INSTANCES)
        return {
            key: max(1, round(count / threshold))
            for key, count in self.seen.items()
            if count > threshold
        }

    def measured(self, times: list[float]) -> None:
        pairs = zip(self.times or times, times, strict=True)
        self.times = [(old + new) / 2 for old, new in pairs]


@settings(max_examples=6, deadline=None)
@given(st.lists(TIMES, min_size=3, max_size=3), st.sampled_from([0.8, 1.4, 2.0]))
def test_tag_has_the_hot_keys_segments_and_choices_of_the_paper(
    windows: list[list[float]], exponent: float
) -> None:
    ours, theirs = TimeAware(first_table(INSTANCES)), Tag()
    for number, times in enumerate(windows):
        for offset, key in enumerate(zipf(WINDOW, exponent, keys=50 * INSTANCES, seed=number)):
            assert ours.choose(number * WINDOW + offset, key) == theirs.group(key)
        table = ours.next_table(Measured(tuple(times)))
        hot = theirs.hot()
        assert table.routes.keys() == hot.keys()
        theirs.measured(times)
        assert all(map(isclose, table.prices, theirs.times))
        inverse = [1 / each for each in theirs.times]
        for key, segments in hot.items():
            route = table.routes[key]
            # formula 4, of so many segments
            expected = [segments * each / sum(inverse) for each in inverse]
            assert {at for at, each in enumerate(expected) if each >= 1 + 1e-9} <= set(route)
            assert len(route) <= segments
        # the same to the bit
        theirs.times, theirs.candidates = list(table.prices), dict(table.routes)
        theirs.begin()
        ours.begin(table)


def by_quotients(weights: list[float], records: int) -> list[int]:
    """So many records dealt out by weights, the heaviest first: the smallest of all k/w, each of
    which is a record."""
    quotients = sorted((k / w, at) for at, w in enumerate(weights) for k in range(1, records + 1))
    given_out = Counter(at for _, at in quotients[:records])
    return [given_out[at] for at in range(len(weights))]


LATENCY = {Network.PROCESS: 0.1, Network.HOST: 20, Network.RACK: 200, Network.ELSEWHERE: 350}


def most(where: Network) -> float:
    return 1 + log(350 / LATENCY[where])


@settings(max_examples=30, deadline=None)
@given(
    st.permutations([*Network, Network.HOST, Network.ELSEWHERE]),
    st.lists(TIMES, min_size=1, max_size=12),
    st.integers(0, 60),
)
def test_nag_deals_out_records_by_weights_that_follow_how_slow_a_class_is(
    network: list[Network], windows: list[list[float]], records: int
) -> None:
    ours = NetworkAware(first_table(INSTANCES))
    weights = {where: most(where) for where in Network}
    ours.begin(ours.next_table(Measured((None,) * INSTANCES, network=tuple(network))))
    for times in windows:
        ours.begin(ours.next_table(Measured(tuple(times), network=tuple(network))))
        for where in Network:
            mine = [each for each, there in zip(times, network, strict=True) if there is where]
            ratio = (sum(mine) / len(mine)) / (sum(times) / len(times))
            weights[where] *= 0.5 if ratio > 1.25 else 1.05 if ratio < 1.1 else 1
            weights[where] = min(max(weights[where], 0.25), most(where))
    by_instance = [weights[where] for where in network]
    assert [1 / each for each in ours.table.prices] == pytest.approx(by_instance)
    ours.choose_all(list(range(records)), records - 1)
    assert sum(ours.counts) == records
    exact = by_quotients(by_instance, records)
    assert all(abs(a - b) <= 1 for a, b in zip(ours.counts, exact, strict=True)), (
        "equal quotients go to either"
    )
