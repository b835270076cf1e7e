"""The small language of ``where:`` and of aggregated values: ``type == 'click' and cost * 2 >
limit``.

simpleeval parses the text and supplies operators with bounded results. The parsed tree is compiled
into nested closures once, because an expression runs for every record (simpleeval's own walk over
the tree costs ten times as much); there is no ``eval`` anywhere. Names are fields of the record's
value; the functions are in core/expressions/functions.py.

In formulas the fields are computations: ``clicks.spend / clicks.n``. A computation with one
aggregate can stand for it: ``clicks / impressions``.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from simpleeval import InvalidExpression, SimpleEval

from millwheel.core.expressions.declaration import PLAIN, Dialect, NullLogic, OwnFunction
from millwheel.core.expressions.fields import field_reader, missing_field
from millwheel.core.expressions.nodes import (
    COMPARISONS,
    CONSTANTS,
    RUNTIME_ERRORS,
    Compiler,
    Evaluate,
)
from millwheel.core.expressions.three_valued import plainly
from millwheel.errors import RecordError

MAX_LENGTH = 2_000
"""Characters of an expression; a longer one is refused when it is compiled."""
MAX_PARTS = 500
"""Nodes of an expression; likewise."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    ``evaluate(value)`` takes a record's value (a dict, or an object with attributes). It raises
    RecordError, naming the expression, for a missing field and for an operation that the values do
    not allow. ``fields`` are the fields that it reads. ``tree`` is the syntax tree, for
    translators, and ``dialect`` that of the language.
    """

    text: str
    evaluate: Evaluate
    fields: tuple[str, ...]
    tree: ast.expr
    dialect: Dialect = PLAIN

    @property
    def is_field(self) -> bool:
        """True when the expression is a field's name and nothing else."""
        return isinstance(self.tree, ast.Name) and bool(self.fields)


@lru_cache(maxsize=1_000)  # every shard of a node compiles the same few
def compile_expression(text: str) -> Expression:
    """The expression that ``text`` describes. Raises ValueError, with the column and a hint, for an
    invalid one."""
    return _compiled(text, bounded=False)


class Language:
    """The language of one pipeline: the common one, with the user's own functions, and perhaps with
    the nulls of SQL."""

    def __init__(self, own: Mapping[str, OwnFunction], nulls: NullLogic = NullLogic.ERROR) -> None:
        self._dialect = Dialect(nulls, own)
        self._plain = not own and nulls is NullLogic.ERROR
        self._compiled_texts: dict[str, Expression] = {}

    def compile(self, text: str) -> Expression:
        """As :func:`compile_expression`."""
        if self._plain:
            return compile_expression(text)
        if text not in self._compiled_texts:
            self._compiled_texts[text] = _compiled(text, False, self._dialect)
        return self._compiled_texts[text]


BUILT_IN = Language({})
"""The language without functions of the user's."""
_BUILT_IN_SQL = Language({}, NullLogic.SQL)


def built_in(nulls: NullLogic) -> Language:
    """The language without functions of the user's, with these nulls."""
    return _BUILT_IN_SQL if nulls is NullLogic.SQL else BUILT_IN


def compile_foreign(text: str) -> Expression:
    """As :func:`compile_expression`, for a text that a client sends: functions whose cost has no
    bound are refused. Nothing is kept."""
    return _compiled(text, bounded=True)


def _compiled(text: str, bounded: bool, dialect: Dialect = PLAIN) -> Expression:
    tree = _parse(text)
    compiler = Compiler(text, bounded, dialect)
    try:
        tree = plainly(tree) if compiler.three_valued else tree
        run = compiler.compile(tree)
    except RecursionError:
        raise ValueError("the expression is nested too deeply. Write a callback instead") from None
    evaluate = _fast_path(tree, text, dialect.nulls) or _guarded(run, text)
    return Expression(text, evaluate, tuple(dict.fromkeys(compiler.fields)), tree, dialect)


