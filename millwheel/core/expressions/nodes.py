"""From the parsed nodes of an expression to nested closures. Nodes without an entry in ``_MAKERS``
are refused."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from typing import Any

from simpleeval import DEFAULT_OPERATORS, InvalidExpression

from millwheel.core.expressions import three_valued
from millwheel.core.expressions.declaration import (
    PLAIN,
    Dialect,
    Function,
    NullLogic,
    Nulls,
    OwnFunction,
)
from millwheel.core.expressions.fields import field_or_none, field_reader
from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.expressions.operators import modulo, power, product

Evaluate = Callable[[Any], Any]
"""A record's value -> the value of an expression."""

RUNTIME_ERRORS = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    InvalidExpression,
)
"""The exceptions of an expression for unsuitable values."""

CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    **{kind: DEFAULT_OPERATORS[kind] for kind in (ast.Add, ast.Sub, ast.Div, ast.FloorDiv)},
    ast.Mult: product,
    ast.Mod: modulo,
    ast.Pow: power,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_WORDS: Mapping[type[ast.expr], str] = {
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment",
    ast.Dict: "a map",
    ast.Starred: "a star",
}


class Compiler:
    """Compiles the nodes of one expression; ``fields`` are the fields that it reads, in order, with
    repetitions. ``bounded``: only functions whose cost has a bound are allowed. ``own`` are the
    user's functions, and ``calls`` counts their calls."""

    def __init__(
        self,
        text: str,
        bounded: bool = False,
        dialect: Dialect = PLAIN,
    ) -> None:
        self.text = text
        self.bounded = bounded
        self.own = dialect.own
        self.three_valued = dialect.nulls is NullLogic.SQL
        self.fields: list[str] = []
        self.calls = 0

    @property
    def changing(self) -> int:
        """The number of its parts whose values differ from record to record."""
        return len(self.fields) + self.calls

    def compile(self, node: ast.expr) -> Evaluate:
        """The closure of a node; parts that read no field are computed once, here."""
        make = _MAKERS.get(type(node))
        if make is None:
            construct = _WORDS.get(type(node), type(node).__name__)
            raise self.error(node, f"{construct} cannot be used here; {_allowed()}")
        before = self.changing
        run = make(self, node)
        return run if self.changing > before else self._fold(node, run)

    def error(self, node: ast.expr, text: str) -> ValueError:
        """An error that names the position of ``node``."""
        line = f"line {node.lineno}, " if node.lineno > 1 else ""
        return ValueError(f"{line}column {max(node.col_offset + (node.lineno > 1), 1)}: {text}")

    def read(self, name: str) -> Evaluate:
        """The closure of a field."""
        self.fields.append(name)
        return field_reader(name)

    def _fold(self, node: ast.expr, run: Evaluate) -> Evaluate:
        try:
            constant = run(None)
        except RUNTIME_ERRORS as ex:
            raise self.error(node, f"this fails for every record: {ex}") from None
        return lambda value: constant


def _allowed() -> str:
    names = ", ".join(sorted([*FUNCTIONS, *_FIELD_CALLS]))
    return (
        "there are fields, numbers, texts, lists, comparisons, `and`, `or`, `not`, `in`,"
        f" arithmetic, `a if b else c` and the functions {names}"
    )


def _constant(compiler: Compiler, node: Any) -> Evaluate:
    constant = node.value
    if not (constant is None or isinstance(constant, (bool, int, float, str))):
        raise compiler.error(node, f"{constant!r} is neither a number nor text")
    return lambda value: constant


def _name(compiler: Compiler, node: Any) -> Evaluate:
    if node.id in CONSTANTS:
        constant = CONSTANTS[node.id]
        return lambda value: constant
    if node.id.startswith("__"):
        raise compiler.error(node, f"{node.id!r} is not a field that can be read")
    return compiler.read(node.id)


def _sequence(compiler: Compiler, node: Any) -> Evaluate:
    parts = [compiler.compile(part) for part in node.elts]
    return lambda value: tuple([part(value) for part in parts])


def _binary(compiler: Compiler, node: Any) -> Evaluate:
    act = _ARITHMETIC.get(type(node.op))
    if act is None:
        raise compiler.error(
            node, "bit operators cannot be used here; write `and`, `or`, or + - * / // % **"
        )
    left, right = compiler.compile(node.left), compiler.compile(node.right)
    act = _with_decimals(act) if _is_fraction(node.left) or _is_fraction(node.right) else act
    if compiler.three_valued:
        return three_valued.strict(act, [left, right])
    return lambda value: act(left(value), right(value))


def _is_fraction(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float)


