"""The expressions of a computation over records of its inputs, and the kinds of their fields."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.aggregates.families.rows import order_of
from millwheel.core.aggregates.functions import FUNCTIONS as AGGREGATES
from millwheel.core.aggregates.functions import orders_of
from millwheel.core.expressions.declaration import Function
from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.instants.time_forms import KIND
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    AggregateSpec,
    AggregationSpec,
    BranchesSpec,
    LookupSpec,
    OverSpec,
    SlicesSpec,
    StepsSpec,
    TopSpec,
    WindowedSpec,
    Work,
)

Path = tuple[str, ...]
"""Where an expression stands in its computation."""
Change = Callable[[str, Path], str]
"""From an expression, which is not empty, and where it stands to the one that takes its place."""
FIRST_STEP: Path = ("steps", "0")
_GIVEN = {"text": "str", "int": "int", "float": "float", "bool": "bool", "time": KIND}
"""The kinds of results of functions, where they are always the same."""


def declared_kinds(spec: PipelineSpec, computation: ComputationSpec) -> dict[str, str]:
    """The kinds of the declared fields, "" for kinds that differ among inputs which have them."""
    kinds: dict[str, str] = {}
    for each in computation.inputs:
        stream = spec.stream(each.stream)
        for name, kind in {**stream.fields, **dict.fromkeys(stream.times, KIND)}.items():
            kinds[name] = kind if kinds.get(name, kind) == kind else ""
    return kinds


def expressions_of(computation: ComputationSpec) -> Iterator[tuple[str, Path]]:
    """The expressions over records of the inputs, and where they stand."""
    expressions: list[tuple[str, Path]] = []

    def note(text: str, path: Path) -> str:
        expressions.append((text, path))
        return text

    changed(computation, note)
    yield from expressions


def changed(computation: ComputationSpec, change: Change) -> ComputationSpec:
    """The computation with other expressions over records of its inputs."""

    def of(text: str, *path: str) -> str:
        return change(text, path) if text else text

    inputs = tuple(_of_input(each, change) for each in computation.inputs)
    return replace(computation, inputs=inputs, work=_of_work(computation.work, of))


def _of_input(own_input: InputSpec, change: Change) -> InputSpec:
    key = own_input.key
    if not key.texts:
        return own_input
    texts = [
        change(text, ("input", own_input.stream, "key", name))
        for name, text in zip(key.names, key.texts, strict=True)
    ]
    return replace(own_input, key=replace(key, texts=tuple(texts)))


def _of_work(work: Work, of: Callable[..., str]) -> Work:
    if isinstance(work, AggregationSpec | SlicesSpec | OverSpec):
        made = tuple(_of_aggregate(each, of) for each in work.aggregates)
        work = replace(work, aggregates=made)
    if isinstance(work, WindowedSpec | SlicesSpec | OverSpec):
        return replace(work, condition=of(work.condition, "where"))
    match work:
        case TopSpec(by=by):
            return replace(work, by=tuple(_of_order(each, of, "top", "by") for each in by))
        case BranchesSpec(branches=branches):
            ways = (
                replace(each, condition=of(each.condition, "branch", each.stream))
                for each in branches
            )
            return replace(work, branches=tuple(ways))
        case LookupSpec(by=by):
            return replace(work, by=tuple(of(text, "enrich", "by") for text in by))
        case StepsSpec(steps=(step, *rest)):  # the next one gets its results
            fields = {name: of(text, *FIRST_STEP, name) for name, text in step.fields.items()}
            first = replace(step, expression=of(step.expression, *FIRST_STEP), fields=fields)
            return replace(work, steps=(first, *rest))
    return work


def _of_aggregate(aggregate: AggregateSpec, of: Callable[..., str]) -> AggregateSpec:
    path = ("aggregate", aggregate.name)
    is_built_in = aggregate.function in AGGREGATES
    argument = of(aggregate.argument, *path) if is_built_in else aggregate.argument
    options = aggregate.options
    if orders_of(aggregate):
        by = options["by"]
        made = [_of_order(text, of, *path) for text in ([by] if isinstance(by, str) else by)]
        options = {**options, "by": made}
    condition = of(aggregate.condition, *path, "where")
    return replace(aggregate, argument=argument, condition=condition, options=options)


def _of_order(text: str, of: Callable[..., str], *path: str) -> str:
    inner = order_of(text).text
    way = text[len(inner) :] if text.startswith(inner) else ""
    return f"{of(inner, *path)}{way}"


class FieldKinds:
    """The kinds of expressions over fields with kinds: "" where it is uncertain."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def of(self, tree: ast.expr) -> str:
        """The kind of an expression."""
        match tree:
            case ast.Name(id=name):
                return self._fields.get(name, "")
            case ast.Constant(value=value):
                return type(value).__name__
            case ast.Call() if (function := function_of(tree)) is not None:
                return _GIVEN.get(function.gives, "")
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):
                kinds = {self.of(left), self.of(right)}
                both = kinds == {KIND} and isinstance(tree.op, ast.Sub)
                return "int" if both else KIND if kinds == {KIND, "int"} else ""
        return ""


def function_of(node: ast.Call) -> Function | None:
    """The function of the language that is called."""
    return FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None


_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)


def compared(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each two expressions that a part of an expression compares, in the order in which they are
    written."""
    match node:
        case ast.Compare():
            sides: list[Any] = [node.left, *node.comparators]
            for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
                if isinstance(op, _COMPARED):
                    others = right.elts if isinstance(right, ast.List | ast.Tuple) else [right]
                    yield from ((left, other) for other in others)
        case ast.Call(func=ast.Name(id="between"), args=[value, *ends]):
            yield from ((value, end) for end in ends)
