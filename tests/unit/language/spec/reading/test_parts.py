"""A field that is declared once is read with a sentence for every mistake, and stands in the
schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from millwheel.language.schema import words
from millwheel.language.spec.parts.joins import ENRICH
from millwheel.language.spec.parts.lookups import LOOKUP
from millwheel.language.spec.parts.steps import STEP
from millwheel.language.spec.pipelines import PIPELINE
from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.parts import (
    MERGED,
    ByteSize,
    Choice,
    Duration,
    Entries,
    Field,
    FilePart,
    Flag,
    Items,
    Number,
    Own,
    Percent,
    Share,
    Short,
    Text,
)
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Toy:
    n: int = 3
    size: int = 64
    wait_us: int | None = 5
    on: bool = True
    share: float = 0.5
    color: Color = Color.RED
    names: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    x: int = 0
    y: int = 0
    late: float = 0.1
    own: str = ""


POINT = FilePart(
    "{x: 1, y: 2}",
    {"x": Field("x", Number(1, 9), needed="write x: 1"), "y": Field("y", Number(1, 9))},
)
TOY = FilePart(
    "{count: 4}",
    {
        "count": Field("n", Number(1, 10)),
        "bytes": Field("size", ByteSize(1, 1 << 20)),
        "wait": Field("wait_us", Duration(2, never=True)),
        "on": Field("on", Flag()),
        "share": Field("share", Share()),
        "color": Field(
            "color",
            Choice(("red", "blue"), Color, {"green": "is for grass; write red"}),
            "its color",
        ),
        "names": Field("names", Items(Text("a"))),
        "sizes": Field("sizes", Entries(Number(1, 10), "{a: 1}")),
        "at": Field(MERGED, Short("x", POINT)),
        "late": Field("late", Percent("write 10%")),
        "own": Field("own", Own((Flag(), "word", None), lambda reader, node: node.text)),
    },
    Toy(),
)
SCHEMA = Draft202012Validator({**words.part(TOY), "$defs": {**words.WORDS, "word": words.TEXT}})


def read(part: FilePart, text: str) -> tuple[dict[str, Any], list[str], Any]:
    problems = Problems("p.yaml")
    tree = parse(text, problems)
    assert tree is not None
    return part.read(NodeReader(problems), tree), list(problems.found), tree.data()


def test_what_is_given_becomes_the_attributes() -> None:
    text = "{count: 4, bytes: 2kB, wait: never, on: false, share: 1, color: blue}"
    values, problems, data = read(TOY, text)
    assert (Toy(**values), problems) == (Toy(4, 2_000, None, False, 1.0, Color.BLUE), [])
    assert SCHEMA.is_valid(data)
    assert TOY.read(NodeReader(Problems("p.yaml")), None) == {}


def test_lists_maps_and_short_forms_become_attributes_too() -> None:
    text = "{names: a, sizes: {b: 2}, at: 3, late: 5%, own: yes}"
    values, problems, data = read(TOY, text)
    assert (values, problems) == (
        {"names": ("a",), "sizes": {"b": 2}, "x": 3, "late": 0.05, "own": "yes"},
        [],
    )
    assert SCHEMA.is_valid(data)
    assert read(TOY, "{names: [a, b], at: {x: 1, y: 2}}")[0] == {
        "names": ("a", "b"),
        "x": 1,
        "y": 2,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{count: 11}", "count: must be a whole number from 1 to 10, not 11"),
        (
            "{bytes: 64}",
            "bytes: must be a size, not 64; write a number and a unit, such as 64kB or 16MiB",
        ),
        (
            "{wait: 7}",
            (
                "wait: must be a duration, not 7; write a number and a unit, such as 500ms, 10s, 2m"
                " or 7d"
            ),
        ),
        ("{on: maybe}", "on: must be true or false, not 'maybe'"),
        (
            "{share: 2}",
            "share: must be a share from 0 to 1, such as 0.001 for one of a thousand, not 2",
        ),
        ("{color: blu}", "color: must be one of red, blue, not 'blu'; did you mean 'blue'?"),
        ("{color: green}", "color: is for grass; write red"),
        ("{names: [a, 1]}", "names[1]: must be text, not 1; write for example a"),
        ("{sizes: {a: 11}}", "sizes.a: must be a whole number from 1 to 10, not 11"),
        ("{at: 10}", "at: must be a whole number from 1 to 9, not 10"),
        ("{at: {y: 2}}", "at.x: is missing; write x: 1"),
        ("{late: 1}", "late: must be a share from 0% to below 100%, such as 10%, not 1; write 10%"),
        ("{cout: 4}", "cout: unknown field 'cout'; did you mean 'count'?"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_keeps_the_default(text: str, sentence: str) -> None:
    values, [problem], data = read(TOY, f"\n{text}")
    assert problem.startswith(f"p.yaml:2: {sentence}")
    assert Toy(**{name: value for name, value in values.items() if name != "y"}) == Toy()
    assert not SCHEMA.is_valid(data)


def parts_below(kind: Any) -> Iterator[FilePart]:
    """All parts of the file that are declared in a kind."""
    if isinstance(kind, FilePart):
        yield kind
        for each in kind.fields.values():
            yield from parts_below(each.kind)
    elif isinstance(kind, Items | Entries):
        yield from parts_below(kind.each)
    elif isinstance(kind, Short):
        yield from parts_below(kind.part)
    elif isinstance(kind, Own):
        for shape in kind.shapes:
            yield from parts_below(shape)


PARTS = [part for top in (PIPELINE, ENRICH, LOOKUP, STEP) for part in parts_below(top)]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.example)
def test_every_field_has_a_sentence_and_an_attribute_that_exists(part: FilePart) -> None:
    for name, each in part.fields.items():
        assert each.text, name
        if part.defaults is not None and each.attribute not in ("", MERGED):
            assert hasattr(part.defaults, each.attribute)


@pytest.mark.parametrize(
    "part",
    [part for part in PARTS if all(each.attribute for each in part.fields.values())],
    ids=lambda part: part.example,
)
def test_the_example_of_every_part_is_right(part: FilePart) -> None:
    values, problems, _ = read(part, part.example)
    assert problems == []
    assert values or {"global", "of"} & part.fields.keys()
