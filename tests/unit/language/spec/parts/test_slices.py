"""Slices and named queries as they are written: what they become, and the messages of mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.core.pipeline.spec import PipelineSpec, QuerySpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.errors import PipelineError
from millwheel.language.spec.pipelines import load_pipeline

M, H, D = 60_000_000, 3_600_000_000, 86_400_000_000


def read(tmp_path: Path, computation: str) -> SlicesSpec:
    path = tmp_path / "p.yaml"
    path.write_text(f"""
pipeline: asked
streams: {{events: {{source: {{injection: {{}}}}, timestamp: at}}}}
computations: {{clicks: {{input: {{events: {{key: ad}}}}, {computation}}}}}
""")
    found = load_pipeline(path, {}, {}).computations[0].work
    assert isinstance(found, SlicesSpec)
    return replace(found, aggregates=())


def test_levels_are_chosen_unless_they_are_given(tmp_path: Path) -> None:
    assert read(tmp_path, "slices: {every: 5m, keep: 30d}, aggregate: {n: count}") == SlicesSpec(
        (5 * M, H, D), 30 * D
    )
    given = (
        "slices: {every: 5m, keep: 30d, levels: [5m, 15m], time_zone: Asia/Tokyo, ttl: 2d},"
        " aggregate: {n: count}"
    )
    assert read(tmp_path, given) == SlicesSpec((5 * M, 15 * M), 30 * D, "Asia/Tokyo", 2 * D)


def test_late_records_may_change_slices_so_the_source_lets_them_pass(tmp_path: Path) -> None:
    read(tmp_path, "slices: {every: 5m, keep: 30d}, aggregate: {n: count}")
    assert load_pipeline(tmp_path / "p.yaml", {}, {}).computations[0].takes_late


@pytest.mark.parametrize(
    ("computation", "said"),
    [
        ("slices: {every: 5m, keep: 30d}", "slices keep aggregates"),
        ("slices: {every: 5m}, aggregate: {n: count}", "slices.keep: is missing"),
        ("slices: {every: 5m, keep: 1m}, aggregate: {n: count}", "shorter than one slice"),
        ("slices: {every: 1us, keep: 1d}, aggregate: {n: count}", "more than 1000000"),
        (
            "slices: {every: 5m, keep: 1d, levels: [1h]}, aggregate: {n: count}",
            "the first level is every",
        ),
        (
            "slices: {every: 5m, keep: 1d, levels: [5m, 7m]}, aggregate: {n: count}",
            "not a multiple",
        ),
        ("slices: {every: 5m, keep: 1d, ttl: 1m}, aggregate: {n: count}", "shorter than one slice"),
        ("slices: {every: 5m, keep: 1d}, aggregate: {n: count}, output: x", "they are asked"),
        (
            "slices: {every: 5m, keep: 1d}, aggregate: {n: count}, window: {tumbling: 1m}",
            "not for computations with",
        ),
        (
            "slices: {every: 5m, keep: 1d}, aggregate: {n: count}, filter: a > 1",
            "not for computations with slices",
        ),
        (
            "slices: {every: 5m, keep: 1d}, aggregate: {n: count}, late: refire",
            "emit nothing again",
        ),
        (
            "slices: {every: 5m, keep: 1d}, aggregate: {n: count}, productions: weak",
            "nothing that could be weak",
        ),
        (
            "slices: {every: 5m, keep: 1d}, aggregate: {watermark: count}",
            "every row already has a field",
        ),
        ("slices: {every: 5m, keep: 1d, kepp: 2d}, aggregate: {n: count}", "unknown field 'kepp'"),
    ],
)
def test_mistakes_are_named_with_what_to_write_instead(
    tmp_path: Path, computation: str, said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        read(tmp_path, computation)


def read_query_file(tmp_path: Path, queries: str) -> PipelineSpec:
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
    spec = read_query_file(
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
        read_query_file(tmp_path, queries)
