"""Expressions over columns: the part of the language that gives the same results, value for value, as row by row."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millwheel.core.columns.lazy_polars import pl
from millwheel.core.expressions.nodes import CONSTANTS

_EXACT_INT = 2**53  # Fixed: a double holds every integer up to here
_COMPARE: dict[type[ast.cmpop], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_KIND_OF = {bool: "bool", int: "int", float: "float", str: "str"}


class NoColumns(Exception):
    """This cannot be expressed over columns; it is worked out record by record."""


@dataclass(frozen=True, slots=True)
class Term:
    """A translated expression: its kind ("int", "float", "str", "bool"), and the constant if it is one."""

    column: pl.Expr
    kind: str
    constant: Any = None


def condition_over_columns(tree: ast.expr, fields: Mapping[str, str]) -> pl.Expr:
    """A Boolean expression over declared fields that hold no nulls and no NaN. Raises NoColumns."""
    term = _translate(tree, fields)
    if term.kind != "bool":
        raise NoColumns
    return term.column


def _translate(tree: ast.expr, fields: Mapping[str, str]) -> Term:
    if isinstance(tree, ast.Name) and tree.id not in CONSTANTS and tree.id in fields:
        return Term(pl.col(tree.id), fields[tree.id])
    if isinstance(tree, ast.Constant) and type(tree.value) in _KIND_OF:
        return Term(pl.lit(tree.value), _KIND_OF[type(tree.value)], tree.value)
    if isinstance(tree, ast.BoolOp):
        return _combined(tree, fields)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return Term(~condition_over_columns(tree.operand, fields), "bool")
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and type(tree.ops[0]) in _COMPARE:
        return _compared(type(tree.ops[0]), _translate(tree.left, fields), _translate(tree.comparators[0], fields))
    raise NoColumns


def _combined(tree: ast.BoolOp, fields: Mapping[str, str]) -> Term:
    parts = [condition_over_columns(part, fields) for part in tree.values]
    both = parts[0]
    for part in parts[1:]:
        both = both & part if isinstance(tree.op, ast.And) else both | part
    return Term(both, "bool")


def _compared(op: type[ast.cmpop], left: Term, right: Term) -> Term:
    if left.kind != right.kind and not (_widens(left, right) or _widens(right, left)):
        raise NoColumns
    if left.constant is not None and right.constant is not None:
        raise NoColumns
    return Term(_COMPARE[op](left.column, right.column), "bool")


def _widens(number: Term, other: Term) -> bool:
    """A small whole constant beside a float is the same number as a float."""
    small = number.kind == "int" and number.constant is not None and abs(number.constant) <= _EXACT_INT
    return small and other.kind == "float"
