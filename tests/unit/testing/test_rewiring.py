"""A pipeline under test reads what is pushed, and not its own sources."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millwheel.spec import load_pipeline
from millwheel.testing import PipelineHarness
from tests.unit.testing.test_pipeline_harness import Make, order


def test_the_sources_of_the_file_may_run(tmp_path: Path, make: Make) -> None:
    rows = [order(n, at=10**12 + n * 1000) for n in range(100)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    with PipelineHarness(_bounded(tmp_path), run_sources=True, crash_every=40) as harness:
        assert sum(row["n"] for row in harness.read("out")) == 100
        assert harness.crashes > 0
        assert harness.read("dead_letters") == []
        with pytest.raises(ValueError, match="give the pipeline a sink"):
            harness.read("orders")
        with pytest.raises(ValueError, match="its own source runs"):
            harness.push("orders", order(1))
        with pytest.raises(ValueError, match="sources of the pipeline move their watermarks"):
            harness.advance_watermark(1)


def _bounded(folder: Path) -> Path:
    (folder / "bounded.yaml").write_text(
        "pipeline: p\nstreams: {orders: {source: {files: {path: in.jsonl, format: jsonl}}, "
        "timestamp: {field: ts, unit: ms}}}\n"
        "computations: {c: {input: {orders: {key: shop}}, window: {tumbling: 10s}, aggregate: {n: count}, "
        "output: out}}\n"
    )
    return folder / "bounded.yaml"


def test_a_spec_will_do(tmp_path: Path, make: Make) -> None:
    make()
    spec = load_pipeline(str(tmp_path / "pipeline.yaml"), {"input": "x", "output": "y"})
    with PipelineHarness(spec) as harness:
        harness.push("orders", order(1))
        assert harness.state("accounts", "ann")["seen"] == ["o1"]
