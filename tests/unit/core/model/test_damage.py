from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel.core.model.damage import checked
from millwheel.errors import CorruptionError, InvariantError


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b'"\xff"', b"[1"])
def test_whatever_a_decoder_finds_wrong_is_one_error_that_says_what_was_meant(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=rf"^{len(data)} bytes are not a table: "):
        checked(msgspec.json.decode, "a table")(data)


def test_a_value_that_cannot_be_is_damage_too_and_a_mistake_of_ours_is_not() -> None:
    def raising(error: Exception) -> Any:
        def decode(data: bytes) -> None:
            raise error

        return decode

    with pytest.raises(CorruptionError):
        checked(raising(InvariantError("ranges overlap")), "a table")(b"")
    with pytest.raises(KeyError):
        checked(raising(KeyError("x")), "a table")(b"")


def test_good_bytes_are_what_they_are() -> None:
    assert checked(msgspec.json.decode, "a list")(b"[1, 2]") == [1, 2]
