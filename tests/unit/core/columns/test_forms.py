"""Which nodes take columns: what all consumers of a source need, and what keeps it from columns.
The phrases are tested with what ``explain`` says (tests/unit/tools/explain/test_forms.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.columns.forms import SourceForm, computation_form, source_form
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.inferred import PlansByType
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.graph import build_graph
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


def _load(name: str) -> Any:
    raise AssertionError(f"{name} was loaded")


def _form(folder: Path, fields: str = FIELDS, key: str = "", more: str = "") -> SourceForm:
    (folder / "p.yaml").write_text(PIPELINE % (fields, key, more))
    spec = load_pipeline(folder / "p.yaml")
    forms = {
        each.name: computation_form(each, spec, _load, compile_expression)
        for each in spec.computations
    }
    return source_form(
        spec.stream("events"), build_graph(spec), {name: form.plan for name, form in forms.items()}
    )


def test_a_source_needs_what_its_consumers_need_and_nothing_else(tmp_path: Path) -> None:
    form = _form(tmp_path)
    assert form.in_columns
    assert form.needs == {"at", "ad", "user", "cost"}
    assert form.inferred is None


def test_types_that_are_not_declared_must_do_for_all_consumers(tmp_path: Path) -> None:
    form = _form(tmp_path, fields="")
    assert form.in_columns
    assert form.needs is None
    assert form.inferred == {"at", "ad", "user", "cost"}
    good = {"at": "int", "ad": "int", "user": "str", "cost": "float"}
    assert form.accepts(good)
    for name, kind in {"at": "float", "ad": "bool", "user": "float", "cost": "str"}.items():
        assert not form.accepts({**good, name: kind}), name


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"more": ", productions: weak"}, "counts takes each record"),
        (
            {"more": ", productions: weak, delivery: at_least_once"},
            "the weak productions of counts are named after ids of records",
        ),
        (
            {"fields": FIELDS.replace("at: int", "at: float")},
            "its timestamp is not declared as int",
        ),
        ({"fields": FIELDS.replace("user: str, ", "")}, "sums takes each record"),
    ],
)
def test_one_reason_is_enough_to_read_record_by_record(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    form = _form(tmp_path, **changes)
    assert form.why == why
    assert not form.in_columns


def test_declared_fields_give_one_plan_and_undeclared_ones_a_plan_by_type(tmp_path: Path) -> None:
    for fields, kind in ((FIELDS, ColumnPlan), ("", PlansByType)):
        (tmp_path / "p.yaml").write_text(PIPELINE % (fields, "", ""))
        spec = load_pipeline(tmp_path / "p.yaml")
        for computation in spec.computations:
            assert isinstance(
                computation_form(computation, spec, _load, compile_expression).plan, kind
            )


STEPS = """pipeline: p
streams:
  events: {source: {files: {path: in, format: jsonl}}, timestamp: at%s}
computations:
  made: {input: {events: {key: %s}}, map: {x: cost * 2}, output: a}
"""


@pytest.mark.parametrize(
    ("key", "reads"),
    [
        ("ad", {"ad"}),
        ("{who: lower(user)}", {"user"}),
        ("[ad, user]", {"ad", "user"}),
        ("all", set()),
    ],
)
@pytest.mark.parametrize("fields", ["", FIELDS], ids=["inferred", "declared"])
def test_a_source_reads_the_fields_of_the_keys_of_steps(
    tmp_path: Path, fields: str, key: str, reads: set[str]
) -> None:
    (tmp_path / "p.yaml").write_text(STEPS % (fields, key))
    spec = load_pipeline(tmp_path / "p.yaml")
    [made] = spec.computations
    plan = computation_form(made, spec, _load, compile_expression).plan
    form = source_form(spec.stream("events"), build_graph(spec), {"made": plan})
    assert (form.inferred or form.needs) == {"at", "cost", *reads}
    assert form.made is not None
    assert form.made.needs == {"cost", *reads}


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
    form = computation_form(spec.computations[0], spec, _load, compile_expression)
    assert (form.plan, form.why) == (None, why)
