from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.nexmark.events import write
from bench.nexmark.judge import judged
from bench.nexmark.queries import QUERIES
from millwheel import as_retraction
from millwheel.testing import PipelineHarness


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark") / "events"
    write(folder, 2_500, 2, 7)
    return folder


def as_written(row: Any) -> dict[str, Any]:
    """As a sink of changes writes it."""
    back = as_retraction(row)
    return {"change": "+", **row} if back is None else {"change": "-", **back.value}


@pytest.mark.parametrize("name", QUERIES)
def test_its_rows_are_those_of_duckdb(name: str, events: Path, tmp_path: Path) -> None:
    query = QUERIES[name]
    (tmp_path / "p.yaml").write_text(query.pipeline(name))
    params = {"input": str(events), "output": str(tmp_path / "out")}
    with PipelineHarness(tmp_path / "p.yaml", params=params, run_sources=True, shards=2) as harness:
        harness.advance_processing_time(60_000_000)
        rows = harness.read("rows")
    if query.marked:
        rows = list(map(as_written, rows))
    check = judged(query, events, rows)
    assert check.rows
    assert check.correct, check.example
