"""Types of streams follow from the expressions that make their fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.columns.stateless.flow import follows_types, types_of, types_through
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
  right: {input: bids, map: {auction: auction, site: url}, output: right}
  pairs: {input: {made: {key: auction}, right: {key: auction}}, join: inner, output: pairs}
  lefts: {input: {made: {key: auction}, right: {key: auction}}, join: left, output: lefts}
  near: {input: {made: {key: auction}, right: {key: auction}}, output: near,
    join: {kind: inner, within: {until: made.n}}}
  raw: {input: {bids: {key: auction}, right: {key: auction}}, join: inner, output: raw}
  few_pairs: {input: pairs, filter: made.n > 1, output: few_pairs}
  sides: {input: pairs, map: {side: made, n: made.n}, output: sides}
  inside: {input: pairs, map: {site: right.site, n: made.n}, output: inside}
  log: {input: {pairs: {key: {who: right.site}}}, output: log,
    aggregate: {n: count, most: {max: made.price}, mean: {mean: made.n}}, then: {twice: n * 2}}
  again_log: {input: {log: {key: n}}, aggregate: {most: {max: most}, n2: {sum: twice}},
    output: again_log}
  sums: {input: {pairs: {key: auction}}, aggregate: {cost: {sum: made.price}}, output: sums}
  lists: {input: {made: {key: auction}}, aggregate: {best: {top_k: price, k: 2}}, output: lists}
  texts: {input: {made: {key: auction}}, aggregate: {last: {last: price}}, output: texts}
  own: {input: {made: {key: "own:key"}}, aggregate: {n: count}, output: own}
  own_pairs: {input: {made: {key: "own:key"}, right: {key: "own:key"}}, join: inner,
    output: own_pairs}
"""


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    return load_pipeline(tmp_path / "p.yaml", check_code=False)


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


PAIRS = {
    "auction": "int",
    "made": "record",
    "\0.made.auction": "int",
    "\0.made.price": "float",
    "\0.made.n": "int",
    "right": "record",
    "\0.right.auction": "int",
    "\0.right.site": "str",
}


@pytest.mark.parametrize(
    ("stream", "types"),
    [
        ("made", MADE),
        ("pairs", PAIRS),
        ("near", PAIRS),
        ("few_pairs", PAIRS),
        ("lefts", {}),  # a side may be missing
        ("raw", {}),  # with fields that nobody has declared
        ("sides", {}),  # of a record within it nothing is known
        ("inside", {"site": "str", "n": "int"}),
        ("log", {"who": "str", "n": "int", "most": "float", "mean": "float", "twice": "int"}),
        ("again_log", {"n": "int", "most": "float", "n2": "int"}),
        ("sums", {}),  # that of no floats would be a whole 0
        ("lists", {}),
        ("texts", {}),
        ("counts", {}),
        ("own", {}),
        ("own_pairs", {}),
    ],
)
def test_types_go_through_joins_and_change_logs(
    spec: PipelineSpec, stream: str, types: dict[str, str]
) -> None:
    assert types_through(stream, spec, compile_expression) == types
    if stream != "made" and stream != "inside":
        assert types_of(stream, spec, compile_expression) == {}


def test_types_of_sources_are_those_that_are_declared(spec: PipelineSpec) -> None:
    assert not follows_types("bids", spec)
    assert not follows_types("bare", spec)
    assert follows_types("made", spec)
