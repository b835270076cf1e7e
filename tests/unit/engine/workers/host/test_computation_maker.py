"""Each kind of work has its operator; which one may depend on whether fields are declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.testing import PipelineHarness

PIPELINE = """
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: at, fields: {at: int, k: str, n: int}}
  pages: {source: {injection: {}}, timestamp: at, fields: {at: int, k: str, n: int}}
computations:
  c: {input: %s, %s, output: out}
"""
ONE, TWO = "{hits: {key: k}}", "{hits: {key: k}, pages: {key: k}}"
KINDS = {
    "windows": (ONE, "window: {tumbling: 1m}, aggregate: {n: count}", "ColumnOperator"),
    "count windows": (ONE, "window: {count: 3}, aggregate: {n: count}", "GroupedOperator"),
    "change log": (ONE, "aggregate: {n: count}", "ChangeLogOperator"),
    "windows in rows": (
        ONE,
        "window: {tumbling: 1m}, aggregate: {all: {collect: k}}",
        "WindowedOperator",
    ),
    "steps": (ONE, "map: {k: k}", "StatelessOperator"),
    "deduplication": (ONE, "deduplicate: {within: 1m}", "CallbackOperator"),
    "join by bundle": (TWO, "window: {tumbling: 1m}, join: inner", "JoinOperator"),
    "join of sessions": (TWO, "window: {session: 1m}, join: inner", "WindowJoinOperator"),
    "join of all": (TWO, "join: inner", "LastingJoinOperator"),
    "join near": (TWO, "join: {kind: inner, within: {before: 1m}}", "ColumnJoinOfBatches"),
    "first rows": (ONE, "top: {by: n, k: 2}", "FirstRowsOperator"),
    "look-backs": (ONE, "over: {rows: 2}, aggregate: {n: count}", "OverOperator"),
    "sums of all": (ONE, "over: {rows: all}, aggregate: {n: count}", "BatchOperator"),
}


@pytest.mark.parametrize(("given", "work", "kind"), KINDS.values(), ids=KINDS)
def test_each_kind_of_work_has_its_operator(
    tmp_path: Path, given: str, work: str, kind: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE % (given, work))
    with PipelineHarness(path, shards=1) as harness:
        [shard] = harness._cluster.shards_of("c")
        assert type(shard.operator).__name__ == kind
