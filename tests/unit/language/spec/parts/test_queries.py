"""Named queries as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.pipeline.spec import PipelineSpec, QuerySpec
from millwheel.errors import PipelineError
from millwheel.language.spec.pipelines import load_pipeline


def read(tmp_path: Path, queries: str) -> PipelineSpec:
    path = tmp_path / "p.yaml"
    path.write_text(
        f"""
pipeline: asked
streams: {{events: {{source: {{injection: {{}}}}, timestamp: at}}}}
computations:
  clicks:
    input: {{events: {{key: ad}}}}
    slices: {{every: 1m, keep: 1d}}
    aggregate: {{n: count, spend: {{sum: cost}}}}
queries: {queries}
"""
    )
    return load_pipeline(path, {}, {})


def test_a_query_has_a_formula_a_window_and_keys(tmp_path: Path) -> None:
    spec = read(
        tmp_path,
        "{cpc: {formula: clicks.spend / clicks.n, window: 1h, key: [ad], keys: {clicks: ad}}}",
    )
    (query,) = spec.queries
    assert query == QuerySpec(
        "cpc", "clicks.spend / clicks.n", 3_600_000_000, ("ad",), {"clicks": ("ad",)}, query.where
    )


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ("{cpc: {window: 1h}}", "formula: is missing"),
        ("{cpc: {formula: clicks.spend /}}", "queries.cpc.formula"),
        ("{cpc: {formula: 1 + 1}}", "asks nothing"),
        ("{c p: {formula: clicks.n}}", "cannot be the name of a query"),
        ("{cpc: {formula: clicks.n, windw: 1h}}", "unknown field 'windw'"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, queries: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        read(tmp_path, queries)
