"""DKG keeps keys together and evens out what can be evened; DAG divides hot keys as far as a copy
is worth it."""

from __future__ import annotations

import pytest

from millwheel.core.grouping.catalogue import GROUPINGS
from millwheel.core.grouping.tables import EpochTable, Measured, first_table, imbalance
from tests.unit.core.grouping.test_base import run, zipf


def after(name: str, keys: list[int], instances: int = 8) -> tuple[EpochTable, float, int]:
    """The second window's table, its imbalance of counts, and the most instances of a key in it."""
    grouping = GROUPINGS[name](first_table(instances))
    run(grouping, keys)
    grouping.begin(grouping.next_table(Measured((None,) * instances)))
    seen: dict[int, set[int]] = {}
    for key, chosen in zip(keys, run(grouping, keys), strict=True):
        seen.setdefault(key, set()).add(chosen)
    return grouping.table, imbalance(grouping.counts), max(len(each) for each in seen.values())


def test_dkg_is_even_on_mild_skew_with_one_instance_per_key() -> None:
    keys = zipf(8000, exponent=0.8, keys=2000)
    table, uneven, most = after("dkg", keys)
    assert most == 1
    assert len(table.buckets) == 64
    assert uneven < 0.05
    assert uneven < after("hash", keys)[1]


def test_dkg_cannot_balance_a_key_of_more_than_one_share() -> None:
    assert after("dkg", zipf(8000, exponent=2.0))[1] > 2


def test_dag_divides_hot_keys_and_hashes_the_others() -> None:
    keys = zipf(8000, exponent=2.0)
    table, uneven, most = after("dag", keys)
    assert 4 < len(table.routes[0]) == most
    assert len(table.routes[max(table.routes)]) == 1
    assert uneven < 0.2


@pytest.mark.parametrize("name", ["dkg", "dag"])
def test_a_window_without_records_gives_a_table_without_routes(name: str) -> None:
    table = GROUPINGS[name](first_table(3)).next_table(Measured((None,) * 3))
    assert dict(table.routes) == {}
