"""Which computations take columns. The phrases are tested with what ``explain`` says
(tests/unit/tools/explain/test_forms.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.columns.forms.computations import computation_form
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType
from millwheel.core.expressions.language import compile_expression
from millwheel.language.spec import load_pipeline

FIELDS = ", fields: {at: int, ad: int, user: str, cost: float, more: bool}"
PIPELINE = """pipeline: p
streams:
  events: {source: {files: {path: in, format: jsonl}}, timestamp: at, id: user%s}
computations:
  sums: {input: {events: {key: ad}}, window: {tumbling: 10s}, where: "user > 'a'",
    aggregate: {n: {sum: cost}}, output: a}
  counts: {input: {events: {key: user%s}}, window: {count: 3}, aggregate: {n: count}, output: b%s}
"""
STEPS = """pipeline: p
streams:
  events: {source: {files: {path: in, format: jsonl}}, timestamp: at%s}
computations:
  made: {input: {events: {key: %s}}, map: {x: cost * 2}, output: a}
"""
LOGS = """pipeline: p
streams:
  events: {source: {files: {path: in, format: jsonl}}, timestamp: at%s}
computations:
  first: {input: {events: {key: [ad, user]}}, aggregate: {most: {max: cost}}, output: first}
  second: {input: {first: {key: ad}}, %s, output: second}
"""


def load(name: str) -> Any:
    raise AssertionError(f"{name} was loaded")


def test_declared_fields_give_one_plan_and_undeclared_ones_a_plan_by_type(tmp_path: Path) -> None:
    for fields, kind in ((FIELDS, ColumnPlan), ("", PlansByType)):
        (tmp_path / "p.yaml").write_text(PIPELINE % (fields, "", ""))
        spec = load_pipeline(tmp_path / "p.yaml")
        for computation in spec.computations:
            assert isinstance(
                computation_form(computation, spec, load, compile_expression).plan, kind
            )


@pytest.mark.parametrize(
    ("key", "fields", "why"),
    [
        ("own:key", "", "its key is code of your own, which takes each record"),
        ("other", FIELDS, "its key reads other, which is not declared"),
        ("{x: other + 1}", FIELDS, "its key reads other, which is not declared"),
    ],
)
def test_steps_whose_key_may_read_other_fields_take_each_record(
    tmp_path: Path, key: str, fields: str, why: str
) -> None:
    (tmp_path / "own.py").write_text("def key(value): return value['ad']\n")
    (tmp_path / "p.yaml").write_text(STEPS % (fields, key))
    spec = load_pipeline(tmp_path / "p.yaml")
    form = computation_form(spec.computations[0], spec, load, compile_expression)
    assert (form.plan, form.why) == (None, why)


@pytest.mark.parametrize(
    ("fields", "second", "why"),
    [
        (FIELDS, "aggregate: {mean: {mean: most}}", ""),
        (FIELDS, "aggregate: {least: {min: most}}", "least needs all that are left"),
        (FIELDS, "aggregate: {n: count}, ttl: 1d", "each group is forgotten by itself"),
        (FIELDS, "aggregate: {n: {sum: other}}", "its field other is not declared"),
        ("", "aggregate: {mean: {mean: most}}", "records can be taken back"),
    ],
)
def test_columns_hold_change_logs_from_which_records_are_taken_back(
    tmp_path: Path, fields: str, second: str, why: str
) -> None:
    (tmp_path / "p.yaml").write_text(LOGS % (fields, second))
    spec = load_pipeline(tmp_path / "p.yaml", check_code=False)
    first, last = (
        computation_form(each, spec, load, compile_expression) for each in spec.computations
    )
    assert (first.why == "") == bool(fields)
    assert last.why.endswith(why) if why else not last.why
    if not why:
        assert isinstance(last.plan, ColumnPlan)
        assert last.plan.takes_back
