"""Which enrichments take columns, and why others do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.connect.own_functions import language_of
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.waiting.forms import enrich_plan_or_why
from millwheel.core.waiting.versions import EnrichPlan
from millwheel.language.spec import load_pipeline

PIPELINE = """
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
    "is no field": ("key: item}, p", "key: {item: upper(item)}}, p"),
    "two types": ("item: str, cents", "item: int, cents"),
}


def found(tmp_path: Path, text: str, use: LabelUse = NO_USE) -> EnrichPlan | str:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    pipeline = load_pipeline(file)
    [spec] = [each for each in pipeline.computations if each.name == "priced"]
    return enrich_plan_or_why(spec, pipeline, use, language_of(pipeline).compile)


def test_an_enrichment_of_declared_fields_takes_columns(tmp_path: Path) -> None:
    plan = found(tmp_path, PIPELINE)
    assert isinstance(plan, EnrichPlan)
    assert (plan.records, plan.versions, plan.name) == ("orders", "prices", "price")
    assert found(tmp_path, PIPELINE, LabelUse(gives=True)) == (
        "timers behind it go by the place of each record"
    )


@pytest.mark.parametrize(("why", "change"), CASES.items(), ids=CASES)
def test_why_an_enrichment_takes_each_record(
    tmp_path: Path, why: str, change: tuple[str, str]
) -> None:
    old, new = change
    if why in ("may come twice", "have ids"):
        text = PIPELINE.replace(old, new.replace(", ", "\n    "))
    else:
        text = PIPELINE.replace(old, new)
    said = found(tmp_path, text)
    assert isinstance(said, str)
    assert why in said
