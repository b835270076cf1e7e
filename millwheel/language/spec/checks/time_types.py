"""Expressions over fields that are declared as timestamps: a time in place of a text, a text or a
number with a fraction in place of a time, and what cannot be computed with times."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from millwheel.connect.own_functions import named_alone
from millwheel.core.instants.declared import KIND
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.typed.expressions import (
    FieldKinds,
    compared,
    expressions_of,
    function_of,
    kinds_of,
)

_NO_TIMES = ("float", "bool")


def check_time_types(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """Note every expression that fails for each record, or compares what is never equal, because of
    a field that is a time, or is none."""
    compile_text = named_alone(spec.functions, spec.nulls, spec.vectorized).compile
    for computation in spec.computations:
        kinds = kinds_of(spec, computation)
        if not kinds:
            continue
        for text, path in expressions_of(computation):
            problem = next(_Types(kinds).problems(compile_text(text).tree), "")
            if problem:
                reader.bad(find(top, "computations", computation.name, *path), problem)


class _Types(FieldKinds):
    """What is wrong with expressions over fields with kinds."""

    def problems(self, tree: ast.expr) -> Iterator[str]:
        """What is wrong with an expression and its parts."""
        for node in ast.walk(tree):
            yield from self._of_comparison(node)
            if isinstance(node, ast.Call):
                yield from self._of_call(node)
            elif isinstance(node, ast.BinOp):
                yield from self._of_operation(node)

    def _of_call(self, node: ast.Call) -> Iterator[str]:
        function = function_of(node)
        if function is None:
            return
        for index, each in enumerate(node.args):
            takes, kind = function.parameter(index).takes, self.of(each)
            shown = f"`{ast.unparse(node)}`: {ast.unparse(each)} is {_article(kind)}"
            if takes == "time" and kind in _NO_TIMES:
                yield (
                    f"{shown}, and {function.name} takes a time. Declare the field as {KIND}, or"
                    " write time_of(number, 's') for a number"
                )
            if takes == "text" and kind == KIND:
                yield f"{shown}, and {function.name} takes a text. Write iso({ast.unparse(each)})"

    def _of_comparison(self, node: ast.AST) -> Iterator[str]:
        for one, other in compared(node):
            for time, text in ((one, other), (other, one)):
                if (self.of(time), self.of(text)) != (KIND, "str"):
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
        if left == right and isinstance(node.op, ast.Add):
            yield f"`{ast.unparse(node)}` adds two times. Their difference, `-`, is in µs"
        if "str" in (left, right):
            yield (
                f"`{ast.unparse(node)}` computes with a time and a text. Write duration('15m') for"
                " a length of time, or parse_time(text) for a time"
            )


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" if kind else "anything"
