"""Texts that are compared with times: ``at >= '2026-01-01'``. They become times when a pipeline is
read, so that rows and columns compare whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from millwheel.core.instants.texts import is_time_text
from millwheel.core.instants.time_forms import KIND
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.language.spec.typed.expressions import (
    FieldKinds,
    Path,
    changed,
    compared,
    declared_kinds,
)

Compile = Callable[[str], Any]


def with_times(spec: PipelineSpec, compile_text: Compile) -> PipelineSpec:
    """The pipeline with ``parse_time('…')`` for every text that is a time and compared with one.
    The others are left, for the checks to name them."""
    return replace(
        spec,
        computations=tuple(_of_computation(each, spec, compile_text) for each in spec.computations),
    )


def _written_times(tree: ast.expr, kinds: FieldKinds) -> Iterator[ast.Constant]:
    """The texts that an expression compares with times, as far as they are times."""
    for node in ast.walk(tree):
        for one, other in compared(node):
            for time, text in ((one, other), (other, one)):
                if kinds.of(time) != KIND or not isinstance(text, ast.Constant):
                    continue
                if isinstance(text.value, str) and is_time_text(text.value):
                    yield text


def _of_computation(
    computation: ComputationSpec, spec: PipelineSpec, compile_text: Compile
) -> ComputationSpec:
    fields = declared_kinds(spec, computation)
    if KIND not in fields.values():
        return computation
    return changed(computation, partial(_with_times, FieldKinds(fields), compile_text))


def _with_times(kinds: FieldKinds, compile_text: Compile, text: str, path: Path) -> str:
    try:
        tree = compile_text(text).tree
    except ValueError:  # which its reader has reported
        return text
    times = {id(each): each for each in _written_times(tree, kinds)}
    # the last first, since each moves what is behind it
    spans = sorted(
        (each.lineno, each.col_offset, each.end_lineno, each.end_col_offset)
        for each in times.values()
    )
    for line, start, end_line, end in reversed(spans):
        text = _called(text, (line, start), (end_line or line, end or start))
    return text


def _called(text: str, start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text with a call of ``parse_time`` around a part of it. Ends are those of syntax trees:
    lines from 1, and bytes, of an expression in brackets."""
    lines = f"({text.strip()}".encode().split(b"\n")
    for (line, column), mark in ((end, b")"), (start, b"parse_time(")):
        whole = lines[line - 1]
        lines[line - 1] = whole[:column] + mark + whole[column:]
    return b"\n".join(lines)[1:].decode()
