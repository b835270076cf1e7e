"""The cache of accumulators holds what the store holds, also when an aggregator fails half way."""

from __future__ import annotations

from pathlib import Path

from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.slices.test_sliced import S, pipeline

CODE = """
from millwheel import Aggregator

class Picky(Aggregator):
    def create(self):
        return []
    def add(self, acc, value, timestamp):
        acc.append(value)
        if value == 13:
            raise LookupError("thirteen")
        return acc
    def merge(self, acc, other):
        return acc + other
"""


def test_a_record_that_an_aggregator_of_the_users_cannot_take_changes_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.py").write_text(CODE)
    with PipelineHarness(
        pipeline(tmp_path, aggregate='{n: count, seen: {"own:Picky": cost}}')
    ) as harness:
        for cost in (1, 13, 2):
            harness.push("events", {"at": 5 * S, "ad": 1, "cost": cost})
        assert harness.ask("clicks", 1, "1m", 60 * S).values == {"n": 2, "seen": [1, 2]}
        assert harness.counters["dead_letters"] == 1
