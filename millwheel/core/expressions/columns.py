"""Expressions over columns: the part of the language that gives the same results, value for value,
as row by row."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millwheel.core.expressions.nodes import CONSTANTS
from millwheel.core.lazy_polars import pl

_EXACT_INT = 2**53  # Fixed: a double holds every integer up to here
_INT64 = 2**63  # Fixed: integers from here on are no int64
# Fixed: a whole result whose float is smaller fits 64 bits, however the float was rounded
_SAFE_INT = 2.0**62
_COMPARE: dict[type[ast.cmpop], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_KIND_OF = {bool: "bool", int: "int", float: "float", str: "str"}
_NUMBERS = {"int", "float"}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class NoColumns(Exception):
    """This cannot be expressed over columns; it is worked out record by record."""


@dataclass(frozen=True, slots=True)
class Term:
    """A translated expression: its kind ("int", "float", "str", "bool"), and the constant if it is
    one.

    ``exact`` are expressions that are True for the records for which the column has the value of
    the row form. All others (an overflow, a division by zero) need the row form.
    """

    column: pl.Expr
    kind: str
    constant: Any = None
    exact: tuple[pl.Expr, ...] = ()


def number_over_columns(tree: ast.expr, fields: Mapping[str, str]) -> Term:
    """An expression of + - * / over declared fields that hold no nulls and no NaN, and numbers.
    Raises NoColumns."""
    term = _calculated(tree, fields)
    if term.constant is not None:
        raise NoColumns
    return (
        replace(term, exact=(*term.exact, term.column.is_finite()))
        if term.kind == "float"
        else term
    )


def kind_of_number(
    text: str, fields: Mapping[str, str], compile_expression: Callable[[str], Any]
) -> str:
    """The kind of a field or of an arithmetic expression over declared fields; "" where it is not
    known."""
    if text in fields:
        return fields[text]
    try:
        return number_over_columns(compile_expression(text).tree, fields).kind if text else ""
    except NoColumns:
        return ""


def condition_over_columns(tree: ast.expr, fields: Mapping[str, str]) -> pl.Expr:
    """A Boolean expression over declared fields that hold no nulls and no NaN. Raises NoColumns."""
    term = _translate(tree, fields)
    # a constant would be one value, and not one for each record
    if term.kind != "bool" or term.constant is not None:
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
        return _compared(
            type(tree.ops[0]),
            _translate(tree.left, fields),
            _translate(tree.comparators[0], fields),
        )
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
    if any(
        type(term.constant) is int and not -_INT64 <= term.constant < _INT64
        for term in (left, right)
    ):
        raise NoColumns
    return Term(_COMPARE[op](left.column, right.column), "bool")


def zero_without_sign(column: pl.Expr) -> pl.Expr:
    """Floats with 0.0 for -0.0: they are equal, and the order of the records would decide which one
    is found. (Polars leaves out the addition of 0.0.)"""
    return pl.when(column == 0.0).then(pl.lit(0.0)).otherwise(column)


def _widens(number: Term, other: Term) -> bool:
    """A small whole constant beside a float is the same number as a float."""
    small = (
        number.kind == "int" and number.constant is not None and abs(number.constant) <= _EXACT_INT
    )
    return small and other.kind == "float"


def _calculated(tree: ast.expr, fields: Mapping[str, str]) -> Term:
    if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
        left, right = _calculated(tree.left, fields), _calculated(tree.right, fields)
        if left.constant is not None and right.constant is not None:
            return _number(_ARITHMETIC[type(tree.op)](left.constant, right.constant))
        if isinstance(tree.op, ast.Div):
            return _divided(left, right)
        return _joined(_ARITHMETIC[type(tree.op)], left, right)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        term = _calculated(tree.operand, fields)
        return (
            _number(-term.constant)
            if term.constant is not None
            else _joined(operator.mul, _number(-1), term)
        )
    if isinstance(tree, ast.Constant) and type(tree.value) in (int, float):
        return _number(tree.value)
    if isinstance(tree, ast.Name) and fields.get(tree.id) in _NUMBERS:
        return _translate(tree, fields)
    raise NoColumns


def _number(value: Any) -> Term:
    if type(value) is int and abs(value) <= _EXACT_INT:
        return Term(pl.lit(value, pl.Int64), "int", value)
    if type(value) is float and math.isfinite(value):
        return Term(pl.lit(value, pl.Float64), "float", value)
    raise NoColumns


def _joined(act: Callable[[Any, Any], Any], left: Term, right: Term) -> Term:
    exact = (*left.exact, *right.exact)
    if "float" in (left.kind, right.kind):
        return Term(_of_floats(act, left, right), "float", exact=exact)
    size = act(_float(left), _float(right)).abs()
    return Term(act(left.column, right.column), "int", exact=(*exact, size < _SAFE_INT))


def _divided(left: Term, right: Term) -> Term:
    """Python rounds the quotient of two whole numbers once: that of two doubles is the same only if
    both are exact."""
    if right.constant == 0:
        raise NoColumns
    exact = (*left.exact, *right.exact)
    if right.constant is None:
        exact = (*exact, right.column != 0)
    if left.kind == right.kind == "int":
        exact += tuple(
            _float(term).abs() < _EXACT_INT for term in (left, right) if term.constant is None
        )
    return Term(_of_floats(operator.truediv, left, right), "float", exact=exact)


def _of_floats(act: Callable[[Any, Any], Any], left: Term, right: Term) -> pl.Expr:
    """An operation on doubles as processors do it. Polars divides by a constant by multiplying by
    its reciprocal, which rounds twice, and 0.0 - 0.0 is -0.0 to it."""

    def run(pair: Sequence[pl.Series]) -> pl.Series:
        with np.errstate(all="ignore"):
            return pl.Series(pair[0].name, act(pair[0].to_numpy(), pair[1].to_numpy()), pl.Float64)

    return pl.map_batches([_float(left), _float(right)], run, pl.Float64)


def _float(term: Term) -> pl.Expr:
    return term.column.cast(pl.Float64)