def _with_decimals(act: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator over rows of sinks, which have decimals: beside these, a fraction is exactly the
    decimal that its text says."""

    def exact(left: Any, right: Any) -> Any:
        try:
            return act(left, right)
        except TypeError:
            if Decimal not in (type(left), type(right)):
                raise
            return act(*(Decimal(repr(it)) if type(it) is float else it for it in (left, right)))

    return exact


def _unary(compiler: Compiler, node: Any) -> Evaluate:
    act = _UNARY.get(type(node.op))
    if act is None:
        raise compiler.error(node, "~ cannot be used here; write `not`")
    inner = compiler.compile(node.operand)
    if compiler.three_valued:
        return three_valued.strict(act, [inner])
    return lambda value: act(inner(value))


def _boolean(compiler: Compiler, node: Any) -> Evaluate:
    stops = isinstance(node.op, ast.Or)
    *rest, last = [compiler.compile(part) for part in node.values]
    if compiler.three_valued:
        return three_valued.combined([*rest, last], stops)
    if len(rest) == 1:
        first = rest[0]
        if stops:
            return lambda value: first(value) or last(value)
        return lambda value: first(value) and last(value)

    def run(value: Any) -> Any:
        for part in rest:
            truth = part(value)
            if bool(truth) is stops:
                return truth
        return last(value)

    return run


def _compare(compiler: Compiler, node: Any) -> Evaluate:
    for op, other in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, (ast.Is, ast.IsNot)) and not _is_singleton(other):
            raise compiler.error(
                other, "`is` compares with None, true or false only; write == or !="
            )
    first = compiler.compile(node.left)
    acts = _null_aware(compiler, node) if compiler.three_valued else COMPARISONS
    steps = [
        (acts[type(op)], compiler.compile(other))
        for op, other in zip(node.ops, node.comparators, strict=True)
    ]
    if len(steps) == 1:
        act, only = steps[0]
        return lambda value: act(first(value), only(value))

    if compiler.three_valued:
        return three_valued.compared(first, steps)

    def run(value: Any) -> Any:
        left = first(value)
        for act, other in steps:
            right = other(value)
            if not act(left, right):
                return False
            left = right
        return True

    return run


_NULL_AWARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    **{kind: three_valued.null_aware(act) for kind, act in COMPARISONS.items()},
    ast.In: three_valued.null_aware(three_valued.within),
    ast.NotIn: three_valued.null_aware(three_valued.not_within),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
"""Comparisons that are unknown where a side is null."""


def _null_aware(
    compiler: Compiler, node: ast.Compare
) -> Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]:
    """The comparisons with nulls of SQL, none of which finds a null."""
    sides = [node.left, *node.comparators]
    for op, left, right in zip(node.ops, sides, node.comparators, strict=False):
        if isinstance(op, ast.Eq | ast.NotEq) and any(map(three_valued.is_null, (left, right))):
            raise compiler.error(
                right,
                "with `nulls: sql` nothing is equal to null, and nothing differs from it; write"
                " `is null` or `is not null`",
            )
    return _NULL_AWARE


def _is_singleton(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in CONSTANTS
    return isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))


def _choice(compiler: Compiler, node: Any) -> Evaluate:
    test, yes, no = (compiler.compile(part) for part in (node.test, node.body, node.orelse))
    return lambda value: yes(value) if test(value) else no(value)


def _inner_field(compiler: Compiler, node: Any) -> Evaluate:
    if node.attr.startswith("_"):
        raise compiler.error(node, f"{node.attr!r} is not a field that can be read")
    outer, read = compiler.compile(node.value), field_reader(node.attr)
    if compiler.three_valued:
        return three_valued.strict(read, [outer])
    return lambda value: read(outer(value))


def _item(compiler: Compiler, node: Any) -> Evaluate:
    if isinstance(node.slice, ast.Slice):
        return _part(compiler, node)
    outer, index = compiler.compile(node.value), compiler.compile(node.slice)
    if compiler.three_valued:
        return three_valued.strict(operator.getitem, [outer, index])
    return lambda value: outer(value)[index(value)]


def _part(compiler: Compiler, node: Any) -> Evaluate:
    """``text[1:3]``: a slice of a text or a list."""
    if node.slice.step is not None:
        raise compiler.error(node, "a slice has no step here; write text[1:3]")
    outer = compiler.compile(node.value)
    ends = (node.slice.lower, node.slice.upper)
    if compiler.three_valued:
        return _part_or_null(
            outer, [None if end is None else compiler.compile(end) for end in ends]
        )
    low, high = (
        _absent
        if end is None
        else _not_null(compiler.compile(end), "the end of a slice is not null; leave it out")
        for end in ends
    )
    return lambda value: outer(value)[low(value) : high(value)]


def _part_or_null(outer: Evaluate, ends: Sequence[Evaluate | None]) -> Evaluate:
    """A slice that is null where the whole, or a written end, is."""
    written = [end for end in ends if end is not None]

    def cut(whole: Any, *bounds: Any) -> Any:
        bound = iter(bounds)
        low, high = (None if end is None else next(bound) for end in ends)
        return whole[low:high]

    return three_valued.strict(cut, [outer, *written])


def _absent(value: Any) -> None:
    """An end of a slice that is not written."""


def _call(compiler: Compiler, node: Any) -> Evaluate:
    name = _called(compiler, node)
    if name in _FIELD_CALLS:
        return _FIELD_CALLS[name](compiler, node)
    if name in compiler.own:
        return _own_call(compiler, node, compiler.own[name])
    function = FUNCTIONS.get(name)
    if function is None:
        raise compiler.error(node, _unknown_function(name, compiler.own))
    if compiler.bounded and not function.bounded:
        raise compiler.error(
            node,
            f"{name}() may take any time, so only a named query has it: `millwheel queries set`",
        )
    if not function.least <= len(node.args) <= function.most:
        raise compiler.error(node, f"{name}() takes {function.arity}, not {len(node.args)}")
    act = function.act
    parts = [_argument(compiler, function, index, part) for index, part in enumerate(node.args)]
    if function.lazy:
        return lambda value: act(*[partial(part, value) for part in parts])
    if compiler.three_valued:
        refuses = function.nulls is Nulls.REFUSED
        return (three_valued.strict if refuses else three_valued.strict_first)(act, parts)
    if len(parts) == 1:
        only = parts[0]
        return lambda value: act(only(value))
    return lambda value: act(*[part(value) for part in parts])


def _own_call(compiler: Compiler, node: Any, own: OwnFunction) -> Evaluate:
    """A call of the user's code, which is never made before there is a record."""
    if complaint := own.complaint(len(node.args)):
        raise compiler.error(node, complaint)
    parts = [compiler.compile(part) for part in node.args]
    compiler.calls += 1
    call = own.call
    return lambda value: call(*[part(value) for part in parts])


def _argument(compiler: Compiler, function: Function, index: int, node: ast.expr) -> Evaluate:
    """The closure of an argument; a constant must fit the signature."""
    before = compiler.changing
    run = compiler.compile(node)
    if compiler.changing == before:
        constant = run(None)
        complaint = function.complaint(index, constant)
        if complaint and not (compiler.three_valued and constant is None):
            raise compiler.error(
                node, f"{function.name}() {complaint}; its signature: {function.signature}"
            )
        return run
    parameter = function.parameter(index)
    if parameter.optional and function.nulls is Nulls.REFUSED and not compiler.three_valued:
        return _not_null(run, f"{function.name}() takes no null as {parameter.name}")
    return run


def _not_null(run: Evaluate, complaint: str) -> Evaluate:
    """An argument that may be left out: null would silently mean the same."""

    def evaluate(value: Any) -> Any:
        argument = run(value)
        if argument is None:
            raise TypeError(complaint)
        return argument

    return evaluate


def _called(compiler: Compiler, node: Any) -> str:
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
        example = f"write {name}(field)" if name in FUNCTIONS else _allowed()
        raise compiler.error(node, f".{name}() is a method, and there are none here; {example}")
    if not isinstance(node.func, ast.Name):
        raise compiler.error(node, f"this cannot be called; {_allowed()}")
    if node.keywords or any(isinstance(part, ast.Starred) for part in node.args):
        raise compiler.error(node, f"{node.func.id}() takes plain arguments only")
    return str(node.func.id)


def _unknown_function(name: str, own: Mapping[str, OwnFunction]) -> str:
    names = sorted([*own, *FUNCTIONS, *_FIELD_CALLS])
    close = get_close_matches(name.lower(), names, 1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown function {name!r}{meant} Known: {', '.join(names)}"


def _field_name(compiler: Compiler, node: Any, count: int) -> str:
    first = node.args[0] if len(node.args) == count else None
    name = first.value if isinstance(first, ast.Constant) else None
    if isinstance(first, ast.Name) and node.func.id != "field":
        name = first.id
    if isinstance(name, str):
        # of a class; __deleted of a change stream is a field
        if name.startswith("__") and name.endswith("__"):
            raise compiler.error(node, f"{name!r} is not a field that can be read")
        return name
    rest = ", 0" if count == 2 else ""
    raise compiler.error(
        node,
        f"{node.func.id}() takes the name of a field; write {node.func.id}('user-agent'{rest})",
    )


def _call_field(compiler: Compiler, node: Any) -> Evaluate:
    return compiler.read(_field_name(compiler, node, 1))


def _call_has(compiler: Compiler, node: Any) -> Evaluate:
    name = _field_name(compiler, node, 1)
    compiler.fields.append(name)
    return lambda value: field_or_none(name, value) is not None


def _call_get(compiler: Compiler, node: Any) -> Evaluate:
    name = _field_name(compiler, node, 2)
    compiler.fields.append(name)
    default = compiler.compile(node.args[1])

    def run(value: Any) -> Any:
        field = field_or_none(name, value)
        return default(value) if field is None else field

    return run


_FIELD_CALLS: Mapping[str, Callable[[Compiler, Any], Evaluate]] = {
    "field": _call_field,
    "has": _call_has,
    "get": _call_get,
}
_MAKERS: Mapping[type[ast.expr], Callable[[Compiler, Any], Evaluate]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Set: _sequence,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _choice,
    ast.Attribute: _inner_field,
    ast.Subscript: _item,
    ast.Call: _call,
}
