from collections import Counter

import pytest

from bench.figures import Figure
from bench.hops import table
from bench.inputs import Order, file_of_ad
from millwheel.core.keys import key_hash

ADS = 10_000


def figure(run: int, variant: str, rate: float, cpu_us: float) -> Figure:
    return Figure(
        part="G", contestant="millwheel", variant=variant, run=run, campaign="s", at="", settings={}, machine={},
        metrics={"records_per_s": rate, "cpu_us_per_record": cpu_us}, correct=True,
    )  # fmt: skip


def test_the_price_of_a_hop_is_compared_within_each_round() -> None:
    found = [
        figure(0, "columns, every record stays", 1_000.0, 2.0), figure(0, "columns, every record crosses", 900.0, 2.5),
        figure(1, "columns, every record stays", 2_000.0, 2.0), figure(1, "columns, every record crosses", 1e3, 4.0),
    ]  # fmt: skip
    assert table(found).splitlines()[2:] == ["| columns | 0.7 (0.5 to 0.9) | 1.25 (0.5 to 2) |"]
    assert table(found[:1]) == ""


@pytest.mark.parametrize("order", [Order.LOCAL, Order.ACROSS])
def test_ordered_files_hold_ads_of_one_half_of_the_key_space_each(order: Order) -> None:
    halves = {ad: key_hash(ad) >> 63 for ad in range(ADS)}
    of_file = {(file_of_ad(ad, 4, order) >= 2, half) for ad, half in halves.items()}
    assert of_file == ({(False, 0), (True, 1)} if order is Order.LOCAL else {(False, 1), (True, 0)})
    sizes = Counter(file_of_ad(ad, 4, order) for ad in range(ADS))
    assert sorted(sizes) == [0, 1, 2, 3]
    assert min(sizes.values()) > ADS / 5


def test_the_files_of_both_orders_hold_the_same_ads_under_other_names() -> None:
    for ad in range(100):
        assert (file_of_ad(ad, 4, Order.LOCAL) + 2) % 4 == file_of_ad(ad, 4, Order.ACROSS)


def test_an_odd_number_of_files_has_no_halves() -> None:
    with pytest.raises(ValueError, match="3 files"):
        file_of_ad(1, 3, Order.LOCAL)
