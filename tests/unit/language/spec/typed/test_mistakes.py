"""Expressions over fields whose types no record can satisfy, and those that some record may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.language.spec import check_pipeline

_HEAD = (
    "pipeline: p\nstreams:\n"
    "  a: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, until: timestamp,"
    " x: float, yes: bool, name: str, n: int}}\n"
    "  b: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, name: int}}\n"
    "sinks: {out: {stdout: {}}}\ncomputations: {c: {COMPUTATION, output: out}}\n"
)


def _of(text: str) -> str:
    return _HEAD.replace("COMPUTATION", f'input: a, map: {{x: "{text}"}}')


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "year(x)",
            "pipeline.yaml:6: computations.c.map.x: `year(x)`: x is a float, and year"
            " takes a time. Declare the field as timestamp, or write time_of(number, 's') for a"
            " number",
        ),
        ("hour(yes)", "yes is a bool, and hour takes a time"),
        ("1 + hour(trunc(x, '1h'))", "x is a float, and trunc takes a time"),
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
def test_mistakes_with_times(problems: Any, text: str, sentence: str) -> None:
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
def test_computations_with_times(problems: Any, text: str) -> None:
    assert problems(_of(text)) == []


@pytest.mark.parametrize(
    ("computation", "path"),
    [
        ("input: {a: {key: {x: 'lower(at)'}}}, map: {n: n}", "input.a.key.x"),
        ("input: {a: {key: name}}, where: 'year(x) > 1', window: global, aggregate: {n: count}",
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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "n > 'x'",
            "pipeline.yaml:6: computations.c.map.x: `n > 'x'` compares n, an int, with a text, of"
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
def test_mistakes_with_texts_and_numbers(problems: Any, text: str, sentence: str) -> None:
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
def test_computations_with_texts_and_numbers(problems: Any, text: str) -> None:
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


def test_a_bound_of_an_interval_is_not_a_text(problems: Any) -> None:
    join = (
        "input: {a: {key: n}, b: {key: name}},"
        " join: {kind: inner, within: {from: b.name, until: BOUND}}"
    )
    [found] = problems(_HEAD.replace("COMPUTATION", join.replace("BOUND", "a.name")))
    assert "join.within.until: a.name is a text, and a bound is a time in whole µs. " in found
    for bound in ("parse_time(a.name)", "a.at", "a.n", "a.unknown"):
        assert problems(_HEAD.replace("COMPUTATION", join.replace("BOUND", bound))) == []


_BEHIND = (
    "pipeline: p\nstreams:\n"
    "  a: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, x: float, name: str,"
    " n: int}}\n"
    "  b: {source: {injection: {}}, timestamp: at, fields: {at: timestamp, x: str}}\n"
    "sinks: {out: {stdout: {}}}\ncomputations:\n"
)


@pytest.mark.parametrize(
    ("computations", "sentence"),
    [
        (
            "c: {input: a, map: {who: name, twice: n * 2}, output: m}\n"
            "d: {input: m, filter: 'who > 3', output: out}",
            "computations.d.filter: `who > 3` compares who, a text, with an int",
        ),
        (
            "c: {input: a, steps: [{map: {twice: n * 2}}, {filter: \"upper(twice) == 'A'\"}],"
            " output: out}",
            "computations.c.steps[1].filter: `upper(twice)`: twice, an int, and upper takes a text",
        ),
        (
            "c: {input: {a: {key: name}}, window: {tumbling: 1m}, aggregate: {n: count, top: {max:"
            " name}}, having: \"n > 'x'\", output: out}",
            "computations.c.having: `n > 'x'` compares n, an int, with a text",
        ),
        (
            "c: {input: {a: {key: name}}, window: {tumbling: 1m}, aggregate: {n: count, most: {max:"
            " name}}, then: {x: most / n}, output: out}",
            "computations.c.then.x: `most / n` computes with a text, most",
        ),
        (
            "c: {input: {a: {key: name}}, window: {tumbling: 1m}, aggregate: {total: {sum: n}},"
            " output: m}\n"
            "d: {input: {m: {key: name}}, window: {tumbling: 1m}, where: 'like(total, ''a%'')',"
            " aggregate: {k: count}, output: out}",
            "computations.d.where: `like(total, 'a%')`: total, an int, and like takes a text",
        ),
    ],
)
def test_kinds_follow_through_computations(folder: Path, computations: str, sentence: str) -> None:
    file = folder / "p.yaml"
    text = _BEHIND + "".join(f"  {line}\n" for line in computations.splitlines())
    file.write_text(text, encoding="utf-8")
    assert any(sentence in each for each in check_pipeline(file)[1]), check_pipeline(file)


@pytest.mark.parametrize(
    "computations",
    [
        # each producer makes another kind
        "c: {input: a, map: {x: n}, output: m}\n"
        "e: {input: b, map: {x: x}, output: m}\n"
        "d: {input: m, filter: 'x > 3', output: out}",
        # the one has a field that the other's records do not have
        "c: {input: a, map: {x: n}, output: m}\n"
        "e: {input: b, map: {y: x}, output: m}\n"
        "d: {input: m, filter: 'x > ''a'' if has(x) else y > ''a''', output: out}",
        # a default of another kind
        "c: {input: a, map: {v: \"get(n, 'x')\"}, output: m}\n"
        "d: {input: m, filter: 'v > ''a''', output: out}",
        "c: {input: {a: {key: name}}, window: {tumbling: 1m}, aggregate: {n: count}, then: {early:"
        " window_start < '2026-01-01'}, output: out}",
        # the middle of a window
        "c: {input: {a: {key: name}}, window: {tumbling: 1m}, aggregate: {n: count}, then: {middle:"
        " (window_start + window_end) // 2}, output: out}",
    ],
)
def test_kinds_that_differ_are_not_judged(problems: Any, computations: str) -> None:
    text = _BEHIND + "".join(f"  {line}\n" for line in computations.splitlines())
    assert problems(text) == []
