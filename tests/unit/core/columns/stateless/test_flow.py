"""Types of streams follow from the expressions that make their fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.columns.stateless.flow import follows_types, types_of
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.language.spec import load_pipeline

PIPELINE = """
pipeline: p
streams:
  bids:
    source: {files: {path: in, format: jsonl}}
    timestamp: {field: at, unit: us}
    fields: {at: int, auction: int, price: float, url: str}
  bare:
    source: {files: {path: in, format: jsonl}}
    timestamp: {field: at, unit: us}
computations:
  made: {input: bids, map: {auction: auction, price: "price * 2", n: "len(url)"}, output: made}
  again: {input: made, filter: n > 1, map: {ratio: "n / auction", big: "n > 3"}, output: again}
  kept: {input: made, filter: n > 1, output: kept}
  ways: {input: kept, branch: {few: n < 3, many: otherwise}}
  passed: {input: bids, filter: auction > 1, output: passed}
  unknown: {input: bare, map: {auction: auction}, output: unknown}
  counts: {input: {made: {key: auction}}, window: {tumbling: 10s}, aggregate: {n: count},
    output: counts}
  one: {input: made, map: {x: auction}, output: both}
  other: {input: made, map: {x: price}, output: both}
"""


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    return load_pipeline(tmp_path / "p.yaml")


MADE = {"auction": "int", "price": "float", "n": "int"}


@pytest.mark.parametrize(
    ("stream", "types"),
    [
        ("bids", {"at": "int", "auction": "int", "price": "float", "url": "str"}),
        ("made", MADE),
        ("again", {"ratio": "float", "big": "bool"}),
        ("kept", MADE),
        ("few", MADE),
        ("many", MADE),
        ("passed", {}),  # with fields that nobody has declared
        ("bare", {}),
        ("unknown", {}),
        ("counts", {}),
        ("both", {}),
        ("dead_letters", {}),
    ],
)
def test_types_follow_from_expressions(
    spec: PipelineSpec, stream: str, types: dict[str, str]
) -> None:
    assert types_of(stream, spec, compile_expression) == types


def test_types_of_sources_are_those_that_are_declared(spec: PipelineSpec) -> None:
    assert not follows_types("bids", spec)
    assert not follows_types("bare", spec)
    assert follows_types("made", spec)
