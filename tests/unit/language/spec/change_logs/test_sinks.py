"""Sinks of change logs know by which fields their rows are known."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.spec import KeyKind, KeySpec
from tests.unit.language.spec.parts.test_steps import computation

POSTGRES = "{postgres: {dsn: 'host=x', table: t, mode: upsert%s}}"
DELTA = "{delta: {path: t, mode: upsert, fields: {user: str, day: int, n: int}%s}}"


@pytest.mark.parametrize("sink", [POSTGRES, DELTA])
def test_the_key_of_the_groups_need_not_be_written_twice(check: Any, sink: str) -> None:
    key = "{hits: {key: {user: user, day: \"trunc(ts, '1d')\"}}}"
    text = computation(input=key, aggregate="{n: count}") + "sinks: {out: %s}\n"
    [found] = check(text % (sink % "")).sinks
    assert found.options["by"] == ["user", "day"]
    assert found.key == KeySpec(KeyKind.FIELDS, ("user", "day"))
    [written] = check(text % (sink % ", by: [user]")).sinks
    assert written.options["by"] == ["user"]


def test_elsewhere_it_must_be_written(problems: Any) -> None:
    sink = "sinks: {out: %s}\n" % (POSTGRES % "")
    windowed = {"window": "{tumbling: 1m}", "input": "{hits: {key: user}}"}
    for fields in (windowed, {"input": "{hits: {key: all}}"}):
        found = problems(computation(aggregate="{n: count}", **fields) + sink)
        assert any("needs the option 'by'" in each for each in found), found
