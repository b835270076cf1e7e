from __future__ import annotations

import enum
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest

from millwheel.control.savepoints.stored_forms import stored_form


class Tree(msgspec.Struct):
    name: str
    below: list[Tree] = []


class Row(msgspec.Struct, array_like=True, rename={"a": "first"}):
    a: int
    b: float = 0.5


class Pair(NamedTuple):
    a: int
    b: str = ""


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Unknown:
    """Of which msgspec knows nothing."""


@pytest.mark.parametrize(
    ("of", "form"),
    [
        (dict[int, str], ["map", {}, ["integer", {}], ["text", {}]]),
        (Annotated[int, msgspec.Meta(ge=0)], ["integer", {"ge": 0}]),
        (tuple[int, bytes], ["items", [["integer", {}], ["bytes", {}]]]),
        (frozenset[bool], ["set", {}, ["boolean", {}]]),
        (Color, ["enum", [["1", "RED"], ["2", "GREEN"]]]),
    ],
)
def test_a_form_says_what_a_schema_leaves_out(of: Any, form: list[Any]) -> None:
    assert stored_form(of) == {"form": form, "definitions": {}}


def test_a_class_that_contains_itself_is_a_reference_to_a_definition() -> None:
    made = stored_form(Tree)
    [(name, (kind, fields, _))] = made["definitions"].items()
    assert made["form"] == ["ref", name]
    assert kind == "fields"
    assert fields == [
        ["name", "name", ["text", {}], True],
        ["below", "below", ["list", {}, ["ref", name]], False],
    ]


def test_fields_that_are_stored_by_place_are_told_in_order_with_their_stored_names() -> None:
    for of, names in ((Row, [["a", "first"], ["b", "b"]]), (Pair, [["a", "a"], ["b", "b"]])):
        [(kind, fields, _)] = stored_form(of)["definitions"].values()
        assert kind == "positions"
        assert [field[:2] for field in fields] == names
        assert [field[3] for field in fields] == [True, False]


def test_a_type_that_is_not_known_is_told_by_its_name() -> None:
    form = stored_form(Unknown)["form"]
    assert form[0] == "python"
    assert "Unknown" in form[1]


def test_a_default_is_told_in_words_that_are_the_same_in_every_process() -> None:
    made = msgspec.defstruct(
        "Made", [("x", list, msgspec.field(default_factory=lambda: [1]))], omit_defaults=True
    )
    told = str(stored_form(made))
    assert "<lambda>" in told
    assert " at 0x" not in told
