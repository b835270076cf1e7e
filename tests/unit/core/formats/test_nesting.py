"""How deeply values may nest."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.core.formats.codec import encode_value
from millwheel.core.formats.nesting import MOST_NESTING, all_nest_little, nests_too_deeply


def deep(levels: int, around: Any = None) -> Any:
    value: Any = around
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("levels", [0, 1, 50, MOST_NESTING - 1, MOST_NESTING])
def test_values_up_to_the_limit_are_taken(levels: int) -> None:
    assert not nests_too_deeply(encode_value(deep(levels)))


@pytest.mark.parametrize("levels", [MOST_NESTING + 1, MOST_NESTING + 50])
def test_values_beyond_are_not(levels: int) -> None:
    assert nests_too_deeply(encode_value(deep(levels)))


def test_a_value_with_many_parts_is_not_deep() -> None:
    assert not nests_too_deeply(encode_value([[n] for n in range(5 * MOST_NESTING)]))
    assert not nests_too_deeply("ü".encode() * 10 * MOST_NESTING)
    assert not nests_too_deeply(encode_value(deep(400, [[n] for n in range(1_000)])))


def test_a_value_that_cannot_be_decoded_is_deep() -> None:
    assert nests_too_deeply(b"\x91" * 100_000 + b"\xc0")


def test_shallow_values_are_known_together() -> None:
    assert all_nest_little([{"a": [1, {"b": 2}]}] * 100)
    assert not all_nest_little([1, deep(MOST_NESTING + 1)])
