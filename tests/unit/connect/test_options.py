"""Options of sources and sinks: read into a frozen form, refused with a sentence."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.connect.formats.options import FORMS, NoOptions, RegistryOptions
from millwheel.connect.options import Option, one_of, options_of, read_options
from millwheel.connect.sinks.files.open_files import RollOptions


class Form(msgspec.Struct, frozen=True):
    path: Annotated[str, Option("out")]
    size: Annotated[int, Option("5")] = 5
    tags: list[str] = []
    order: Annotated[
        str | dict[str, int],
        Option("up", ("up", "down"), refused={"left": "nothing moves to the side; write up"}),
    ] = "up"

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"option 'size' is {self.size}; write a number of at least 0")


def test_what_is_given_is_read_and_none_means_the_default() -> None:
    assert read_options("it", {"path": "x", "size": "7", "tags": None}, Form) == Form("x", 7)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "it needs the option 'path'; write for example path: out"),
        ({"path": None}, "it needs the option 'path'; write for example path: out"),
        (
            {"path": "x", "sise": 1},
            "it has no option 'sise'; did you mean 'size'? It has order, path, size, tags",
        ),
        ({"path": "x", "zzz": 1}, "it has no option 'zzz'; it has order, path, size, tags"),
        (
            {"path": "x", "size": "many"},
            "it: option 'size': expected int, got str; write for example size: 5",
        ),
        ({"path": "x", "tags": [1]}, "it: option 'tags': expected str, got int"),
        (
            {"path": "x", "order": "dwn"},
            "it: option 'order' is 'dwn' (did you mean 'down'?); write one of up, down",
        ),
        ({"path": "x", "order": "left"}, "it: option 'order': nothing moves to the side; write up"),
        ({"path": "x", "size": -1}, "it: option 'size' is -1; write a number of at least 0"),
    ],
)
def test_what_cannot_work_is_refused_with_one_sentence(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match="it") as raised:
        read_options("it", given, Form)
    assert str(raised.value) == sentence


def test_a_sentence_is_plain_without_its_links() -> None:
    option = Option("x", text="`a`, with [formats](formats.md#csv) and `(b)`")
    assert option.plain() == "`a`, with formats and `(b)`"


def test_a_choice_names_the_closest_one() -> None:
    one_of("format", "csv", ["csv", "jsonl"])
    with pytest.raises(
        ValueError,
        match=r"option 'format' is 'cvs' \(did you mean 'csv'\?\); write one of csv, jsonl",
    ):
        one_of("format", "cvs", ["csv", "jsonl"])


@pytest.mark.parametrize(
    "form",
    [
        *(
            form
            for known in (SOURCES, SINKS, LOOKUPS)
            for row in known.values()
            if (form := row.form())
        ),
        *dict.fromkeys(form for form in FORMS.values() if form is not NoOptions),
        RegistryOptions,
        RollOptions,
    ],
)
def test_every_option_has_a_sentence_an_example_and_choices_that_its_default_is_one_of(
    form: type,
) -> None:
    declared = options_of(form)
    assert [name for name, option in declared.items() if not (option.text and option.example)] == []
    for field in msgspec.structs.fields(form):
        if (choices := declared[field.name].choices) and isinstance(field.default, str):
            assert field.default in choices
