from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.connectors.redis.templates import template
from millwheel.errors import RecordError


@pytest.mark.parametrize(
    ("text", "value", "key"),
    [
        ("ctr:{ad_id}", {"ad_id": 7}, "ctr:7"),
        ("{a}{b}", {"a": "x", "b": True}, "xtrue"),
        ("{{{tag}}}:{n + 1}", {"tag": "t", "n": 1.5}, "{t}:2.5"),
        ("all", {}, "all"),
    ],
)
def test_expressions_in_braces_are_filled_in(text: str, value: Any, key: str) -> None:
    assert template(text).of(value) == key


def test_fields_are_told_if_there_is_nothing_else() -> None:
    assert template("{a}:{b}").fields() == ("a", "b")
    assert template("{a}:{lower(b)}").fields() == ()


@pytest.mark.parametrize(
    ("text", "words"), [("a{b", "single"), ("a}b", "single"), ("{a b}", "expression")]
)
def test_what_is_no_template_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        template(text)


@pytest.mark.parametrize(
    ("value", "words"), [({"a": None}, "a is null"), ({"a": [1]}, "a is a list"), ({}, "no field")]
)
def test_a_part_without_a_text_concerns_the_record(value: Any, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        template("x{a}").of(value)
