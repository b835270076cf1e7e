"""Local combine of productions: an aggregation that gets groups gives the results of records,
whatever the form, and whoever crashes."""

from __future__ import annotations

import json
from collections import Counter
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from millwheel.core.columns.batch import AnyBatch
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch
from millwheel.engine.workers.delivery.combining import CombineLimits, Combining, Worth, share
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.engine.workers.shard.productions import ProductionBuilding
from millwheel.testing import PipelineHarness, assert_survives_crashes

PIPELINE = """
pipeline: combined
streams:
  events:
    source: {{injection: {{}}}}
    timestamp: {{field: ts, unit: s}}
    {fields}
    watermark: {{max_delay: 5s}}
computations:
  kept: {{input: {{events: {{key: k}}}}, filter: "n != 6", output: kept}}
  minutes:
    input: {{kept: {{key: k}}}}
    window: {{{window}}}
    aggregate:
      events: count
      spend: {{sum: cost}}
      rare: {{sum: cost, where: "n > 3"}}
      mean: {{mean: cost}}
      most: {{max: n}}
      least: {{min: n}}
      top: {{top_k: n, k: 2}}
      distinct: {{count_distinct: n}}
      near: {{approx_count_distinct: n}}
      p50: {{quantile: cost, q: 0.5}}
      dev: {{stddev: cost}}
    where: "n != 5"
    output: minutes
  totals:
    input: {{minutes: {{key: events}}}}
    window: {{tumbling: 30s}}
    aggregate: {{windows: count, spend: {{sum: spend}}}}
    output: totals
sinks: {sinks}
"""
FIELDS = "fields: {k: str, n: int, cost: float, ts: int}"
ALWAYS = CombineLimits(least=1, enters=9.0, leaves=9.0)
NEVER = CombineLimits(least=10**9)


def pipeline(
    folder: Path, window: str = "tumbling: 10s", fields: str = "", shown: bool = False
) -> str:
    path = folder / "pipeline.yaml"
    sinks = "{totals: stdout, minutes: stdout}" if shown else "{totals: stdout}"
    path.write_text(PIPELINE.format(window=window, fields=fields, sinks=sinks))
    return str(path)


