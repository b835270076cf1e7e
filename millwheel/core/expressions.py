"""The small expression language of ``where:`` and aggregate arguments: one record in, one value out.

Names are fields of the record. The language is that of simpleeval (comparisons, boolean and arithmetic
operators, ``in``, a few functions): no attributes, no calls but the listed ones, no loops.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import simpleeval

from millwheel.errors import RecordError

Evaluate = Callable[[Any], Any]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "abs": abs,
    "min": min,
    "max": max,
    "round": round,
    "lower": lambda text: str(text).lower(),
    "upper": lambda text: str(text).upper(),
    "startswith": lambda text, start: str(text).startswith(start),
    "endswith": lambda text, end: str(text).endswith(end),
    "contains": lambda text, part: part in text,
}

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Expression:
    """A compiled expression. ``fields`` are the names it reads, in order of appearance."""

    def __init__(self, text: str, fields: tuple[str, ...], evaluate: Evaluate) -> None:
        self.text = text
        self.fields = fields
        self.evaluate = evaluate

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def compile_expression(text: str) -> Expression:
    """Compile once, evaluate per record. ValueError with column and hint for what is not in the language."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as ex:
        raise ValueError(f"{text!r} is no expression (column {ex.offset}): {ex.msg}; write e.g. type == 'click'") from None
    fields = _fields(tree, text)
    return Expression(text, fields, _fast(tree) or _general(text, tree, fields))


def _fields(tree: ast.expr, text: str) -> tuple[str, ...]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Lambda, ast.Await, ast.NamedExpr, ast.Attribute, ast.comprehension)):
            raise ValueError(f"{text!r}: {type(node).__name__} is not allowed; compare and combine fields and constants only")
        if isinstance(node, ast.Call) and (not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS):
            raise ValueError(f"{text!r}: only these functions may be called: {', '.join(sorted(FUNCTIONS))}")
        if isinstance(node, ast.Name) and id(node) not in called:
            names[node.id] = None
    return tuple(names)


def read_field(value: Any, name: str) -> Any:
    """A field of a dict or attribute of an object; RecordError when it has none."""
    try:
        return value[name] if isinstance(value, dict) else getattr(value, name)
    except (KeyError, AttributeError):
        raise RecordError(f"the record has no field {name!r}") from None


def _fast(tree: ast.expr) -> Evaluate | None:
    """Closures for the two commonest forms: a field, and a field compared with a constant."""
    if isinstance(tree, ast.Name):
        name = tree.id
        return lambda value: read_field(value, name)
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and type(tree.ops[0]) in _COMPARE:
        left, right = tree.left, tree.comparators[0]
        if isinstance(left, ast.Name) and isinstance(right, ast.Constant):
            return _comparison(left.id, _COMPARE[type(tree.ops[0])], right.value)
    return None


def _comparison(name: str, compare: Callable[[Any, Any], Any], constant: Any) -> Evaluate:
    def evaluate(value: Any) -> Any:
        try:
            return compare(value[name] if type(value) is dict else read_field(value, name), constant)
        except KeyError:
            raise RecordError(f"the record has no field {name!r}") from None
        except TypeError as ex:
            raise RecordError(f"field {name!r} cannot be compared with {constant!r}: {ex}") from None

    return evaluate


def _general(text: str, tree: ast.expr, fields: tuple[str, ...]) -> Evaluate:
    def evaluate(value: Any) -> Any:
        names = {name: read_field(value, name) for name in fields}
        evaluator = simpleeval.EvalWithCompoundTypes(functions=FUNCTIONS, names=names)
        try:
            return evaluator.eval(text, previously_parsed=tree)
        except RecordError:
            raise
        except Exception as ex:  # simpleeval's own errors and those of the operators on odd types
            raise RecordError(f"{text!r} cannot be evaluated on this record: {ex}") from None

    try:
        simpleeval.EvalWithCompoundTypes(functions=FUNCTIONS, names={name: 1 for name in fields}).eval(text, previously_parsed=tree)
    except (simpleeval.FeatureNotAvailable, simpleeval.FunctionNotDefined, simpleeval.OperatorNotDefined) as ex:
        raise ValueError(f"{text!r} is not allowed: {ex}") from None
    except Exception:  # noqa: S110 - wrong types for the trial values say nothing about the expression
        pass
    return evaluate
