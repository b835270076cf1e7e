from __future__ import annotations

import re

import pytest

from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.model.times import duration_us
from millwheel.language.schema.words import WORDS
from millwheel.language.spec.reading.reader import NAME


@pytest.mark.parametrize("text", ["a:b", "pkg.a:B.c", "a", ":b", "1a:b"])
def test_objects_are_named_as_the_reader_wants_it(text: str) -> None:
    assert bool(re.search(WORDS["object_name"]["pattern"], text)) == bool(
        OBJECT_NAME.fullmatch(text)
    )


@pytest.mark.parametrize("text", ["a", "a-b_C9", "a b", "", "x" * 65])
def test_names_are_those_of_the_reader(text: str) -> None:
    assert bool(re.search(WORDS["name"]["pattern"], text)) == bool(NAME.fullmatch(text))


@pytest.mark.parametrize("text", ["10s", "1h30m", "0.5s", "2 m"])
def test_durations_of_the_reader_are_durations(text: str) -> None:
    assert duration_us(text)
    assert re.search(WORDS["duration"]["pattern"], text)
