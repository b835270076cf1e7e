from __future__ import annotations

from bench import metrics_cost
from millwheel.testing import PipelineHarness


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
