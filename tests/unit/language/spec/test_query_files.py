"""Named queries on their own, against the computations of a pipeline that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.errors import PipelineError
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.language.spec.query_files import load_queries, one_query

PIPELINE = """
pipeline: asked
streams:
  events: {source: {injection: {}}, timestamp: at}
computations:
  clicks: {input: {events: {key: ad}}, slices: {every: 1m, keep: 1d}, aggregate: {n: count,
    spend: {sum: cost}}}
queries:
  cpc: {formula: clicks.spend / clicks.n, window: 1h}
"""


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    return load_pipeline(tmp_path / "p.yaml")


def test_a_file_may_be_a_whole_pipeline_or_queries_alone(
    spec: PipelineSpec, tmp_path: Path
) -> None:
    assert [each.name for each in load_queries(str(tmp_path / "p.yaml"), spec)] == ["cpc"]
    (tmp_path / "q.yaml").write_text("queries:\n  many: {formula: clicks.n * 2}\n")
    assert [each.formula for each in load_queries(str(tmp_path / "q.yaml"), spec)] == [
        "clicks.n * 2"
    ]


def test_one_query_has_a_formula_and_perhaps_a_window(spec: PipelineSpec) -> None:
    (found,) = one_query("many", "clicks.n * 2", "3h", spec)
    assert (found.name, found.window_us) == ("many", 3 * 3_600_000_000)


@pytest.mark.parametrize(
    ("name", "formula", "window", "said"),
    [
        ("q", "views.n", "", "unknown computation 'views'"),
        ("q", "clicks.m", "", "unknown value of clicks 'm'"),
        ("q", "clicks.n", "2d", "longer than clicks keeps"),
        ("q", "clicks.n +", "", "no expression"),
        ("q q", "clicks.n", "", "cannot be the name"),
        ("clicks", "clicks.n", "", "name of a computation"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    spec: PipelineSpec, name: str, formula: str, window: str, said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        one_query(name, formula, window, spec)
