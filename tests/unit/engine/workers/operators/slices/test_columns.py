"""Slices that take bundles in columns hold what slices that take them record by record hold, to the
last bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.forms.slices import slice_plan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import SLICE
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.pipeline.work import AggregateSpec, SlicesSpec
from millwheel.engine.queries.slices import decode_slice
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.slices.computation import SlicesOperator
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.testing import PipelineHarness
from tests.computations import changed
from tests.fakes.plain_storage import SimStore
from tests.unit.core.columns.state.test_windows import EVERYTHING, Row, batch_of, bundles, spec_of
from tests.unit.engine.workers.operators.column_runs import in_rows

S = 1_000_000
GATHERED = (
    AggregateSpec("n", "count"),
    AggregateSpec("spread", "stddev", "size"),
    AggregateSpec("half", "quantile", "cost", options={"q": 0.5}),
    AggregateSpec("kinds", "count_distinct", "kind", condition="size > 0"),
    AggregateSpec("about", "approx_count_distinct", "cost"),
    AggregateSpec("best", "top_k", "kind", options={"k": 2}),
)


def operator(limit: int | None = None, **changes: Any) -> SlicesOperator:
    slices = changes.pop("slices", SlicesSpec((5, 10, 40), 20))
    spec, pipeline = spec_of(outputs=(), late="side:behind", **changes)
    spec = changed(spec, window=None, slices=slices)
    pipeline = replace(pipeline, computations=(spec,))
    if limit is not None:
        pipeline = replace(pipeline, limits=replace(pipeline.limits, state=limit))
    plan = slice_plan(spec, pipeline, compile_expression)
    assert plan is not None
    store = SimStore({})
    return SlicesOperator(
        spec, pipeline, store, Overlay(store), lambda stream, values: values, 7, plan
    )


def held(slices: SlicesOperator, script: Any, form: Callable[[ColumnBatch], AnyBatch]) -> list[Any]:
    """What each bundle sets aside, and all that is kept behind it; each comes before the watermark
    rises by so much."""
    timers = {domain: TimerQueue(domain) for domain in Domain}
    overlay = slices._cells._overlay
    found, watermark = [], 0
    for number, (rows, rise) in enumerate(script, 1):
        arrivals = [Arrival(ChannelName("c"), 1, 0, form(batch_of(rows)), None, 0)] if rows else []
        bundle = Bundle(number, 0, watermark, arrivals, overlay, timers)
        slices.run(bundle)
        kept = {}
        for store_key, data in overlay.scan(SLICE):
            stored = decode_slice(data)
            kept[store_key] = stored.newest_us, repr(slices._answers.aggregation.result(stored.acc))
        aside = {
            name: sorted(made.decoded, key=repr) for name, made in bundle.outputs.streams.items()
        }
        found.append((kept, aside, bundle.counters))
        watermark += rise
    return found


@pytest.mark.parametrize("zone", ["", "Asia/Kathmandu"], ids=["utc", "zone"])
@pytest.mark.parametrize("aggregates", [EVERYTHING, GATHERED], ids=["own columns", "gathered"])
@pytest.mark.parametrize("condition", ["", "size > 0"], ids=["all", "some"])
@given(script=bundles)
@settings(max_examples=13)
def test_bundles_in_columns_leave_what_the_same_bundles_leave_in_rows(
    zone: str, aggregates: Any, condition: str, script: list[tuple[list[Row], int]]
) -> None:
    levels = (5, 10, 40) if not zone else (5, 10, 86_400 * S)
    changes: dict[str, Any] = {"aggregates": aggregates, "condition": condition}
    made = []
    for form in (lambda batch: batch, lambda batch: batch.rows()):
        slices = operator(slices=SlicesSpec(levels, 20, zone), **changes)
        made.append(held(slices, script, form))
        assert slices._columns is not None
        in_columns = slices._columns.bundles
    assert made[0] == made[1]
    assert in_columns == 0


def test_late_records_change_their_own_slice_and_those_of_expired_slices_alone_go_by_rows() -> None:
    slices = operator()
    script = [
        ([Row(1, "click", 1.0, 1, 27)], 45),
        ([Row(1, "click", 2.0, 1, at) for at in (3, 26, 44)], 0),
    ]
    _, (kept, aside, counters) = held(slices, script, lambda batch: batch)
    assert slices._columns is not None
    assert slices._columns.bundles == 2
    assert counters["late"] == 1
    assert [row["size"] for row in aside["behind"]] == [1]
    assert [newest for newest, _ in kept.values()].count(27) == 3  # of each level
    assert max(newest for newest, _ in kept.values()) == 44


def test_numbers_that_no_column_holds_and_accumulators_over_the_limit_go_by_rows() -> None:
    for limit, cost, in_columns in ((None, 1.0, 1), (None, 1e300, 0), (20, 1.0, 0)):
        slices = operator(limit)
        rows = [Row(1, "click", cost + at, 1, at) for at in range(3)]
        [(kept, _, _)] = held(slices, [(rows, 0)], lambda batch: batch)
        assert slices._columns is not None
        assert (slices._columns.bundles, bool(kept)) == (in_columns, limit is None)


def test_what_reads_columns_and_what_reads_rows_answer_the_same(tmp_path: Path) -> None:
    """Records come late at the source, and one line is broken."""
    records = [
        {"at": at * S, "ad": at % 3, "kind": "click", "cost": at / 7}
        for at in (*range(0, 90, 2), 3, 50, 7, 51)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    (tmp_path / "b.jsonl").write_text(json.dumps(records[0]) + "\n{broken\n")
    path = tmp_path / "slices.yaml"
    path.write_text(
        f"""
pipeline: columns
streams:
  events:
    source: {{files: {{path: "{tmp_path}/*.jsonl", format: jsonl}}}}
    timestamp: at
    fields: {{at: int, ad: int, kind: str, cost: float}}
    watermark: {{max_delay: 5s}}
computations:
  clicks:
    input: {{events: {{key: ad}}}}
    slices: {{every: 10s, keep: 10m, levels: [10s, 1m]}}
    aggregate: {{n: count, spend: {{sum: cost}}, half: {{quantile: cost, q: 0.5}}}}
"""
    )
    found = []
    for rows in (False, True):
        with in_rows(rows), PipelineHarness(str(path), run_sources=True, shards=2) as harness:
            harness.advance_processing_time(10**9)
            operators: list[Any] = [
                shard.operator for shard in harness._cluster.shards_of("clicks")
            ]
            bundles = sum(each._columns.bundles for each in operators if each._columns is not None)
            asked = [
                harness.ask("clicks", ad, window, 90 * S).values
                for ad in range(3)
                for window in ("30s", "90s")
            ]
            found.append((repr(asked), harness.counters["dead_letters"]))
            assert (bundles > 0) is not rows
            assert sum(asked[number]["n"] for number in (1, 3, 5)) == len(records) + 1
    assert found[0] == found[1]
