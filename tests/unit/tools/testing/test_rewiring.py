"""A pipeline under test reads what is pushed, and not its own sources."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millwheel.language.spec import load_pipeline
from millwheel.testing import PipelineHarness
from tests.unit.tools.testing.test_pipeline_harness import Make, order


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
        "pipeline: p\nstreams: {orders: {source: {files: {path: in.jsonl, format: jsonl}},"
        " timestamp: {field: ts, unit: ms}}}\ncomputations: {c: {input: {orders: {key: shop}},"
        " window: {tumbling: 10s}, aggregate: {n: count}, output: out}}\n"
    )
    return folder / "bounded.yaml"


def test_a_spec_will_do(tmp_path: Path, make: Make) -> None:
    make()
    spec = load_pipeline(str(tmp_path / "pipeline.yaml"), {"input": "x", "output": "y"})
    with PipelineHarness(spec) as harness:
        harness.push("orders", order(1))
        assert harness.state("accounts", "ann")["seen"] == ["o1"]


@pytest.mark.parametrize("skew", ["shuffle(3)", "tag(3)", "auto(3)"])
def test_copies_of_injected_records_count_once_where_keys_are_divided(
    tmp_path: Path, skew: str
) -> None:
    (tmp_path / "injected.yaml").write_text(
        "pipeline: p\nstreams: {hits: {source: {injection: {}}, timestamp: at, id: id}}\n"
        "computations: {c: {input: {hits: {key: k}}, window: {tumbling: 10s},"
        f" aggregate: {{n: count}}, skew: {skew}, output: out}}}}\n"
    )
    with PipelineHarness(tmp_path / "injected.yaml", shards=3, crash_every=7) as harness:
        for _ in range(2):
            harness.push("hits", [{"at": n, "k": "a", "id": f"id-{n}"} for n in range(40)])
        harness.finish()
        assert [row["n"] for row in harness.read("out")] == [40]
