"""Values and answers as clients get them."""

from __future__ import annotations

import pytest

from millwheel.engine.queries.rendering import get_reply, json_reply, value_text
from tests.unit.engine.queries.test_commands import ANSWER, ONE, parsed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, b"3"),
        (1.5, b"1.5"),
        ("é", "é".encode()),
        (b"x", b"x"),
        (True, b"1"),
        ([1, "a"], b'[1,"a"]'),
        (None, None),
    ],
)
def test_values_are_text(value: object, text: bytes | None) -> None:
    assert value_text(value) == text


def test_an_answer_is_a_value_an_object_or_a_document() -> None:
    assert parsed(get_reply(ONE, 2)) == "3"
    assert parsed(get_reply(ANSWER, 2)) == '{"n":3,"spend":1.5}'
    assert parsed(json_reply(ONE)).startswith('{"values":{"n":3},"covered_start":10,')
