"""Hash, shuffle and PKG: how many instances a key has, and how even the counts are."""

from __future__ import annotations

from millwheel.core.grouping.catalogue import GROUPINGS
from millwheel.core.grouping.tables import first_table, imbalance
from tests.unit.core.grouping.test_base import run, zipf


def replicas(name: str, keys: list[int], instances: int = 8) -> tuple[int, float]:
    """The most instances that a key went to, and the imbalance of counts."""
    grouping = GROUPINGS[name](first_table(instances))
    seen: dict[int, set[int]] = {}
    for key, chosen in zip(keys, run(grouping, keys), strict=True):
        seen.setdefault(key, set()).add(chosen)
    return max(len(each) for each in seen.values()), imbalance(grouping.counts)


def test_hash_keeps_a_key_together() -> None:
    assert replicas("hash", zipf(4000))[0] == 1


def test_shuffle_is_even_and_puts_a_hot_key_everywhere() -> None:
    assert replicas("shuffle", zipf(4000)) == (8, 0.0)


def test_pkg_gives_a_key_two_instances_and_is_more_even_than_hash() -> None:
    keys = zipf(8000, exponent=0.8, keys=2000)
    most, uneven = replicas("pkg", keys)
    assert most == 2
    assert uneven < 0.02 < replicas("hash", keys)[1]


def test_pkg_cannot_balance_a_key_of_more_than_two_shares() -> None:
    assert replicas("pkg", zipf(8000, exponent=2.0))[1] > 0.5
