"""Where the first rows of a key are chosen in columns, and enrichments take columns, and why not
elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.connect.own_functions import language_of
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.rows.columns import enrich_plan_or_why, first_rows_or_why
from millwheel.core.rows.versions import EnrichPlan
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


ENRICHED = """
pipeline: p
streams:
  orders: {source: {injection: {}}, timestamp: at, fields: {at: int, item: str, n: int}}
  prices: {source: {injection: {}}, timestamp: at, fields: {at: int, item: str, cents: int}}
computations:
  priced:
    input: {orders: {key: item}, prices: {key: item}}
    enrich: {with: prices, as: price}
    output: priced
"""
FIELDS = ", fields: {at: int, item: str, cents: int}"
CASES: dict[str, tuple[str, str]] = {
    "arrived by then": ("as: price", "as: price, as_of: arrival"),
    "`a ** b` has no column form": (FIELDS, f"{FIELDS}, table: {{key: item, delete: a ** b}}"),
    "prices are not declared": (FIELDS, ""),
    "may come twice": ("output: priced", "delivery: at_least_once, output: priced"),
    "have ids": ("output: priced", "productions: weak, output: priced"),
    "a field that columns cannot have": ("as: price", 'as: "*"'),
    "is not a field": ("key: item}, p", "key: {item: upper(item)}}, p"),
    "two types": ("item: str, cents", "item: int, cents"),
}


def enrichment_form(tmp_path: Path, text: str, use: LabelUse = NO_USE) -> EnrichPlan | str:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    pipeline = load_pipeline(file)
    [spec] = [each for each in pipeline.computations if each.name == "priced"]
    return enrich_plan_or_why(spec, pipeline, use, language_of(pipeline).compile)


def test_an_enrichment_of_declared_fields_takes_columns(tmp_path: Path) -> None:
    plan = enrichment_form(tmp_path, ENRICHED)
    assert isinstance(plan, EnrichPlan)
    assert (plan.records, plan.versions, plan.name) == ("orders", "prices", "price")
    assert enrichment_form(tmp_path, ENRICHED, LabelUse(gives=True)) == (
        "timers behind it depend on the position of each record"
    )


@pytest.mark.parametrize(("why", "change"), CASES.items(), ids=CASES)
def test_why_an_enrichment_takes_each_record(
    tmp_path: Path, why: str, change: tuple[str, str]
) -> None:
    old, new = change
    if why in ("may come twice", "have ids"):
        text = ENRICHED.replace(old, new.replace(", ", "\n    "))
    else:
        text = ENRICHED.replace(old, new)
    said = enrichment_form(tmp_path, text)
    assert isinstance(said, str)
    assert why in said
