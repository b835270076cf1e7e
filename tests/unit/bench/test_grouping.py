"""The simulated operator: what it does can be computed by hand where nothing waits, and where all
are busy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.grouping import SERVICE_US, Setup, keys_of, network_of, simulate, speeds_of
from millwheel.core.grouping.tables import LATENCY_US, Network

HOST = (Network.HOST,) * 4


def test_without_waiting_a_record_takes_its_way_and_its_service() -> None:
    found = simulate("shuffle", Setup((1.0,) * 4, load=0.1, records=2400, network=HOST))
    assert found.latency_us == pytest.approx(SERVICE_US + LATENCY_US[Network.HOST])


def test_equal_instances_that_are_always_busy_do_what_they_can() -> None:
    setup = Setup((1.0,) * 4, records=2400, network=HOST)
    found = simulate("shuffle", setup)
    assert found.per_s == pytest.approx(setup.rate_per_us * 1e6, rel=0.01)
    assert found.imbalance == 0


def test_the_slowest_instance_is_the_limit_of_equal_counts_and_not_of_equal_times() -> None:
    setup = Setup((1.0, 1.0, 4.0, 4.0), 1.1, records=12_000, network=HOST)
    assert simulate("shuffle", setup).steady_per_s == pytest.approx(4000, rel=0.02)
    assert simulate("tag", setup).steady_per_s > 7500


def test_a_run_is_a_function_of_its_setup() -> None:
    setup = Setup(speeds_of("unequal", 4), records=2400)
    assert simulate("tag", setup) == simulate("tag", setup)


def test_speeds_and_places_of_twelve_instances() -> None:
    assert speeds_of("unequal", 12) == (1.0,) * 6 + (2.0,) * 3 + (4.0,) * 3
    assert len(speeds_of("unequal", 2)) == 2
    assert {network_of(12).count(each) for each in set(network_of(12))} == {4}


def test_other_keys_become_hot_at_half_time() -> None:
    setup = Setup((1.0,), 2.0, records=1000, drift=True)
    keys = keys_of(setup)
    assert keys[:500].count(0) > 200
    assert keys[500:].count(0) == 0
    assert keys_of(replace(setup, drift=False))[500:].count(0) > 200


def test_an_instance_is_slowed_at_half_time() -> None:
    calm = Setup((1.0,) * 4, load=0.1, records=2400, network=HOST)
    slowed = simulate("shuffle", replace(calm, slowed=0))
    assert slowed.window_latency_us[0] == pytest.approx(
        simulate("shuffle", calm).window_latency_us[-1]
    )
    assert slowed.window_latency_us[-1] == pytest.approx(
        slowed.window_latency_us[0] + 3 * SERVICE_US / 4
    )
    assert slowed.reaction(12) is None
