"""Expressions over fields that are declared as timestamps: a time in place of a text, a text or a
number with a fraction in place of a time, and what cannot be computed with times."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millwheel.connect.own_functions import named_alone
from millwheel.core.aggregates.families.rows import order_of
from millwheel.core.aggregates.functions import FUNCTIONS as AGGREGATES
from millwheel.core.expressions.declared import Function
from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.instants.declared import KIND
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import BranchesSpec, LookupSpec, StepsSpec, TopSpec
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

Compile = Callable[[str], Any]
_GIVEN = {"text": "str", "int": "int", "float": "float", "bool": "bool", "time": KIND}
"""The kinds of what functions give, where it is always the same."""
_NO_TIMES = ("float", "bool")
_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_time_types(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """Note every expression that fails for each record, or compares what is never equal, because of
    a field that is a time, or is none."""
    compile_text = named_alone(spec.functions, spec.nulls, spec.vectorized).compile
    for computation in spec.computations:
        kinds = _kinds(spec, computation)
        if not kinds:
            continue
        for text, path in _texts(computation):
            problem = next(_Types(kinds).problems(compile_text(text).tree), "") if text else ""
            if problem:
                reader.bad(find(top, "computations", computation.name, *path), problem)


def _kinds(spec: PipelineSpec, computation: ComputationSpec) -> dict[str, str]:
    """The declared fields that are the same in all inputs which have them."""
    found: dict[str, str] = {}
    for each in computation.inputs:
        stream = spec.stream(each.stream)
        for name, kind in {**stream.fields, **dict.fromkeys(stream.times, KIND)}.items():
            found[name] = kind if found.get(name, kind) == kind else ""
    return found


def _texts(computation: ComputationSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The expressions over records of the inputs, and where they stand."""
    for each in computation.inputs:
        for name, text in zip(each.key.names, each.key.texts, strict=bool(each.key.texts)):
            yield text, ("input", each.stream, "key", name)
    yield computation.condition, ("where",)
    for aggregate in computation.aggregates:
        path = ("aggregate", aggregate.name)
        if aggregate.function in AGGREGATES:
            yield aggregate.argument, path
        yield aggregate.condition, path
    match computation.work:
        case TopSpec(by=by):
            yield from ((order_of(each).text, ("top", "by")) for each in by)
        case BranchesSpec(branches=branches):
            yield from ((each.condition, ("branch", each.stream)) for each in branches)
        case LookupSpec(by=by):
            yield from ((text, ("enrich", "by")) for text in by)
        case StepsSpec(steps=(step, *_)):  # the next one gets what this one makes
            yield step.expression, (step.kind.value,)
            yield from ((text, (step.kind.value, name)) for name, text in step.fields.items())


class _Types:
    """The kinds of expressions over fields with kinds: "" where nothing says it."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def problems(self, tree: ast.expr) -> Iterator[str]:
        """What is wrong with an expression and its parts."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from self._of_call(node)
            elif isinstance(node, ast.Compare):
                yield from self._of_comparison(node)
            elif isinstance(node, ast.BinOp):
                yield from self._of_operation(node)

    def kind(self, tree: ast.expr) -> str:
        """The kind of an expression."""
        match tree:
            case ast.Name(id=name):
                return self._fields.get(name, "")
            case ast.Constant(value=value):
                return type(value).__name__
            case ast.Call() if (function := _function(tree)) is not None:
                return _GIVEN.get(function.gives, "")
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):
                kinds = {self.kind(left), self.kind(right)}
                both = kinds == {KIND} and isinstance(tree.op, ast.Sub)
                return "int" if both else KIND if kinds == {KIND, "int"} else ""
        return ""

    def _of_call(self, node: ast.Call) -> Iterator[str]:
        function = _function(node)
        if function is None:
            return
        for index, each in enumerate(node.args):
            takes, kind = function.parameter(index).takes, self.kind(each)
            shown = f"`{ast.unparse(node)}`: {ast.unparse(each)} is {_article(kind)}"
            if takes == "time" and kind in _NO_TIMES:
                yield (
                    f"{shown}, and {function.name} takes a time. Declare the field as {KIND}, or"
                    " write time_of(number, 's') for a number"
                )
            if takes == "text" and kind == KIND:
                yield f"{shown}, and {function.name} takes a text. Write iso({ast.unparse(each)})"

    def _of_comparison(self, node: ast.Compare) -> Iterator[str]:
        sides = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            others = right.elts if isinstance(right, ast.List | ast.Tuple) else [right]
            if not isinstance(op, (*_COMPARED, ast.In, ast.NotIn)):
                continue
            for other in others:
                for time, text in ((left, other), (other, left)):
                    if (self.kind(time), self.kind(text)) == (KIND, "str"):
                        yield (
                            f"`{ast.unparse(node)}` compares a time with a text. Write"
                            f" parse_time({ast.unparse(text)})"
                        )

    def _of_operation(self, node: ast.BinOp) -> Iterator[str]:
        left, right = self.kind(node.left), self.kind(node.right)
        if KIND not in (left, right) or not isinstance(node.op, ast.Add | ast.Sub):
            return
        if left == right and isinstance(node.op, ast.Add):
            yield f"`{ast.unparse(node)}` adds two times. Their difference, `-`, is in µs"
        if "str" in (left, right):
            yield (
                f"`{ast.unparse(node)}` computes with a time and a text. Write duration('15m') for"
                " a length of time, or parse_time(text) for a time"
            )


def _function(node: ast.Call) -> Function | None:
    return FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" if kind else "anything"
