"""What of the figures of queries needs no run."""

from __future__ import annotations

import pytest

from bench.query_counts import HOUR_US, LEVELS_US, bytes_per_key, precision, rates

CSV = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms",'
    '"max_latency_ms"\n"GET a b","200.50","4.5","0.3","3.8","10.1","14.3","19.7"\n'
)


def test_a_count_is_too_high_by_less_than_a_slice_and_by_half_of_one_on_average() -> None:
    found = precision(HOUR_US, 500)
    assert found["bound_percent"] == pytest.approx(100 / 12)
    assert 7 < found["most_percent"] < found["bound_percent"]
    assert found["mean_percent"] == pytest.approx(found["bound_percent"] / 2, rel=0.1)


def test_what_a_key_keeps_does_not_grow_with_its_records_once_all_its_slices_are_there() -> None:
    few, many = bytes_per_key(10), bytes_per_key(1_000)
    assert 10 < few["accumulators"] <= 30
    assert many["accumulators"] <= 1_000 + 720 + 31
    assert few["stored_bytes"] > few["raw_bytes"]
    assert many["raw_to_stored"] > few["raw_to_stored"]
    assert len(LEVELS_US) == 3


def test_the_last_table_that_redis_benchmark_prints_is_read() -> None:
    assert rates("WARNING: no config\n" + CSV) == {
        "queries_per_s": 200.5,
        "p50_ms": 3.8,
        "p99_ms": 14.3,
    }
    assert rates(CSV, 156)["indicators_per_s"] == pytest.approx(200.5 * 156)
