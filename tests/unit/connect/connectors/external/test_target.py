from __future__ import annotations

import pytest

from millwheel.connect.connectors.external.target import Owner, RowsRefusedError
from millwheel.errors import FencedError


def test_a_newer_token_shuts_an_owner_out_and_its_own_and_older_ones_do_not() -> None:
    owner = Owner("root/s", 2)
    owner.admits(1)
    owner.admits(2)
    with pytest.raises(FencedError):
        owner.admits(3)


def test_a_refusal_tells_the_words_of_the_target() -> None:
    assert str(RowsRefusedError({1: "too long", 4: "too late"})) == "too long; too late"
