"""Committables of sinks with a layout."""

from __future__ import annotations

import pytest

from millwheel.connect.sinks.files.pieces import Piece, Pieces, pack, unpack
from millwheel.errors import CorruptionError


def test_what_was_packed_is_unpacked() -> None:
    told = Pieces(3, [Piece("a=1/part-x-00000003.jsonl", "part-x.tmp", 1, 3, 7, b"{}\n")])
    assert unpack(pack(told)) == told


@pytest.mark.parametrize("final", ["", "../x", "a//b", "/x", "a/./b"])
def test_names_that_lead_elsewhere_are_damage(final: str) -> None:
    data = pack([3, [[final, "t", 1, 3, 7, b""]]])
    with pytest.raises(CorruptionError):
        unpack(data)
