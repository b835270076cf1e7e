"""Aggregates over fields of declared types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.language.spec import check_pipeline
from tests.unit.language.spec.test_refusals import HEAD


@pytest.mark.parametrize(
    ("field", "kind", "functions"),
    [
        ("v", "str", ["sum", "mean", "variance", "stddev", "quantile", "quantiles"]),
        (
            "yes",
            "bool",
            [
                "sum",
                "mean",
                "variance",
                "stddev",
                "quantile",
                "quantiles",
                "min",
                "max",
                "top_k",
                "count_distinct",
            ],
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_refused(
    problems: Any, field: str, kind: str, functions: list[str]
) -> None:
    options = {"quantile": ", q: 0.5", "quantiles": ", q: [0.5]", "top_k": ", k: 3"}
    aggregates = ", ".join(
        f"{name}: {{{name}: {field}{options.get(name, '')}}}" for name in functions
    )
    found = problems(
        f"{HEAD}  c: {{input: s, window: {{tumbling: 1m}}, aggregate: {{{aggregates}}}, output:"
        " o}\n"
    )
    assert len(found) == len(functions)
    for name, problem in zip(functions, found, strict=True):
        assert f"computations.c.aggregate.{name}: {name} cannot use the field {field!r}" in problem
        assert f"which is {kind} in the stream 's'; declare it as int or float" in problem
        assert f"{{{name}: int({field})}}" in problem


def test_fields_of_right_types_and_expressions_are_right(problems: Any) -> None:
    aggregates = (
        "a: {sum: n}, b: {sum: x}, c: {max: v}, d: {count: yes}, e: {first: yes}, f: {collect:"
        " yes}, g: {sum: int(v)}, h: {count_distinct: v}, i: {sum: other}, j:"
        " {'detectors:Plain': v}"
    )
    found = problems(
        f"{HEAD}  c: {{input: s, window: {{tumbling: 1m}}, aggregate: {{{aggregates}}}, output:"
        " o}\n"
    )
    assert len(found) == 1
    assert "Plain" in found[0]


@pytest.mark.parametrize(
    ("key", "field", "kind"), [("yes", "yes", "bool"), ("[v, x]", "x", "float")]
)
def test_a_key_of_a_declared_type_that_no_key_has_is_refused(
    problems: Any, key: str, field: str, kind: str
) -> None:
    found = problems(
        f"{HEAD}  c: {{input: {{s: {{key: {key}}}}}, callback: 'detectors:Plain', output: o}}\n"
    )
    [problem] = [each for each in found if "key" in each]
    assert f"computations.c.input.s.key: a key cannot be {kind}" in problem
    assert f"as the field {field!r} of the stream 's' is: use a whole number or a text" in problem


@pytest.mark.parametrize("key", ["n", "[n, v]", "other"])
def test_keys_of_other_types_are_right(problems: Any, key: str) -> None:
    found = problems(
        f"{HEAD}  c: {{input: {{s: {{key: {key}}}}}, callback: 'detectors:Plain', output: o}}\n"
    )
    assert not [each for each in found if "a key cannot be" in each]


def test_types_are_followed_through_computations(folder: Path) -> None:
    file = folder / "p.yaml"
    head = f"{HEAD}  m: {{input: s, map: {{word: v, flag: x > 3}}, output: made}}\n"

    def warnings(key: str, aggregate: str) -> list[str]:
        file.write_text(
            f"{head}  c: {{input: {{made: {{key: {key}}}}}, window: {{tumbling: 1m}},"
            f" aggregate: {{{aggregate}}}, output: o}}\n",
            encoding="utf-8",
        )
        return [each for each in check_pipeline(file)[1] if "computations.c" in each]

    warning = "\n".join(warnings("word", "total: {sum: word}"))
    assert "aggregate.total: sum cannot use the field 'word', which is str in the" in warning
    warning = "\n".join(warnings("flag", "n: count"))
    assert "c.input.made.key: a key cannot be bool, as the field 'flag' of the stream" in warning
    assert "for example key: {flag: str(flag)}" in warning


@pytest.mark.parametrize(
    ("one", "other", "warned"),
    [
        ("n", "word", True),
        ("{k: n + 1}", "{k: word}", True),
        ("n", "n", False),
        ("n", "unknown", False),
        ("{k: str(n)}", "word", False),
    ],
)
def test_keys_of_two_types_are_warned_of(
    tmp_path: Path, one: str, other: str, warned: bool
) -> None:
    file = tmp_path / "p.yaml"
    source = "source: {injection: {}}, timestamp: at, fields: {at: timestamp, n: int, word: str}"
    file.write_text(
        f"pipeline: p\nstreams:\n  a: {{{source}}}\n  b: {{{source}}}\n"
        "sinks: {out: {stdout: {}}}\ncomputations:\n"
        f"  c: {{input: {{a: {{key: {one}}}, b: {{key: {other}}}}}, join: inner,"
        " window: {tumbling: 1m}, output: out}\n",
        encoding="utf-8",
    )
    warnings = check_pipeline(file)[1]
    assert [each for each in warnings if "keys of two types never meet" in each] == (
        warnings if warned else []
    )
    assert not warned or "p.yaml:7: computations.c.input.b: `word` is str and `n" in warnings[0]
