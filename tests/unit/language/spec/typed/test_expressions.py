"""The expressions of computations, and what takes their place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.language.spec.typed.expressions import (
    FieldKinds,
    changed,
    compared,
    declared_kinds,
    expressions_of,
)

_HEAD = (
    "pipeline: p\nstreams:\n"
    "  a: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, n: int, s: str}}\n"
    "  b: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, n: float}}\n"
    "sinks: {out: {stdout: {mode: changelog}}}\ncomputations: {c: {COMPUTATION}}\n"
)


def _computation(folder: Path, text: str) -> ComputationSpec:
    file = folder / "pipeline.yaml"
    file.write_text(_HEAD.replace("COMPUTATION", text))
    return load_pipeline(file).computations[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input: {a: {key: {x: n + 1}}}, window: {tumbling: 1m}, aggregate: {m: {max: n * 2}},"
         " where: n > 1, output: out", ["n + 1", "n * 2", "n > 1"]),
        ("input: {a: {key: s}}, over: {rows: 3}, aggregate: {m: {max: n + 2, where: n > 2}},"
         " output: out", ["n + 2", "n > 2"]),
        ("input: {a: {key: s}}, top: {by: [n + 1 desc nulls last], k: 3}, output: out", ["n + 1"]),
        ("input: a, branch: {out: n > 1}", ["n > 1"]),
        ("input: a, map: {x: n + 1, y: s}, output: out", ["n + 1", "s"]),
        ("input: a, steps: [{filter: n > 1}, {map: {n: n + 1}}], output: out", ["n > 1"]),
    ],
)  # fmt: skip
def test_every_expression_is_found_and_can_be_another(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    found = _computation(tmp_path, text)
    assert [each for each, _ in expressions_of(found)] == expected
    other = changed(found, lambda each, path: f"({each})")
    assert [each for each, _ in expressions_of(other)] == [f"({each})" for each in expected]
    assert changed(other, lambda each, path: each[1:-1]) == found


def test_fields_of_different_kinds_have_none(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(_HEAD.replace("COMPUTATION", "input: [a, b], map: {x: n}, output: out"))
    spec = load_pipeline(file)
    assert declared_kinds(spec, spec.computations[0]) == {"at": "timestamp", "n": "", "s": "str"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("at", "timestamp"),
        ("at + 5", "timestamp"),
        ("at - at", "int"),
        ("trunc(at, '1h')", "timestamp"),
        ("lower(s)", "str"),
        ("unknown", ""),
        ("at * 2", ""),
        ("s if n else s", ""),
    ],
)
def test_the_kinds_of_expressions(text: str, kind: str) -> None:
    fields = {"at": "timestamp", "n": "int", "s": "str"}
    assert FieldKinds(fields).of(compile_expression(text).tree) == kind


def test_what_is_compared() -> None:
    text = "1 < n <= m and s in ['x', 'y'] or between(n, 2, 3) and n is not null and abs(n)"
    tree = compile_expression(text).tree
    found = [
        (ast.unparse(one), ast.unparse(other))
        for node in ast.walk(tree)
        for one, other in compared(node)
    ]
    assert sorted(found) == [
        ("1", "n"), ("n", "2"), ("n", "3"), ("n", "m"), ("s", "'x'"), ("s", "'y'")
    ]  # fmt: skip
