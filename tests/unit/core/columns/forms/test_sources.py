"""What all consumers of a source need, and what keeps it from columns. The phrases are tested with
what ``explain`` says (tests/unit/tools/explain/test_forms.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.core.columns.forms.computations import computation_form
from millwheel.core.columns.forms.sources import SourceForm, source_form
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.graph import build_graph
from millwheel.language.spec import load_pipeline
from tests.unit.core.columns.forms.test_computations import FIELDS, PIPELINE, STEPS, load


def _form(folder: Path, fields: str = FIELDS, key: str = "", more: str = "") -> SourceForm:
    (folder / "p.yaml").write_text(PIPELINE % (fields, key, more))
    spec = load_pipeline(folder / "p.yaml")
    forms = {
        each.name: computation_form(each, spec, load, compile_expression)
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
    plan = computation_form(made, spec, load, compile_expression).plan
    form = source_form(spec.stream("events"), build_graph(spec), {"made": plan})
    assert (form.inferred or form.needs) == {"at", "cost", *reads}
    assert form.made is not None
    assert form.made.needs == {"cost", *reads}
