"""Records that wait in columns, and what sends a key on in rows."""

from __future__ import annotations

from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from millwheel.engine.workers.operators.waiting import (
    EnrichOperator,
    OrderedOperator,
    WaitingOperator,
)
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.testing import PipelineHarness

PIPELINE = """
pipeline: p
streams:
  events:
    source: {injection: {}}
    timestamp: {field: at, unit: us}
    fields: {at: int, k: int, n: float}
  prices:
    source: {injection: {}}
    timestamp: {field: at, unit: us}
    fields: {at: int, k: int, cents: int}
computations:
  sorted: {input: {events: {key: k}}, map: {k: k, n: n}, order_by: timestamp, output: sorted}
  priced: {input: {events: {key: k}, prices: {key: k}}, enrich: {with: prices}, output: priced}
"""


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    limits = partialmethod(ShardLimits.__init__, rows_below=0, columns_from=1)
    monkeypatch.setattr(ShardLimits, "__init__", limits)
    (tmp_path / "p.yaml").write_text(PIPELINE)
    with PipelineHarness(str(tmp_path / "p.yaml"), shards=1) as made:
        yield made


def operator(harness: PipelineHarness, name: str) -> WaitingOperator:
    [shard] = harness._cluster.shards_of(name)
    assert isinstance(shard.operator, WaitingOperator)
    return shard.operator


def held(harness: PipelineHarness, name: str) -> int:
    return sum(each.groups.height for each in operator(harness, name)._segments())


def cents(harness: PipelineHarness) -> list[tuple[int, int | None]]:
    rows = harness.take("priced")
    return [(row["n"], row["prices"] and row["prices"]["cents"]) for row in rows]


def test_records_wait_in_columns_over_crashes_and_hold_the_watermark(
    harness: PipelineHarness,
) -> None:
    harness.push("events", [{"at": at, "k": at % 2, "n": at} for at in (9, 4, 6, 5)])
    harness.push("prices", [{"at": 5, "k": 1, "cents": 3}])
    assert held(harness, "sorted") + held(harness, "priced") > 0
    assert operator(harness, "priced").hold(0).at <= 4
    harness.crash()
    harness.advance_watermark(6)
    assert [row["n"] for row in harness.take("sorted")] == [4, 5]
    priced = [
        (row["n"], row["prices"] and row["prices"]["cents"]) for row in harness.take("priced")
    ]
    assert priced == [(4, None), (5, 3)]
    harness.crash()
    harness.advance_watermark(100)
    assert [row["n"] for row in harness.take("sorted")] == [6, 9]
    assert cents(harness) == [(6, None), (9, 3)]
    assert not held(harness, "sorted")


def test_a_key_with_a_record_that_columns_cannot_hold_goes_on_in_rows(
    harness: PipelineHarness,
) -> None:
    harness.push("prices", [{"at": 1, "k": k, "cents": k} for k in (1, 2)])
    harness.push("prices", [{"at": 20, "k": k, "cents": 7 * k} for k in (1, 2)])
    harness.push("events", [{"at": at, "k": k, "n": at} for at in (2, 30) for k in (1, 2)])
    harness.advance_watermark(10)
    assert [row["prices"]["cents"] for row in harness.take("priced")] == [1, 2]
    before = held(harness, "priced")
    harness.push("events", [{"at": 25, "k": 1, "n": float("inf")}])
    keys = {key for each in operator(harness, "priced")._segments() for key in each.groups["key"]}
    assert (keys, held(harness, "priced") < before) == ({2}, True)
    harness.crash()
    harness.advance_watermark(50)
    rows = harness.take("priced")
    assert sorted((row["k"], row["at"], row["prices"]["cents"]) for row in rows) == [
        (1, 25, 7), (1, 30, 7), (2, 30, 14),
    ]  # fmt: skip


def test_what_another_version_had_in_columns_goes_on_in_rows(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.push("prices", [{"at": 1, "k": 1, "cents": 2}])
    harness.push("events", [{"at": at, "k": 1, "n": at} for at in (2, 30)])
    harness.advance_watermark(10)
    assert cents(harness) == [(2, 2)]
    assert [row["n"] for row in harness.take("sorted")] == [2]
    for kind in (EnrichOperator, OrderedOperator):
        right: Any = kind.__init__
        in_rows = partialmethod(lambda self, right, plan, *rest: right(self, None, *rest), right)
        monkeypatch.setattr(kind, "__init__", in_rows)
    harness.crash()
    harness.push("events", [{"at": 20, "k": 1, "n": 20}])
    assert not held(harness, "priced") + held(harness, "sorted")
    harness.advance_watermark(50)
    assert cents(harness) == [(20, 2), (30, 2)]
    assert [row["n"] for row in harness.take("sorted")] == [20, 30]
    assert not harness.counters.get("failed_in_columns", 0)
