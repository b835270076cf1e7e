"""Whatever stands in a file, a reader returns a value of its type or notes one problem with what to
write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NAME, NodeReader

READS: dict[str, tuple[Callable[[NodeReader, YamlNode], Any], Any, type | tuple[type, ...]]] = {
    "text": (lambda r, n: r.text(n, "x", "default"), "default", str),
    "number": (lambda r, n: r.number(n, 7, 1, 10), 7, int),
    "flag": (lambda r, n: r.flag(n, True), True, bool),
    "duration": (lambda r, n: r.duration(n, 5, 1), 5, int),
    "choice": (lambda r, n: r.choice(n, ["red", "blue"], "red"), "red", str),
    "name": (lambda r, n: r.name(n, "stream"), "", str),
    "object": (lambda r, n: r.object_name(n, "m:f"), "", str),
    "expression": (lambda r, n: r.expression(n, "a > 1"), "", str),
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)


def node(value: Any) -> YamlNode:
    if isinstance(value, list):
        return YamlNode([node(each) for each in value], 3, "field")
    return YamlNode(value, 3, "field", "" if value is None else str(value))


@pytest.mark.parametrize("name", READS)
@given(SCALARS | st.lists(SCALARS, max_size=2))
def test_a_value_of_its_type_or_one_problem_at_its_place(name: str, value: Any) -> None:
    read, _, kind = READS[name]
    reader = NodeReader(Problems("p.yaml"))
    assert isinstance(read(reader, node(value)), kind)
    assert len(reader.problems.found) <= 1
    assert all(sentence.startswith("p.yaml:3: field: ") for sentence in reader.problems.found)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "hits", "hits"),
        ("text", "5", "default"),
        ("number", "10", 10),
        ("number", "11", 7),
        ("number", "1.0", 7),
        ("flag", "false", False),
        ("flag", "no", True),
        ("duration", "2s", 2_000_000),
        ("duration", "2", 5),
        ("duration", "200y", 5),
        ("choice", "blue", "blue"),
        ("choice", "blu", "red"),
        ("name", "a-b_1", "a-b_1"),
        ("name", "a b", ""),
        ("object", "m.n:f", "m.n:f"),
        ("object", "m.n", ""),
        ("expression", "a > 1", "a > 1"),
        ("expression", "a >", ""),
        ("expression", "5", "5"),
    ],
)
def test_borders(name: str, text: str, value: Any) -> None:
    problems = Problems("p.yaml")
    tree = parse(f"field: {text}\n", problems)
    assert tree is not None
    read, default, _ = READS[name]
    assert read(NodeReader(problems), tree.value["field"]) == value
    assert bool(problems.found) is (value == default)


def test_a_field_that_is_missing_is_told_unless_it_is_only_misspelt() -> None:
    for fields, told in (({}, 1), ({"timestmp": node(1)}, 0), ({"other": node(1)}, 1)):
        reader = NodeReader(Problems("p.yaml"))
        reader.missing(YamlNode(fields, 1), "timestamp", "write one")
        assert len(reader.problems.found) == told


def test_unknown_fields_are_named_and_empty_ones_are_as_if_absent() -> None:
    reader = NodeReader(Problems("p.yaml"))
    found = reader.fields(
        YamlNode({"a": node(1), "b": node(None), "c": node(2)}, 1), ("a", "b"), "{a: 1}"
    )
    assert list(found) == ["a"]
    [problem] = reader.problems.found
    assert "unknown field 'c'" in problem


def test_a_name_may_become_a_folder() -> None:
    assert not any(NAME.fullmatch(name) for name in ("", ".", "..", "a/b", "a.b", "x" * 65, "ä"))
