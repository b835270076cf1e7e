"""``enrich: {lookup: …}``."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.pipeline.keys import KeyKind
from millwheel.language.spec.parts.sinks import read_sink
from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader

HEAD = """
pipeline: p
streams:
  orders: {source: {injection: {}}, timestamp: at, id: id}
computations:
  priced:
    input: {orders: {key: user}}
    output: out
"""
TAIL = "sinks: {out: {stdout: {}}}\n"
REDIS = 'lookup: {redis: {url: "redis://h", key: "item:{item}"}}'


def text(*fields: str) -> str:
    return HEAD + "".join(f"    {field}\n" for field in fields) + TAIL


def test_the_whole_of_it_is_read(check: Any) -> None:
    options = (
        "fields: {cents: price}, by: [item], missing: drop, cache: {size: 5, ttl: 1m, absent:"
        " false}, batch: 7"
    )
    [computation] = check(text(f"enrich: {{{REDIS}, {options}}}")).computations
    lookup = computation.work
    assert lookup is not None
    assert (lookup.kind, lookup.fields, lookup.by, lookup.missing.value) == (
        "redis",
        {"cents": "price"},
        ("item",),
        "drop",
    )
    assert (lookup.cache_size, lookup.cache_ttl_us, lookup.cache_absent, lookup.batch) == (
        5,
        60_000_000,
        False,
        7,
    )


def test_without_options_there_is_no_cache_and_missing_answers_are_kept(check: Any) -> None:
    [computation] = check(text(f"enrich: {{{REDIS}, as: info}}")).computations
    lookup = computation.work
    assert lookup is not None
    assert (lookup.name, lookup.missing.value, lookup.cache_size, lookup.batch) == (
        "info",
        "keep",
        0,
        10_000,
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (f"enrich: {{{REDIS}}}", "write either as: NAME"),
        (f"enrich: {{{REDIS}, as: a, fields: [b]}}", "write either as: NAME"),
        (f"enrich: {{{REDIS}, as: user}}", "'user' would replace the key of the records"),
        (f"enrich: {{{REDIS}, as: a, cache: {{size: 5}}}}", "a cache needs both a size and a ttl"),
        ("enrich: {lookup: {redsi: {}}, as: a}", "redis"),
    ],
)
def test_what_cannot_work_is_told(problems: Any, fields: str, message: str) -> None:
    assert any(message in problem for problem in problems(text(fields)))


def test_a_lookup_has_neither_windows_nor_an_order(problems: Any) -> None:
    found = problems(text(f"enrich: {{{REDIS}, as: a}}", "window: {tumbling: 1m}"))
    assert any("a lookup handles one record at a time" in problem for problem in found)


# sinks.py


def read(text: str, stream: str = "out") -> tuple[object, list[str]]:
    problems = Problems("p.yaml")
    tree = parse(text, problems)
    assert tree is not None
    return read_sink(NodeReader(problems), stream, tree, "/home"), list(problems.found)


def test_rows_that_replace_each_other_come_to_one_shard_by_what_identifies_them() -> None:
    for text, kind, names in (
        ("files: {path: out, mode: upsert, by: user}", KeyKind.FIELD, ("user",)),
        ("files: {path: out, mode: upsert, by: [user, day]}", KeyKind.FIELDS, ("user", "day")),
        ("files: {path: out}", KeyKind.RECORD, ()),
        ("files: {path: out, by: [1]}", KeyKind.RECORD, ()),
    ):
        (spec, _), problems = read(text)  # type: ignore[misc]
        assert (spec.key.kind, spec.key.names, problems) == (kind, names, [])
        assert spec.options["path"] == "/home/out"
        assert spec.where == "p.yaml:1"


def test_a_sink_that_nobody_knows_and_a_stream_that_cannot_be_are_told() -> None:
    assert read("fils: {path: x}")[0] is None
    [problem] = read("fils: {path: x}")[1]
    assert "unknown sink 'fils'; did you mean 'files'?" in problem
    assert "cannot be the name of a stream" in read("stdout: {}", "a b")[1][0]
