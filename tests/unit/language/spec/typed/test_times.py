"""Texts that are compared with times."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.pipeline.work import StepsSpec
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.testing import PipelineHarness

_HEAD = (
    "pipeline: p\nstreams: {a: {source: {injection: {}}, timestamp: at, fields: {at: timestamp,"
    " until: timestamp, s: str, n: int}}}\nsinks: {out: {stdout: {}}}\n"
    'computations:\n  c:\n    input: a\n    output: out\n    filter: "FILTER"\n'
)


def _filter(folder: Path, text: str, head: str = _HEAD) -> str:
    file = folder / "pipeline.yaml"
    file.write_text(head.replace("FILTER", text))
    return load_pipeline(file).computations[0].work_as(StepsSpec).steps[0].expression


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("at >= '2026-01-01'", "at >= parse_time('2026-01-01')"),
        (
            "'2026-01-01' <= at < '2026-02-01T00:00:00+01:00'",
            "parse_time('2026-01-01') <= at < parse_time('2026-02-01T00:00:00+01:00')",
        ),
        (
            "s != 'é' and at in ['2026-01-01', '2026-01-02']",
            "s != 'é' and at in [parse_time('2026-01-01'), parse_time('2026-01-02')]",
        ),
        (
            "between(at + 5, '2026-01-01', until) or n > 1",
            "between(at + 5, parse_time('2026-01-01'), until) or n > 1",
        ),
        ("trunc(at, '1d') == '2026-01-01'", "trunc(at, '1d') == parse_time('2026-01-01')"),
        ("s > '2026-01-01'", "s > '2026-01-01'"),
        ("iso(at) > '2026-01-01'", "iso(at) > '2026-01-01'"),
    ],
)
def test_texts_that_are_compared_with_times_become_times(
    written: str, read: str, tmp_path: Path
) -> None:
    assert _filter(tmp_path, written) == read
    assert _filter(tmp_path, f" {written}  ", "nulls: sql\n" + _HEAD).strip() == read


def test_an_expression_may_have_several_lines(tmp_path: Path) -> None:
    head = _HEAD.replace('"FILTER"', "|\n      s == 'é'\n      and at > '2026-01-01'\n")
    assert _filter(tmp_path, "", head) == "s == 'é'\nand at > parse_time('2026-01-01')"


@pytest.mark.parametrize("nulls", ["", "nulls: sql\n"])
def test_records_are_compared_with_the_time(nulls: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    text = "at >= '2026-01-01T00:00:00.000001Z' and at < '2026-01-02'"
    file.write_text(nulls + _HEAD.replace("FILTER", text))
    with PipelineHarness(file) as harness:
        for at in ("2025-12-31T23:00-02:00", "2026-01-01", "2026-01-02", "2026-01-01T23:59:59Z"):
            harness.push("a", {"at": at})
        found = [each["at"] for each in harness.read("out")]
    assert found == [1767229200000000, 1767311999000000]
