from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from millwheel.savepoints.schemas import unreadable


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Farther(msgspec.Struct):
    x: float
    y: int = 0
    z: int = 0


class Demanding(msgspec.Struct):
    x: int
    z: int
    y: int = 0


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    x: int


class Row(msgspec.Struct, array_like=True):
    a: int


class LongerRow(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class LongRow(msgspec.Struct, array_like=True):
    a: int
    b: str


READABLE: list[tuple[Any, Any]] = [
    (int, int),
    (int, float),
    (int, int | None),
    (int, Any),
    (Point, Farther),
    (Point, Point),
    (list[int], list[float]),
    (dict[str, Point], dict[str, Farther]),
    (Literal["a", "b"], Literal["a", "b", "c"]),
    (Row, LongerRow),
    (Point | None, Farther | None),
    (tuple[int, str], tuple[float, str]),
]
UNREADABLE: list[tuple[Any, Any, str]] = [
    (int, str, "was integer and becomes string"),
    (float, int, "was number and becomes integer"),
    (int | None, int, "was null"),
    (Any, int, "was anything"),
    (Farther, Point, "its field 'x' was number"),
    (Point, Demanding, "gets the field 'z', which old values lack"),
    (Point, Strict, "lost the field 'y'"),
    (list[str], list[int], "an item of the value"),
    (dict[str, int], dict[str, str], "an entry of the value"),
    (dict[str, int], Point, "the value was object"),
    (Literal["a", "b"], Literal["a"], "may hold 'b'"),
    (Row, LongRow, "has more items now"),
    (int, str | None, "none of string or null can read that"),
]


def schema(of: Any) -> dict[str, Any]:
    return msgspec.json.schema(of)


@pytest.mark.parametrize(("old", "new"), READABLE)
def test_what_can_be_read_is_said_to_be(old: Any, new: Any) -> None:
    assert unreadable(schema(old), schema(new)) == ""


@pytest.mark.parametrize(("old", "new", "words"), UNREADABLE)
def test_what_cannot_be_read_is_said_with_the_place(old: Any, new: Any, words: str) -> None:
    assert words in unreadable(schema(old), schema(new))


class Tree(msgspec.Struct):
    name: str
    below: list[Tree] = []


def test_types_that_contain_themselves_come_to_an_end_with_a_reason() -> None:
    assert "too deeply" in unreadable(schema(Tree), {**schema(Tree), "title": "Other"})
