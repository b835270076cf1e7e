"""Expressions over fields with kinds that no record can satisfy: a text where a number is needed, a
number where a text is, both compared by their order, and wrong arithmetic with times."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from millwheel.core.expressions.language import Expression
from millwheel.core.instants.texts import is_time_text
from millwheel.core.instants.time_forms import KIND
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import IntervalJoinSpec
from millwheel.language.spec.typed.expressions import (
    FieldKinds,
    compared,
    function_of,
)

_NO_TIMES = ("float", "bool")
_NUMBERS = ("int", "float")
_TAKE_NUMBERS = ("int", "float", "number")
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ARITHMETIC = (ast.Sub, ast.Div, ast.FloorDiv, ast.Pow)
_SHOWN = {"str": "a text", "int": "an int", "float": "a float", "bool": "a bool"}


def mistakes_in(
    tree: ast.expr, fields: Mapping[str, Any], declared: Collection[str]
) -> Iterator[str]:
    """The first mistake with times, and the first with texts and numbers, in an expression over
    fields of these kinds, of which some are ``declared`` as times. Kinds that are not words
    (decimals, records) are not judged here."""
    kinds = {name: kind for name, kind in fields.items() if isinstance(kind, str)}
    if any(kinds.values()):
        for types in (_Times(kinds, declared), _Values(kinds)):
            yield from islice(types.problems(tree), 1)


def mistakes_of_bounds(
    spec: PipelineSpec, computation: ComputationSpec, compile_text: Callable[[str], Expression]
) -> Iterator[tuple[str, str]]:
    """The bounds of an interval that are fields of texts."""
    work = computation.work
    if not isinstance(work, IntervalJoinSpec):
        return
    for word, bounds in (("from", work.froms), ("until", work.untils)):
        for each in bounds:
            match compile_text(each.expression).tree:
                case ast.Attribute(value=ast.Name(id=stream), attr=name):
                    if spec.stream(stream).fields.get(name) == "str":
                        field = f"{stream}.{name}"
                        yield (
                            word,
                            f"{field} is a text, and a bound is a time in whole µs. Write"
                            f" parse_time({field}), or declare the field as timestamp",
                        )


class _Mistakes(FieldKinds):
    """Mistakes of one sort: with times, or with texts and numbers."""

    def problems(self, tree: ast.expr) -> Iterator[str]:
        """The mistakes in an expression and its parts."""
        for node in ast.walk(tree):
            yield from self._of_comparison(node)
            if isinstance(node, ast.BinOp):
                yield from self._of_operation(node)
            elif isinstance(node, ast.Call) and (function := function_of(node)) is not None:
                for index, argument in enumerate(node.args):
                    takes = function.parameter(index).takes
                    yield from self._of_argument(node, argument, function.name, takes)

    @abstractmethod
    def _of_comparison(self, node: ast.AST) -> Iterator[str]:
        """The mistakes of a comparison, if the node is one."""

    @abstractmethod
    def _of_operation(self, node: ast.BinOp) -> Iterator[str]:
        """The mistakes of an operation with two operands."""

    @abstractmethod
    def _of_argument(
        self, call: ast.Call, argument: ast.expr, name: str, takes: str
    ) -> Iterator[str]:
        """The mistakes with an argument of the function ``name``, which takes this kind there."""


class _Times(_Mistakes):
    """Mistakes with times: a time in place of a text, a text or a number with a fraction in place
    of a time, and operations that times do not have."""

    def __init__(self, fields: Mapping[str, str], declared: Collection[str]) -> None:
        super().__init__(fields)
        self._declared = declared

    def _of_argument(
        self, call: ast.Call, argument: ast.expr, name: str, takes: str
    ) -> Iterator[str]:
        kind, text = self.of(argument), ast.unparse(argument)
        shown = f"`{ast.unparse(call)}`: {text} is {_article(kind)}, and {name} takes a"
        if takes == "time" and kind in _NO_TIMES:
            yield (
                f"{shown} time. Declare the field as {KIND}, or write time_of(number, 's') for a"
                " number"
            )
        if takes == "text" and kind == KIND:
            yield f"{shown} text. Write iso({text})"

    def _of_comparison(self, node: ast.AST) -> Iterator[str]:
        for one, other in compared(node):
            for time, text in ((one, other), (other, one)):
                if (self.of(time), self.of(text)) != (KIND, "str") or _is_time(text):
                    continue
                shown = f"`{ast.unparse(node)}` compares a time with "
                if isinstance(text, ast.Constant):
                    yield (
                        f"{shown}the text {text.value!r}, which is none. Write it as"
                        " '2026-01-31' or '2026-01-31T12:00:00Z', or parse_time(text, format)"
                    )
                else:
                    yield f"{shown}a text. Write parse_time({ast.unparse(text)})"

    def _of_operation(self, node: ast.BinOp) -> Iterator[str]:
        left, right = self.of(node.left), self.of(node.right)
        if KIND not in (left, right) or not isinstance(node.op, ast.Add | ast.Sub):
            return
        # The bounds of windows are whole µs, too: (window_start + window_end) // 2 is a middle.
        if left == right and isinstance(node.op, ast.Add) and self._is_declared(node):
            yield f"`{ast.unparse(node)}` adds two times. Their difference, `-`, is in µs"
        if "str" in (left, right):
            yield (
                f"`{ast.unparse(node)}` computes with a time and a text. Write duration('15m') for"
                " a length of time, or parse_time(text) for a time"
            )

    def _is_declared(self, node: ast.BinOp) -> bool:
        names = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
        return all(name in self._declared for name in names if self._fields.get(name) == KIND)


def _is_time(tree: ast.expr) -> bool:
    """Whether a text is written that stands for a time."""
    text = tree.value if isinstance(tree, ast.Constant) else None
    return isinstance(text, str) and is_time_text(text)


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" if kind else "anything"


class _Values(_Mistakes):
    """Mistakes with texts and numbers."""

    def _of_argument(
        self, call: ast.Call, argument: ast.expr, name: str, takes: str
    ) -> Iterator[str]:
        kind, text = self.of(argument), ast.unparse(argument)
        shown = f"`{ast.unparse(call)}`: {self._shown(argument)} and {name} takes a"
        if takes == "text" and kind in (*_NUMBERS, "bool"):
            yield f"{shown} text. Write str({text}), or declare the field as str"
        if takes in _TAKE_NUMBERS and kind == "str":
            yield f"{shown} number. {_CURE}"

    def _of_comparison(self, node: ast.AST) -> Iterator[str]:
        for one, other in _by_order(node):
            kinds = {self.of(one), self.of(other)}
            if "str" in kinds and kinds & {*_NUMBERS}:
                yield (
                    f"`{ast.unparse(node)}` compares {self._shown(one)} with"
                    f" {self._shown(other)}, of which neither is greater. {_CURE}"
                )

    def _of_operation(self, node: ast.BinOp) -> Iterator[str]:
        kinds = {self.of(node.left), self.of(node.right)}
        mixed = isinstance(node.op, ast.Add) and "str" in kinds and kinds & {*_NUMBERS, "bool"}
        if mixed or (isinstance(node.op, _ARITHMETIC) and "str" in kinds):
            text = node.left if self.of(node.left) == "str" else node.right
            yield f"`{ast.unparse(node)}` computes with a text, {ast.unparse(text)}. {_CURE}"

    def _shown(self, tree: ast.expr) -> str:
        kind = _SHOWN.get(self.of(tree), "a value")
        return kind if isinstance(tree, ast.Constant) else f"{ast.unparse(tree)}, {kind},"


_CURE = (
    "Write int(…), float(…) or cast(…, 'decimal(12, 2)') around a text that is a number, str(…)"
    " around a number that is a text, or declare the field as what it is"
)


def _by_order(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each two expressions of which a part of an expression asks which is greater."""
    match node:
        case ast.Compare():
            sides = [node.left, *node.comparators]
            for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
                if isinstance(op, _ORDERED):
                    yield left, right
        case ast.Call(func=ast.Name(id="between"), args=[value, *ends]):
            yield from ((value, end) for end in ends)
