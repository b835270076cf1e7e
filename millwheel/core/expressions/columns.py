"""Expressions over columns: the part of the language that gives the same results, value for value,
as row by row."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from millwheel.core.expressions.declaration import (
    KNOWN,
    PLAIN,
    VALUE,
    Dialect,
    NullLogic,
    Nulls,
    OwnFunction,
    known_dtype,
)
from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.expressions.inner_fields import inner_path
from millwheel.core.expressions.nodes import CONSTANTS
from millwheel.core.expressions.scope import Scope
from millwheel.core.expressions.terms import (
    EXACT_INT,
    NULL,
    SAFE_INT,
    NoColumns,
    Term,
    by_numpy,
    chosen,
    exact_of,
    null_term,
    number_term,
)
from millwheel.core.lazy_polars import dtype, pl

_INT64 = 2**63  # Fixed: integers from here on are not an int64
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
_PASSES = "coalesce"
"""The function that computes nothing with its arguments."""
_FLOORED = {ast.FloorDiv: "floor_divide", ast.Mod: "mod"}


def number_over_columns(
    tree: ast.expr, fields: Mapping[str, str], dialect: Dialect = PLAIN
) -> Term:
    """A calculation over numbers, and over declared fields that hold no nulls and no NaN. With the
    nulls of SQL they may hold nulls, and its value may be null. Raises NoColumns."""
    scope = Scope(fields, dialect)
    term = _calculated(tree, scope)
    if term.constant is not None:
        raise NoColumns
    return _finite(term, scope)


def kind_of_number(
    text: str, fields: Mapping[str, str], compile_expression: Callable[[str], Any]
) -> str:
    """The kind of a field or of an arithmetic expression over declared fields; "" if unknown."""
    if text in fields:
        return fields[text]
    try:
        compiled = compile_expression(text) if text else None
        return number_over_columns(compiled.tree, fields, compiled.dialect).kind if compiled else ""
    except NoColumns:
        return ""


def term_over_columns(tree: ast.expr, fields: Mapping[str, str], dialect: Dialect = PLAIN) -> Term:
    """A value over declared fields that hold no nulls and no NaN, of any kind. Raises NoColumns."""
    # without nulls both kinds of logic are the same, and there are none here
    term = _translate(tree, Scope(fields, replace(dialect, nulls=NullLogic.ERROR)))
    if term.constant is not None:  # it would be one value, and not one for each record
        raise NoColumns
    return term


def kind_of_value(
    text: str, fields: Mapping[str, str], compile_expression: Callable[[str], Any]
) -> str:
    """The kind of an expression over declared fields; "" where it has no column form."""
    try:
        compiled = compile_expression(text)
        return term_over_columns(compiled.tree, fields, compiled.dialect).kind
    except NoColumns:
        return ""


def condition_over_columns(
    tree: ast.expr, fields: Mapping[str, str], dialect: Dialect = PLAIN
) -> pl.Expr:
    """A Boolean expression over declared fields that hold no nulls and no NaN, exact for all of
    their values; with the nulls of SQL as :func:`truth_over_columns`. Raises NoColumns."""
    term = truth_over_columns(tree, fields, dialect)
    if term.exact:
        raise NoColumns
    return term.column


def truth_over_columns(tree: ast.expr, fields: Mapping[str, str], dialect: Dialect = PLAIN) -> Term:
    """:func:`condition_over_columns`, perhaps exact for some records only. With the nulls of SQL
    the fields may hold nulls, and an unknown truth is false. Raises NoColumns."""
    scope = Scope(fields, dialect)
    term = _truth(tree, scope)
    return replace(term, column=scope.decided(term.column))


def value_over_columns(tree: ast.expr, fields: Mapping[str, str], dialect: Dialect = PLAIN) -> Term:
    """Any expression over declared fields, of which those that :func:`fields_computed_with` names
    hold no nulls and no NaN; or a constant. Its value may be null. With the nulls of SQL all may
    hold nulls. Raises NoColumns."""
    term = _passed_on(tree, Scope(fields, dialect))
    if term.kind == NULL:
        raise NoColumns
    return term


def fields_computed_with(tree: ast.expr) -> set[str]:
    """The fields that an expression computes with: all that are not only passed on, or compared
    with null."""
    if isinstance(tree, ast.Name) or inner_path(tree):
        return set()
    if isinstance(tree, ast.List | ast.Tuple):
        return {name for each in tree.elts for name in fields_computed_with(each)}
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and _is_null(tree.comparators[0]):
        return fields_computed_with(tree.left)
    return _read(tree)


def _read(tree: ast.AST) -> set[str]:
    """The fields that an expression within another one computes with."""
    if isinstance(tree, ast.Name):
        return {tree.id} - CONSTANTS.keys()
    if path := inner_path(tree):
        return {path}
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and _is_null(tree.comparators[0]):
        return fields_computed_with(tree.left)
    inner = ast.iter_child_nodes(tree)
    if isinstance(tree, ast.Call):
        passes = isinstance(tree.func, ast.Name) and tree.func.id == _PASSES
        parts = map(fields_computed_with if passes else _read, tree.args)
        return {name for part in parts for name in part}
    return {name for part in inner for name in _read(part)}


def _translate(tree: ast.expr, scope: Scope) -> Term:
    """The term of an expression whose value is computed with."""
    return scope.taken(_term(tree, scope))


def _truth(tree: ast.expr, scope: Scope) -> Term:
    """The term of a truth."""
    term = _translate(tree, scope)
    # a constant would be one value, and not one for each record
    if term.kind != "bool" or term.constant is not None:
        raise NoColumns
    return term


def _term(tree: ast.expr, scope: Scope) -> Term:
    if isinstance(tree, ast.Name) and tree.id not in CONSTANTS and tree.id in scope.fields:
        return Term(pl.col(tree.id), scope.fields[tree.id])
    if (path := inner_path(tree)) in scope.fields:
        return Term(pl.col(path), scope.fields[path])
    if isinstance(tree, ast.Name) and type(CONSTANTS.get(tree.id)) is bool:
        return Term(pl.lit(CONSTANTS[tree.id]), "bool", CONSTANTS[tree.id])
    if isinstance(tree, ast.Constant) and type(tree.value) in _KIND_OF:
        return Term(pl.lit(tree.value), _KIND_OF[type(tree.value)], tree.value)
    if isinstance(tree, ast.BoolOp):
        return _combined(tree, scope)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        inner = _truth(tree.operand, scope)
        return Term(~inner.column, "bool", exact=inner.exact)
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and _is_null(tree.comparators[0]):
        return _compared_with_null(tree.ops[0], _term(tree.left, scope))
    if isinstance(tree, ast.Compare):
        return _chained(tree, scope)
    if isinstance(tree, ast.IfExp):
        yes, no = (_null_or(part, scope) for part in (tree.body, tree.orelse))
        return chosen(_truth(tree.test, scope), yes, no)
    if isinstance(tree, ast.Call):
        return _called(tree, scope)
    if isinstance(tree, (ast.BinOp, ast.UnaryOp)):
        return _finite(_calculated(tree, scope), scope)
    raise NoColumns


def _called(tree: ast.Call, scope: Scope) -> Term:
    name = tree.func.id if isinstance(tree.func, ast.Name) else ""
    if name in scope.dialect.own:
        terms = [scope.taken(_passed_on(part, scope)) for part in tree.args]
        return _of_the_user(scope.dialect.own[name], terms)
    function = FUNCTIONS.get(name)
    if function is None or function.columns is None:
        raise NoColumns
    make = function.columns
    if function.nulls is Nulls.REFUSED:
        return scope.strict([scope.taken(_passed_on(part, scope)) for part in tree.args], make)
    terms = [_null_or(part, scope) for part in tree.args]
    if function.lazy:
        return make([scope.passed(term) for term in terms])
    first, *others = map(scope.taken, terms)
    return scope.strict([first], lambda parts: make([*parts, *others]))


def _of_the_user(own: OwnFunction, terms: Sequence[Term]) -> Term:
    """A call of the user's code, for records whose arguments are known and not null; null where one
    is null."""
    if own.columns is None or all(term.constant is not None for term in terms):
        raise NoColumns
    columns = [_spread(term) for term in terms]
    there = pl.all_horizontal(
        [term.column.is_not_null() for term in terms if term.constant is None]
    )
    asked = pl.all_horizontal([there, *exact_of(terms)]).fill_null(False)
    result = pl.map_batches([asked, *columns], own.columns, known_dtype(own.returns))
    value = result.struct.field(VALUE)
    exact = [*exact_of(terms), ~there | result.struct.field(KNOWN)]
    if own.returns == "float":  # columns have another order for NaN
        exact.append(value.is_null() | value.is_finite())
    return Term(value, own.returns, exact=tuple(exact), present=(value.is_not_null(),))


def _spread(term: Term) -> pl.Expr:
    if term.constant is None:
        return term.column
    if not _are_held([term.constant]):
        raise NoColumns
    return pl.repeat(term.constant, pl.len(), dtype=dtype(term.kind))


def _passed_on(tree: ast.expr, scope: Scope) -> Term:
    """The term of an expression whose value may be null."""
    number = isinstance(tree, ast.Constant) and type(tree.value) in (int, float)
    return _calculated(tree, scope) if number else _term(tree, scope)


def _null_or(tree: ast.expr, scope: Scope) -> Term:
    """:func:`_passed_on`, or null itself."""
    return null_term() if _is_null(tree) else _passed_on(tree, scope)


def _finite(term: Term, scope: Scope) -> Term:
    """A sum or a product, exact only where it is finite: columns have another order for NaN."""
    if term.kind != "float" or term.constant is not None:
        return term
    return replace(term, exact=(*term.exact, scope.passing(term.column.is_finite())))


def _combined(tree: ast.BoolOp, scope: Scope) -> Term:
    """Parts behind one that decides are not computed, so they may be anything there."""
    first, *others = [_truth(part, scope) for part in tree.values]
    column, exact = first.column, list(first.exact)
    for part in others:
        decided = scope.decided(~column if isinstance(tree.op, ast.And) else column)
        exact += [decided | each for each in part.exact]
        column = column & part.column if isinstance(tree.op, ast.And) else column | part.column
    return Term(column, "bool", exact=tuple(exact))


def _chained(tree: ast.Compare, scope: Scope) -> Term:
    """One comparison, or several of neighbours; those behind a false one are not made."""
    sides = [tree.left, *tree.comparators]
    if len(tree.ops) > 1:
        links = zip(sides, tree.ops, sides[1:], strict=False)
        pairs: list[ast.expr] = [ast.Compare(left, [op], [right]) for left, op, right in links]
        if any(_is_null(each) for each in sides):
            raise NoColumns
        return _combined(ast.BoolOp(ast.And(), pairs), scope)
    [op], [right] = tree.ops, tree.comparators
    if isinstance(op, ast.In | ast.NotIn):
        term = _within(_translate(tree.left, scope), right, scope)
        return replace(term, column=~term.column) if isinstance(op, ast.NotIn) else term
    if type(op) not in _COMPARE:
        raise NoColumns
    return _compared(type(op), _translate(tree.left, scope), _translate(right, scope))


def _within(left: Term, right: ast.expr, scope: Scope) -> Term:
    """Whether a value is one of several constants, or a constant text is a part of a text."""
    if isinstance(right, ast.List | ast.Tuple):
        if left.constant is not None or left.kind not in ("int", "str"):
            raise NoColumns
        parts = [_translate(each, scope) for each in right.elts]
        values = [each.constant for each in parts]
        if any(each.constant is None or each.kind != left.kind for each in parts):
            raise NoColumns
        if not _are_held(values):
            raise NoColumns
        is_part = left.column.is_in(pl.Series(values, dtype=dtype(left.kind)).implode())
        return Term(is_part, "bool", exact=left.exact)
    text = _translate(right, scope)
    if type(left.constant) is not str or text.kind != "str" or text.constant is not None:
        raise NoColumns
    is_part = text.column.str.contains(left.constant, literal=True)
    return Term(is_part, "bool", exact=text.exact)


def _are_held(values: Sequence[Any]) -> bool:
    return all(type(value) is not int or -_INT64 <= value < _INT64 for value in values)


def _is_null(tree: ast.expr) -> bool:
    return (isinstance(tree, ast.Constant) and tree.value is None) or (
        isinstance(tree, ast.Name) and tree.id == "null"
    )


def _compared_with_null(op: ast.cmpop, left: Term) -> Term:
    """Whether a value is null."""
    if left.constant is not None:
        raise NoColumns
    if isinstance(op, ast.Eq | ast.Is):
        return Term(left.column.is_null(), "bool", exact=left.exact)
    if isinstance(op, ast.NotEq | ast.IsNot):
        return Term(left.column.is_not_null(), "bool", exact=left.exact)
    raise NoColumns


def _compared(op: type[ast.cmpop], left: Term, right: Term) -> Term:
    if left.kind != right.kind and not (_widens(left, right) or _widens(right, left)):
        raise NoColumns
    if left.constant is not None and right.constant is not None:
        raise NoColumns
    if not _are_held([left.constant, right.constant]):
        raise NoColumns
    return Term(_COMPARE[op](left.column, right.column), "bool", exact=exact_of([left, right]))


def zero_without_sign(column: pl.Expr) -> pl.Expr:
    """Floats with 0.0 for -0.0: they are equal, and the order of the records would decide which one
    is found. (Polars leaves out the addition of 0.0.)"""
    return pl.when(column == 0.0).then(pl.lit(0.0)).otherwise(column)


def _widens(number: Term, other: Term) -> bool:
    """Whether a number is a small whole constant beside a float: it is the same number as a
    float."""
    small = (
        number.kind == "int" and number.constant is not None and abs(number.constant) <= EXACT_INT
    )
    return small and other.kind == "float"


def _calculated(tree: ast.expr, scope: Scope) -> Term:
    if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
        left, right = _calculated(tree.left, scope), _calculated(tree.right, scope)
        if left.constant is not None and right.constant is not None:
            return number_term(_ARITHMETIC[type(tree.op)](left.constant, right.constant))
        act = _ARITHMETIC[type(tree.op)]
        make = _divided if isinstance(tree.op, ast.Div) else partial(_joined, act)
        return scope.strict([left, right], lambda parts: make(*parts))
    if isinstance(tree, ast.BinOp) and type(tree.op) in _FLOORED:
        sides = [_calculated(tree.left, scope), _calculated(tree.right, scope)]
        return scope.strict(sides, partial(_floored, _FLOORED[type(tree.op)]))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        term = _calculated(tree.operand, scope)
        return (
            number_term(-term.constant)
            if term.constant is not None
            else scope.strict([term], lambda parts: _joined(operator.mul, number_term(-1), *parts))
        )
    if isinstance(tree, ast.Constant) and type(tree.value) in (int, float):
        return number_term(tree.value)
    if isinstance(tree, (ast.Name, ast.Attribute, ast.Call)):
        term = _translate(tree, scope)
        if term.kind in _NUMBERS:
            return term
    raise NoColumns


def _floored(name: str, sides: Sequence[Term]) -> Term:
    """``//`` or ``%`` of a whole number and a constant one."""
    import numpy as np

    left, right = sides
    if not left.kind == right.kind == "int" or left.constant is not None:
        raise NoColumns
    if right.constant in (None, 0, -1):
        raise NoColumns
    column = by_numpy(getattr(np, name), [left.column, right.column], "int")
    return Term(column, "int", exact=left.exact)


def _joined(act: Callable[[Any, Any], Any], left: Term, right: Term) -> Term:
    exact = (*left.exact, *right.exact)
    if "float" in (left.kind, right.kind):
        return Term(_of_floats(act, left, right), "float", exact=exact)
    size = act(left.double, right.double).abs()
    return Term(act(left.column, right.column), "int", exact=(*exact, size < SAFE_INT))


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
            term.double.abs() < EXACT_INT for term in (left, right) if term.constant is None
        )
    return Term(_of_floats(operator.truediv, left, right), "float", exact=exact)


def _of_floats(act: Callable[[Any, Any], Any], left: Term, right: Term) -> pl.Expr:
    return by_numpy(act, [left.double, right.double], "float")
