"""Options of sources and sinks: read into a frozen form, refused with a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel.options import one_of, read_options


class Form(msgspec.Struct, frozen=True):
    path: str
    size: int = 5
    tags: list[str] = []

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"option 'size' is {self.size}; write a number of at least 0")


EXAMPLES = {"path": "path: out", "size": "size: 5"}


def test_what_is_given_is_read_and_none_means_the_default() -> None:
    assert read_options("it", {"path": "x", "size": "7", "tags": None}, Form, EXAMPLES) == Form("x", 7)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "it needs the option 'path'; write for example path: out"),
        ({"path": None}, "it needs the option 'path'; write for example path: out"),
        ({"path": "x", "sise": 1}, "it has no option 'sise'; did you mean 'size'? It has path, size, tags"),
        ({"path": "x", "zzz": 1}, "it has no option 'zzz'; it has path, size, tags"),
        ({"path": "x", "size": "many"}, "it: option 'size': expected int, got str; write for example size: 5"),
        ({"path": "x", "tags": [1]}, "it: option 'tags': expected str, got int"),
        ({"path": "x", "size": -1}, "it: option 'size' is -1; write a number of at least 0"),
    ],
)
def test_what_cannot_work_is_refused_with_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match="it") as raised:
        read_options("it", given, Form, EXAMPLES)
    assert str(raised.value) == sentence


def test_a_choice_names_the_closest_one() -> None:
    one_of("format", "csv", ["csv", "jsonl"])
    with pytest.raises(ValueError, match=r"option 'format' is 'cvs' \(did you mean 'csv'\?\); write one of csv, jsonl"):
        one_of("format", "cvs", ["csv", "jsonl"])
