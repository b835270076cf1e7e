"""Expressions over fields whose types no record can satisfy."""

from __future__ import annotations

from typing import Any

import pytest

_HEAD = (
    "pipeline: p\nstreams:\n"
    "  a: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, x: float, yes: bool,"
    " name: str, n: int}}\n"
    "sinks: {out: {stdout: {}}}\ncomputations: {c: {COMPUTATION, output: out}}\n"
)


def _of(text: str) -> str:
    return _HEAD.replace("COMPUTATION", f'input: a, map: {{x: "{text}"}}')


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "n > 'x'",
            "pipeline.yaml:5: computations.c.map.x: `n > 'x'` compares n, an int, with a text, of"
            " which neither is greater. Write int(…), float(…) or cast(…, 'decimal(12, 2)')"
            " around a text that is a number, str(…) around a number that is a text, or declare"
            " the field as what it is",
        ),
        ("1 < name < 9", "compares an int with name, a text,"),
        ("between(name, 1, 2)", "compares name, a text, with an int"),
        ("x >= upper(name)", "compares x, a float, with upper(name), a text,"),
        ("name + 1 > 2", "`name + 1` computes with a text, name. "),
        ("n - name", "`n - name` computes with a text, name. "),
        ("concat(name, 'a') / 2", "computes with a text, concat(name, 'a'). "),
        ("upper(n)", "`upper(n)`: n, an int, and upper takes a text. Write str(n), or declare"),
        ("like(yes, 'a%')", "yes, a bool, and like takes a text. Write str(yes)"),
        ("abs(name)", "name, a text, and abs takes a number. "),
        ("substr(name, name)", "name, a text, and substr takes a number. "),
    ],
)
def test_what_no_record_satisfies(problems: Any, text: str, sentence: str) -> None:
    [found] = problems(_of(text))
    assert sentence in found


@pytest.mark.parametrize(
    "text",
    [
        "n == 'x' or n in ('x', 1) or n != name",
        "n > x or yes > n or name > 'a'",
        "int(name) > n and float(name) - 1 > x and str(n) < name",
        "unknown > 'x' and unknown + 1 > 2 and upper(unknown) == 'A'",
        "coalesce(name, n) == 1 or get(n, 'x') > 'a' or (name if yes else n) > 1",
        "at > '2026-01-31' and name + 'b' > 'a' and substr(name, n, 2) == 'a'",
        "name > null or len(name) > n or len(n) > 1",
    ],
)
def test_what_some_record_may_satisfy(problems: Any, text: str) -> None:
    assert problems(_of(text)) == []


def test_every_expression_over_records_is_judged(problems: Any) -> None:
    aggregates = "{s: {sum: abs(name)}, t: {count: {where: n > 'a'}}}"
    text = f"input: {{a: {{key: {{k: name - 1}}}}}}, aggregate: {aggregates}"
    found = problems(_HEAD.replace("COMPUTATION", text))
    assert [each.split(": ")[1] for each in found] == [
        "computations.c.input.a.key.k",
        "computations.c.aggregate.s",
        "computations.c.aggregate.t",
    ]


def test_a_bound_of_an_interval_is_no_text(problems: Any) -> None:
    head = _HEAD.replace(
        "sinks:", "  b: {source: {injection: {}}, timestamp: at, fields: {n: int}}\nsinks:"
    )
    join = (
        "input: {a: {key: n}, b: {key: n}}, join: {kind: inner, within: {from: b.n, until: BOUND}}"
    )
    [found] = problems(head.replace("COMPUTATION", join.replace("BOUND", "a.name")))
    assert "join.within.until: a.name is a text, and a bound is a time in whole µs. " in found
    for bound in ("parse_time(a.name)", "a.at", "a.n", "a.unknown"):
        assert problems(head.replace("COMPUTATION", join.replace("BOUND", bound))) == []
