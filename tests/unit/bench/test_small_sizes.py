from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import (
    cluster,
    late_days,
    metrics_cost,
    seen_process,
    tracing_cost,
    uv_opened,
    watermarks,
)
from bench.bare_loops import loop, seconds
from bench.cluster import ClusterCosts, Size
from bench.late_days import records
from bench.paths import HOUSE
from bench.query_counts import HOUR_US, LEVELS_US, bytes_per_key, precision, rates
from bench.seen_process import bundle, drawn
from bench.uv_opened import forgetting
from millwheel.testing import PipelineHarness

# bare_loops.py

_LINES = (
    '{"ad_id": 1, "cost": 0.5, "type": "click"}\n{"ad_id": 2, "cost": 1}\n{"ad_id": 1, "cost": 2}\n'
)


def test_a_loop_has_count_and_sum_of_each_key(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(_LINES)
    assert loop([path, path]) == {1: (4, 5.0), 2: (2, 2.0)}


def test_loops_run_at_once_and_the_slowest_counts(tmp_path: Path) -> None:
    short, long = tmp_path / "short.jsonl", tmp_path / "long.jsonl"
    short.write_text(_LINES)
    long.write_text(_LINES * 20_000)
    assert 0 < seconds([[short]]) < seconds([[short], [long]])


# cluster.py


def test_every_shard_has_a_living_owner_after_a_death_and_every_watermark_rises() -> None:
    costs = cluster.measure(Size(workers=4, shards=24, nodes=3))  # it checks that itself
    assert (costs.workers, costs.shards) == (4, 24)
    assert costs.sent_mb > 0
    assert costs.largest_table_kb * 1e3 * 3 * 4 / 1e6 >= costs.sent_mb


def test_a_row_for_each_size() -> None:
    costs = ClusterCosts(10, 1_000, *(1.4,) * 10)
    assert len(cluster.table([costs, costs]).splitlines()) == 4
    assert "| 10 | 1,000 | 1 |" in cluster.table([costs])


# late_days.py: Longer lateness drops less and keeps more; with two days each record is counted.


def test_two_days_drop_nothing_and_keep_the_windows_of_two_days() -> None:
    rows = records(5_000, 2)
    assert sum(late for *_, late in rows) > 5
    none, days = late_days.figure("0s", rows), late_days.figure("2d", rows)
    assert (days.dropped, days.equal, none.equal) == (0, True, None)
    assert none.dropped > 5
    assert days.windows > 100 * max(none.windows, 1)
    assert days.state_bytes > 10 * none.state_bytes
    assert "| 2d |" in late_days.table([none, days])


# metrics_cost.py


def test_a_scrape_has_every_shard_and_costs_less_than_a_hundredth_of_a_core_every_15_s() -> None:
    with PipelineHarness(metrics_cost._pipeline(), shards=2, workers=1) as harness:
        harness.push("loads", [{"key": "a", "t": 1}])
        lines = metrics_cost._scrape(harness).decode().splitlines()
    taken = [
        line for line in lines if "records_in_total{" in line and 'computation="mapped"' in line
    ]
    assert sum(float(line.split()[-1]) for line in taken) == 1
    found = metrics_cost.measured(3)
    assert 0 < found["steps_percent"] < 5  # 50 µs a step: twenty times what it takes
    # 150 ms of processor time: fifty times what it takes
    assert 0 < found["every_15_s_percent"] < 1


# query_counts.py: What of the figures of queries needs no run.

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


# seen_process.py


def test_the_share_of_copies_is_what_was_asked_for() -> None:
    assert drawn(1_000, 0.0) == list(range(1_000))
    assert 1 - len(set(drawn(20_000, 0.05))) / 20_000 == pytest.approx(0.05, abs=0.01)


def test_records_of_one_number_are_equal_and_others_have_other_ids() -> None:
    found = bundle([3, 4, 3], 10)
    assert found.ids is not None
    assert (found.ids[0], found.keys[0], found.timestamps[0]) == (
        found.ids[2],
        found.keys[2],
        found.timestamps[2],
    )
    assert len(set(found.ids)) == 2


def test_copies_ask_the_store_and_new_ids_do_not(tmp_path: Path) -> None:
    without, with_copies = (
        seen_process.figures(200_000, 0.0, tmp_path / "a"),
        seen_process.figures(200_000, 0.5, tmp_path / "b"),
    )
    assert without["missed"] == with_copies["missed"] == 0
    assert without["asked_exactly_percent"] < 1
    assert 10 < with_copies["asked_exactly_percent"] < 60
    assert with_copies["filters_mb_per_million"] > without["filters_mb_per_million"] > 0


# step.py


def test_two_loops_in_turn_show_results_and_say_what_a_step_takes() -> None:
    command = [sys.executable, "-m", "bench", "step", "--cycles", "20", "--tries", "2"]
    done = subprocess.run(
        command, cwd=HOUSE, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("a step: ")


# tracing_cost.py


def test_each_kind_of_round_is_measured_and_only_the_sampled_one_has_spans() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    found = tracing_cost.measured(2, 0.01)
    assert min(found["plain_ms"], found["idle_ms"], found["sampled_ms"]) > 0
    assert 50 < found["spans"] < 1_000


# uv_opened.py


def test_a_shard_is_filled_asked_and_opened() -> None:
    found = uv_opened.figures(20_000)
    assert found["devices"] == 20_000
    assert found["new_us"] > 0
    assert found["open_s"] < 60


def test_a_shard_forgets_an_eighth_after_the_other() -> None:
    found = forgetting(48_000)
    assert 0 <= found["forget_ms"] <= found["longest_with_ttl_ms"]


# watermarks.py


def test_a_small_service_is_filled_and_asked(tmp_path: Path) -> None:
    found = watermarks.measure(100, tmp_path)
    assert found.correct
    assert found.metrics["all_ms"] > 0
    assert found.metrics["one_p99_ms"] >= found.metrics["one_ms"] > 0
