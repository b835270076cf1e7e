"""How much a bundle takes adapts to how much it makes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.engine.workers.shard.bundle_sizes import BundleSize

WEIGHTS = st.integers(0, 10**7)


@given(st.integers(1, 50_000), st.lists(st.tuples(WEIGHTS, WEIGHTS), max_size=20))
def test_a_bundle_takes_at_least_one_and_never_more_than_the_limit(
    limit: int, bundles: list[tuple[int, int]]
) -> None:
    size = BundleSize(limit)
    for taken, made in bundles:
        size.learn(taken, made)
        assert 1 <= size.most <= limit


def test_what_makes_much_of_little_is_taken_in_small_bundles_until_it_does_not() -> None:
    size = BundleSize(1_000)
    size.learn(100, 100_000)
    assert size.most == 1, "a thousand for each: one makes a full bundle"
    for expected in (2, 4, 8):
        size.learn(1, 10)
        assert size.most == expected


def test_a_bundle_of_timers_alone_says_nothing_of_how_much_records_make() -> None:
    size = BundleSize(1_000)
    size.learn(10, 2_000)
    before = size.most
    size.learn(0, 0)
    assert size.most == before == 5


def test_many_records_that_make_as_many_are_no_reason_to_take_less() -> None:
    size = BundleSize(1_000)
    size.learn(5_000, 5_000)
    assert size.most == 1_000