def records(count: int = 120) -> list[dict[str, Any]]:
    """Nearly all of one key; some are late, some cannot be used."""
    late = set(range(40, count, 25))
    made: list[dict[str, Any]] = [
        {
            "k": "hot" if i % 10 else f"k{i % 3}",
            "n": i % 7,
            "cost": i * 0.1,
            "ts": i // 4 - (20 if i in late else 0),
        }
        for i in range(count)
    ]
    return [
        *made,
        {"k": "hot", "n": 1, "cost": "dear", "ts": count // 4},
        {"k": "hot", "n": 1, "ts": count // 4},
    ]


def combine(monkeypatch: pytest.MonkeyPatch, limits: CombineLimits) -> Counter[str]:
    """From here on. How many productions were sent as groups, by the stream that they are of."""
    found: Counter[str] = Counter()
    right = ProductionBuilding._take_groups

    def counted(self: ProductionBuilding, groups: AnyBatch, *given: Any) -> None:
        found[groups.stream] += len(groups)
        right(self, groups, *given)

    monkeypatch.setattr(ProductionBuilding, "_take_groups", counted)
    monkeypatch.setattr(ShardLimits, "__init__", partialmethod(_whole, combine=limits))
    return found


_whole = ShardLimits.__init__


def story(harness: PipelineHarness) -> None:
    given = records()
    for start in range(0, len(given), 19):
        harness.push("events", given[start : start + 19])
        harness.advance_watermark(max(start // 4 - 5, 0) * 1_000_000)
    harness.finish()


def results(path: str, stream: str) -> tuple[Counter[str], dict[str, int], list[Any]]:
    with PipelineHarness(path) as harness:
        story(harness)
        rows = Counter(json.dumps(row, sort_keys=True) for row in harness.read(stream))
        counters = {
            name: count
            for name, count in harness.counters.items()
            if name in ("late", "dead_letters")
        }
        letters = [
            [each[name] for name in ("computation", "reason", "key", "value", "timestamp")]
            for each in harness.read("dead_letters")
        ]
        return rows, counters, sorted(letters, key=repr)


@pytest.mark.parametrize(
    "window", ["tumbling: 10s", "sliding: 10s, every: 5s", "sliding: 10s, every: 5s, offset: 2s"]
)
@pytest.mark.parametrize("fields", ["", FIELDS], ids=["undeclared", "declared"])
@pytest.mark.parametrize("shown", [True, False])
def test_results_late_records_and_dead_letters_are_those_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str, fields: str, shown: bool
) -> None:
    path, stream = pipeline(tmp_path, window, fields, shown), "minutes" if shown else "totals"
    sent = combine(monkeypatch, NEVER)
    whole = results(path, stream)
    assert not sent
    sent = combine(monkeypatch, ALWAYS)
    assert results(path, stream) == whole
    assert sent["groups of minutes"] > 0
    assert shown or sent["groups of totals"] > 0
    assert whole[1]["late"] > 0
    assert len(whole[2]) == 2


@pytest.mark.parametrize("fields", ["", FIELDS], ids=["undeclared", "declared"])
@pytest.mark.parametrize("key", ["all", '{third: "n // 3"}', "k, null_key: group"])
def test_one_group_of_everything_is_combined_by_its_senders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, key: str
) -> None:
    """And so are groups by expressions."""
    path = Path(pipeline(tmp_path, fields=fields, shown=True))
    path.write_text(path.read_text().replace("{kept: {key: k}}", f"{{kept: {{key: {key}}}}}"))
    sent = combine(monkeypatch, NEVER)
    whole = results(str(path), "minutes")
    assert not sent
    sent = combine(monkeypatch, ALWAYS)
    assert results(str(path), "minutes") == whole
    assert sent["groups of minutes"] > 0
    named = {"k": "k", "a": "window_start", "{": "third"}[key[0]]
    assert all(named in json.loads(row) and "key" not in json.loads(row) for row in whole[0])


def test_a_crash_at_any_time_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = combine(monkeypatch, ALWAYS)

    def short(harness: PipelineHarness) -> None:
        harness.push("events", records(40)[:20])
        harness.advance_watermark(4_000_000)
        harness.push("events", records(40)[20:])
        harness.finish()

    assert assert_survives_crashes(pipeline(tmp_path), short, every=23) > 2
    assert sent["groups of minutes"] > 0


class Fixed:
    """Makes so many groups."""

    def __init__(self, count: int) -> None:
        self.count = count

    def groups(self, node: NodeName, batch: AnyBatch) -> Batch | None:
        return rows(self.count) if self.count else None


def rows(count: int) -> Batch:
    return Batch("s", [], [0] * count, [0] * count, [b""] * count)


def test_productions_are_grouped_while_that_makes_them_fewer() -> None:
    limits = CombineLimits(least=80, enters=0.25, leaves=0.5, pause=4)
    node, worth = NodeName("n"), Worth()

    def grouped(records: int, groups: int) -> bool:
        combining = Combining({node: Fixed(groups)}, limits)  # type: ignore[dict-item]
        return worth.groups(combining, records, lambda: [(node, rows(records))]) is not None

    assert not grouped(9, 1)  # too few to be looked at
    assert grouped(100, 25)
    assert grouped(100, 50)  # further than it begins
    assert not grouped(100, 51)
    # the next look is two bundles away
    assert [grouped(100, 25) for _ in range(2)] == [False, True]
    assert not grouped(100, 0)
    assert not any(grouped(100, 99) for _ in range(8))
    assert [grouped(100, 1) for _ in range(4)].count(True) >= 1  # and never more than the pause
    assert worth.groups(Combining({}, limits), 100, lambda: None) is None


def test_large_groups_count_as_several_records() -> None:
    large = rows(2)
    large.size = 64 * 50
    assert share([large], [(NodeName("n"), rows(100))]) == 0.5
    assert share([rows(2)], [(NodeName("n"), rows(100))]) == 0.02
