"""Where the first rows of a key are chosen in columns, and why not elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.ranked.columns import first_rows_or_why
from millwheel.language.spec import load_pipeline

PIPELINE = """
pipeline: p
streams:
  bids:
    source: {files: {path: in, format: jsonl}}
    timestamp: at
    fields: {item: int, cents: int, who: str, at: int, ok: bool}
  more: {source: {injection: {}}, timestamp: at}
computations:
  seen: {input: {bids: {key: item}}, aggregate: {n: count}, output: seen}
  best: {input: {%s}, %s, output: best}
"""
BIDS, TOP, LAST = "bids: {key: item}", "top: {by: [cents desc, who], k: 3}", "{keep: last}"


def found(folder: Path, given: str, work: str) -> ColumnPlan | str:
    (folder / "p.yaml").write_text(PIPELINE % (given, work))
    spec = load_pipeline(folder / "p.yaml")
    best = next(each for each in spec.computations if each.name == "best")
    return first_rows_or_why(best, spec, compile_expression)


@pytest.mark.parametrize(
    "work",
    [TOP, "top: {by: [cents * 2], k: 1, rank: place}", f"deduplicate: {LAST}"],
    ids=["two orders", "calculated", "the last"],
)
def test_rows_of_declared_fields_are_chosen_in_columns(tmp_path: Path, work: str) -> None:
    plan = found(tmp_path, BIDS, work)
    assert isinstance(plan, ColumnPlan), plan
    assert plan.whole
    assert not plan.fires_once


@pytest.mark.parametrize(
    ("given", "work", "why"),
    [
        ("seen: {key: item}", "top: {by: [n desc], k: 1}", "it looks at each record"),
        (f"{BIDS}, more: {{key: item}}", f"deduplicate: {LAST}", "it has several inputs"),
        ("more: {key: item}", TOP, "the fields of more are not declared"),
        (BIDS, "top: {by: [ok], k: 1}", "the aggregate rows has no column form"),
    ],
    ids=["of changes", "of two", "not declared", "truths"],
)
def test_other_rows_are_looked_at_one_by_one(
    tmp_path: Path, given: str, work: str, why: str
) -> None:
    assert str(found(tmp_path, given, work)).startswith(why)
