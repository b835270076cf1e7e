"""What expressions make of fields that are times."""

from __future__ import annotations

from typing import Any

import pytest

_HEAD = (
    "pipeline: p\nstreams:\n"
    "  a: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, until: timestamp,"
    " price: float, yes: bool, name: str, n: int}}\n"
    "  b: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, name: int}}\n"
    "sinks: {out: {stdout: {}}}\ncomputations: {c: {COMPUTATION, output: out}}\n"
)


def _of(text: str) -> str:
    return _HEAD.replace("COMPUTATION", f'input: a, map: {{x: "{text}"}}')


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "year(price)",
            "pipeline.yaml:6: computations.c.map.x: `year(price)`: price is a float, and year"
            " takes a time. Declare the field as timestamp, or write time_of(number, 's') for a"
            " number",
        ),
        ("hour(yes)", "yes is a bool, and hour takes a time"),
        ("1 + hour(trunc(price, '1h'))", "price is a float, and trunc takes a time"),
        ("lower(at)", "at is a timestamp, and lower takes a text. Write iso(at)"),
        (
            "lower(trunc(at, '1h'))",
            "trunc(at, '1h') is a timestamp, and lower takes a text. Write iso(trunc(at, '1h'))",
        ),
        (
            "at >= 'May 2026'",
            "`at >= 'May 2026'` compares a time with the text 'May 2026', which is none. Write it"
            " as '2026-01-31' or '2026-01-31T12:00:00Z', or parse_time(text, format)",
        ),
        ("name < at", "Write parse_time(name)"),
        ("1 < n < 3 and at in ['2026-01-01', 'May']", "a time with the text 'May'"),
        ("between(at, '2026-01-01', 'May')", "a time with the text 'May'"),
        ("at + until", "`at + until` adds two times. Their difference, `-`, is in µs"),
        ("at + '15m'", "Write duration('15m') for a length of time"),
        ("(at + 5) - '2026-01-01'", "or parse_time(text) for a time"),
    ],
)
def test_what_cannot_be_meant_of_a_time(problems: Any, text: str, sentence: str) -> None:
    [found] = problems(_of(text))
    assert sentence in found


@pytest.mark.parametrize(
    "text",
    [
        "year(at)",
        "year(name)",
        "year(n)",
        "hour(trunc(at, '1h'), 'Europe/Berlin')",
        "at > parse_time('2026-01-01') and at < until",
        "at >= '2026-01-01' and '2026-02-01T12:00+02:00' > at",
        "trunc(at, '1d') in ['2026-01-01', '2026-02-01']",
        "until - at",
        "(until - at) > duration('1h')",
        "at + duration('15m')",
        "at == null",
        "at // 1000",
        "iso(at) > '2026'",
        "name == '2026'",
        "at > n",
        "unknown > '2026'",
        "date_format(at, '%Y')",
        "coalesce(at, until)",
    ],
)
def test_what_may_be_computed_with_times(problems: Any, text: str) -> None:
    assert problems(_of(text)) == []


@pytest.mark.parametrize(
    ("computation", "path"),
    [
        ("input: {a: {key: {x: 'lower(at)'}}}, map: {n: n}", "input.a.key.x"),
        ("input: {a: {key: name}}, where: 'year(price) > 1', window: global, aggregate: {n: count}",
         "where"),
        ("input: {a: {key: name}}, window: global, aggregate: {x: {max: 'lower(at)'}}",
         "aggregate.x"),
        ("input: {a: {key: name}}, window: global, aggregate: {x: {function: count, where:"
         " 'lower(at) > n'}}", "aggregate.x"),
        ("input: {a: {key: name}}, top: {by: ['lower(at) desc'], k: 3}", "top.by"),
        ("input: a, filter: 'lower(at) > name'", "filter"),
    ],
)  # fmt: skip
def test_expressions_are_looked_at_wherever_they_stand(
    problems: Any, computation: str, path: str
) -> None:
    found = "\n".join(problems(_HEAD.replace("COMPUTATION", computation)))
    assert f"computations.c.{path}: " in found


def test_branches_name_their_condition(problems: Any) -> None:
    text = _HEAD.replace("{COMPUTATION, output: out}", "{input: a, branch: {out: 'lower(at) > n'}}")
    [found] = problems(text)
    assert "lower takes a text" in found


def test_a_field_that_is_another_in_each_input_is_not_judged(problems: Any) -> None:
    text = _HEAD.replace("COMPUTATION", "input: [a, b], map: {x: 'lower(name)'}")
    assert problems(text) == []
    [found] = problems(text.replace("lower(name)", "lower(at)"))
    assert "Write iso(at)" in found
