"""Formulas over values that computations keep, some of them decimals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millwheel.core.expressions.language import Compile, Formula, compile_expression
from millwheel.core.pipeline.spec import KeptKinds
from millwheel.language.spec.typed.decimals import has_decimals, in_units, scales_of


@dataclass(frozen=True, slots=True)
class TypedFormula:
    """A formula over whole units. ``scales`` are those of the values that it reads, by computation;
    none where no decimal is among them. ``kind`` is that of its value."""

    formula: Formula
    scales: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kind: Any = ""


def typed_formula(
    text: str,
    formula: Formula,
    kept: Mapping[str, KeptKinds],
    compile_text: Compile = compile_expression,
) -> TypedFormula:
    """The formula of a text, over values that computations keep. Raises ValueError if it cannot be
    computed exactly."""
    values = {name: kept[name].values for name in formula.computations if name in kept}
    if not any(map(has_decimals, values.values())):
        return TypedFormula(formula)
    alone = {name for name, value in formula.used if not value}
    fields = {name: _only(each) if name in alone else each for name, each in values.items()}
    made = in_units(text, formula.expression.tree, fields)
    changed = replace(formula, expression=compile_text(made.text))
    return TypedFormula(
        changed, {name: scales_of(each) for name, each in values.items()}, made.kind
    )


def _only(values: Mapping[str, Any]) -> Any:
    """The kind of the only value."""
    return next(iter(values.values())) if len(values) == 1 else ""