def _parse(text: str) -> ast.expr:
    if not text.strip():
        raise ValueError("the expression is empty; write for example status >= 500")
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"the expression has {len(text)} characters, more than {MAX_LENGTH}. Write a callback"
            " instead"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The brackets let an expression go over several lines.
            parsed: Any = SimpleEval.parse(f"({text.strip()}\n)")
    except SyntaxError as ex:
        column = max((ex.offset or 2) - 1, 1) if ex.lineno == 1 else len(text.strip())
        raise ValueError(f"column {column}: {_syntax_hint(text, ex.msg)}") from None
    except (RecursionError, MemoryError, ValueError, InvalidExpression) as ex:
        raise ValueError(f"column 1: this cannot be read as an expression ({ex})") from None
    if isinstance(parsed.value, ast.Tuple) and not parsed.value.elts:
        raise ValueError("column 1: the expression is empty; write for example status >= 500")
    if sum(1 for _ in ast.walk(parsed)) > MAX_PARTS:
        raise ValueError(
            f"the expression has more than {MAX_PARTS} parts. Write a callback instead"
        )
    return parsed.value  # type: ignore[no-any-return]


_HINTS = (
    (re.compile(r"(?i)\blike\s+'"), "write like(field, 'a%')"),
    (re.compile(r"(?i)\bbetween\b.+\band\b"), "write between(field, low, high)"),
    (re.compile(r"(?i)\bcase\s+when\b"), "write case(condition, value, …, otherwise)"),
    (re.compile(r"&&"), "write `and` instead of &&"),
    (re.compile(r"\|\|"), "write `or` instead of ||"),
    (re.compile(r"<>"), "write != instead of <>"),
    (re.compile(r"!(?!=)"), "write `not` instead of !"),
    (re.compile(r"\b(AND|OR|NOT|IN)\b"), "write and, or, not, in with small letters"),
    (re.compile(r"(?<![<>=!])=(?!=)"), "compare with == instead of ="),
    (re.compile(r"\$"), "a field is its plain name, without $"),
)


def _syntax_hint(text: str, complaint: str) -> str:
    outside = re.sub(r"'[^']*'|\"[^\"]*\"", "''", text)
    for pattern, hint in _HINTS:
        if pattern.search(outside):
            return hint
    if outside.count("'") % 2 or outside.count('"') % 2:
        return "a text does not end; close its quote"
    return (
        f"this is not an expression ({complaint}); write for example type == 'click' and cost > 0.5"
    )


def _guarded(run: Evaluate, text: str) -> Evaluate:
    def evaluate(value: Any) -> Any:
        try:
            return run(value)
        except RUNTIME_ERRORS as ex:
            raise _failed(text, ex) from None

    return evaluate


def _failed(text: str, ex: Exception) -> RecordError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    error = RecordError(f"`{shown}` cannot be computed: {ex or type(ex).__name__}")
    error.about = f"`{shown}`"
    return error


def _fast_path(tree: ast.expr, text: str, nulls: NullLogic) -> Evaluate | None:
    """A single closure for a plain field, and for the comparison of a field with a constant."""
    if isinstance(tree, ast.Name) and tree.id not in CONSTANTS:
        return field_reader(tree.id)
    if nulls is NullLogic.SQL:
        return None
    if not (
        isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.left, ast.Name)
    ):
        return None
    other = tree.comparators[0]
    if tree.left.id in CONSTANTS or not isinstance(other, ast.Constant):
        return None
    if isinstance(tree.ops[0], ast.Eq):
        return _equals(tree.left.id, other.value)
    return _compared(tree.left.id, tree.ops[0], other.value, text)


def _equals(name: str, constant: Any) -> Evaluate:
    slow = field_reader(name)

    def evaluate(value: Any) -> Any:
        if type(value) is dict:
            try:
                return value[name] == constant
            except KeyError:
                raise missing_field(name, value) from None
        return slow(value) == constant

    return evaluate


def _compared(name: str, op: ast.cmpop, constant: Any, text: str) -> Evaluate:
    act, slow = COMPARISONS[type(op)], field_reader(name)

    def evaluate(value: Any) -> Any:
        try:
            return act(value[name] if type(value) is dict else slow(value), constant)
        except KeyError:
            raise missing_field(name, value) from None
        except TypeError as ex:
            raise _failed(text, ex) from None

    return evaluate


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
