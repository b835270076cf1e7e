"""Keys as a pipeline writes them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.language.spec import check_pipeline
from millwheel.language.spec.key_notation import key_names

_PIPELINE = """\
pipeline: p
streams:
  hits: {source: injection, timestamp: ts, fields: {ts: int, user: str, ms: int, cost: float}}
  clicks: {source: injection, timestamp: ts}
computations:
  c:
    input: INPUT
    REST
    output: out
"""
_COUNT = "{window: {tumbling: 1m}, aggregate: {n: count}}"
_DAY = "trunc(ts, '1d')"


def written(key: str, rest: str = "") -> str:
    options = rest or "window: {tumbling: 1m}\n    aggregate: {n: count}"
    given = key if key.startswith("{hits") else f"{{hits: {{key: {key}}}}}"
    return _PIPELINE.replace("INPUT", given).replace("REST", options)


def expressions(**texts: str) -> KeySpec:
    return KeySpec(KeyKind.EXPRESSIONS, tuple(texts), texts=tuple(texts.values()))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f'{{day: "{_DAY}"}}', expressions(day=_DAY)),
        (f'{{day: "{_DAY}", user: user}}', expressions(day=_DAY, user="user")),
        ("{who: user}", expressions(who="user")),
        ("{user: user}", KeySpec(KeyKind.FIELD, ("user",))),
        ("{user: user, ms: ms}", KeySpec(KeyKind.FIELDS, ("user", "ms"))),
        ("all", KeySpec(KeyKind.ALL)),
        ("[all]", KeySpec(KeyKind.FIELD, ("all",))),
        ("{hits: {key: user, null_key: group}}", KeySpec(KeyKind.FIELD, ("user",), nulls=True)),
        ("{hits: {key: user, null_key: dead_letter}}", KeySpec(KeyKind.FIELD, ("user",))),
    ],
)
def test_a_key_is_fields_named_expressions_or_everything(
    check: Any, text: str, key: KeySpec
) -> None:
    assert check(written(text)).computations[0].inputs == (InputSpec("hits", key),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lower(user)", "'lower(user)' is an expression, and needs a name, which results have for"),
        ("ms + 1", "write {NAME: ms + 1}"),
        ('{"a b": user}', "'a b' cannot be the name of a field of results"),
        ("{n: count(user)}", "is computed of the records of a group, and a key decides which"),
        ("{n: lowr(user)}", "unknown function 'lowr'; did you mean 'lower'?"),
        ("{n: user ==}", "input.hits.key.n: "),
        ("{one: 1}", "`1` is the same for all records; for one group of everything write key: all"),
        (
            "{x: cost}",
            "a key cannot be float, as `cost` is by the types of fields of the stream 'hits'",
        ),
        ("{x: ms > 3}", "a key cannot be bool, as `ms > 3` is"),
        ("{window_start: ms}", "write key: {of_window: window_start}"),
        ("{hits: {null_key: group}}", "null_key: is for keys that are read from fields; write key"),
        ("{hits: {key: all, null_key: group}}", "key: all reads none; leave it out"),
        ("{hits: {key: user, null_key: grup}}", "did you mean 'group'?"),
        ("{}", "write for example {day:"),
    ],
)
def test_what_is_no_key_is_refused_with_a_cure(problems: Any, text: str, why: str) -> None:
    assert why in "\n".join(problems(written(text)))


def test_a_name_that_is_nearly_a_field_is_told(folder: Path) -> None:
    (folder / "p.yaml").write_text(written("{x: lower(usr)}"))
    _, warnings = check_pipeline(folder / "p.yaml", {}, {})
    [found] = [warning for warning in warnings if "usr" in warning]
    assert "input.hits.key.x" in found
    assert "has no declared field 'usr'; did you mean 'user'?" in found


def test_a_result_has_no_field_of_the_name_of_a_part_of_its_key(problems: Any) -> None:
    [found] = problems(written(f'{{n: "{_DAY}"}}'))
    assert "every row already has a field 'n'" in found


def test_the_key_of_a_function_decides_about_nulls_itself(problems: Any, folder: Any) -> None:
    (folder / "own.py").write_text("def key(value): return value['user']\n")
    [found] = problems(written("{hits: {key: own:key, null_key: group}}"))
    assert "let the function return another value in place of None" in found


_JOIN = "window: {tumbling: 1m}\n    join: inner"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{hits: {key: user, null_key: group}, clicks: {key: user}}", "a null equals no other"),
        ("{hits: {key: all}, clicks: {key: user}}", "key: all of one input equals no key of the"),
        ("{hits: {key: {a: user}}, clicks: {key: [a, b]}}", "hits has a key of one field, clicks"),
    ],
)
def test_joins_refuse_what_would_never_match(problems: Any, given: str, why: str) -> None:
    assert why in "\n".join(problems(written(given, _JOIN)))


def test_a_dictionary_refuses_any_key(problems: Any) -> None:
    found = "\n".join(problems(written("all", "dictionary: {of: user, as: id}")))
    assert "a dictionary has its own key" in found


def test_results_show_the_names_of_a_key() -> None:
    assert key_names((InputSpec("s", expressions(day=_DAY)),)) == ("day",)
    assert key_names((InputSpec("s", KeySpec(KeyKind.ALL)),)) == ()
    assert key_names((InputSpec("s", KeySpec(KeyKind.RECORD)),)) == ("key",)
    assert key_names(()) == ("key",)
