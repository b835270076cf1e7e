"""Space-Saving: what it promises about counts, and that no frequent key is missed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.grouping.space_saving import SpaceSaving

KEYS = st.lists(st.integers(0, 30), max_size=300)
EPSILONS = st.sampled_from([1.0, 0.5, 0.3, 0.1, 0.05])


def offered(keys: list[int], epsilon: float) -> SpaceSaving:
    sketch = SpaceSaving(epsilon)
    for key in keys:
        sketch.offer(key)
    return sketch


@given(KEYS, EPSILONS)
def test_a_count_is_never_too_low_and_too_high_by_its_error_and_by_epsilon_of_all_at_most(
    keys: list[int], epsilon: float
) -> None:
    true = Counter(keys)
    for found in offered(keys, epsilon):
        assert found.count - found.error <= true[found.key] <= found.count
        assert found.error <= epsilon * len(keys)


@given(KEYS, EPSILONS)
def test_every_key_more_frequent_than_epsilon_is_held(keys: list[int], epsilon: float) -> None:
    held = {found.key for found in offered(keys, epsilon)}
    assert {key for key, count in Counter(keys).items() if count > epsilon * len(keys)} <= held


@given(KEYS, EPSILONS)
def test_counts_add_up_to_the_offers_and_there_are_never_more_pairs_than_room(
    keys: list[int], epsilon: float
) -> None:
    sketch = offered(keys, epsilon)
    found = list(sketch)
    assert sum(each.count for each in found) == len(keys) == sketch.offered
    assert len(found) <= sketch.pairs
    assert [each.count for each in found] == sorted((each.count for each in found), reverse=True)


@given(KEYS)
def test_with_room_for_all_keys_it_counts_exactly(keys: list[int]) -> None:
    found = list(offered(keys, 1 / 40))
    assert {each.key: each.count for each in found} == Counter(keys)
    assert not any(each.error for each in found)


@given(KEYS, EPSILONS)
def test_the_same_offers_give_the_same_pairs_in_the_same_order(
    keys: list[int], epsilon: float
) -> None:
    assert list(offered(keys, epsilon)) == list(offered(keys, epsilon))


@pytest.mark.parametrize("epsilon", [0, -0.1, 1.5])
def test_an_epsilon_that_is_no_share_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        SpaceSaving(epsilon)
