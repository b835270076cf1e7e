"""Formulas: expressions whose fields are computations, such as ``clicks.spend / clicks.n``. A
computation with one aggregate can stand for it: ``clicks / impressions``."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from millwheel.core.expressions.language import Expression, compile_expression, compile_foreign


@dataclass(frozen=True, slots=True)
class Formula:
    """A compiled formula. ``used`` lists the values that it reads, as (computation, value); the
    value is "" where the computation has only one."""

    expression: Expression
    used: tuple[tuple[str, str], ...]

    @property
    def computations(self) -> tuple[str, ...]:
        """The computations that the formula reads, each once."""
        return tuple(dict.fromkeys(computation for computation, _ in self.used))


Compile = Callable[[str], Expression]


def formula_of(text: str, compile_text: Compile = compile_expression) -> Formula:
    """The formula of a query, in the language of the pipeline where that is given. Raises
    ValueError if it is not an expression over computations."""
    return _formula(compile_text(text))


def foreign_formula(text: str) -> Formula:
    """As :func:`formula_of`, for a text that a client sends, whose cost is bounded."""
    return _formula(compile_foreign(text))


def _formula(expression: Expression) -> Formula:
    inner = {
        id(node.value): node.attr
        for node in ast.walk(expression.tree)
        if isinstance(node, ast.Attribute)
    }
    names = [
        node
        for node in ast.walk(expression.tree)
        if isinstance(node, ast.Name) and node.id in expression.fields
    ]
    names.sort(key=lambda node: (node.lineno, node.col_offset))
    fields = tuple(dict.fromkeys((node.id, inner.get(id(node), "")) for node in names))
    if not fields:
        raise ValueError("the formula asks nothing; write for example clicks.spend / clicks.n")
    mixed = {name for name, value in fields if not value} & {
        name for name, value in fields if value
    }
    if mixed:
        raise ValueError(
            f"{min(mixed)} stands with and without the name of a value; write it as"
            f" {min(mixed)}.NAME"
        )
    return Formula(expression, fields)
