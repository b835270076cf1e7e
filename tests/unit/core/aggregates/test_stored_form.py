from __future__ import annotations

import msgspec
import pytest

from millwheel.core.aggregates.families.distinct_values import Distinct
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.errors import CorruptionError


def test_sets_anywhere_in_plain_data_come_back_and_the_rest_is_as_it_was() -> None:
    made = Distinct()
    made.update([1, 2, "x", (3, "y")])
    plain, (found, empty) = WHOLE.decode(WHOLE.encode([{"a": [1.5, None]}, [made, Distinct()]]))
    assert plain == {"a": [1.5, None]}
    assert (found == made, len(found), len(empty)) == (True, 4, 0)


def test_what_is_neither_plain_nor_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="type object is unsupported"):
        WHOLE.encode([object()])


def test_an_unknown_extension_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="extension 9"):
        WHOLE.decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"")))
