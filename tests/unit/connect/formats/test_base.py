"""What all decoders have in common."""

from __future__ import annotations

from millwheel.connect.formats.base import Decoding, checked, decode_one_by_one
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.errors import RecordError


def test_messages_that_are_no_record_are_told_by_number() -> None:
    def one(message: bytes) -> int:
        if message == b"bad":
            raise RecordError("it is bad")
        return int(message)

    assert decode_one_by_one([b"1", b"bad", b"x", b"2"], one) == (
        [0, 3],
        [1, 2],
        {1: "it is bad", 2: "invalid literal for int() with base 10: b'x'"},
    )


def test_declared_fields_of_other_types_are_told_and_the_others_keep_their_numbers() -> None:
    found = checked(
        Decoding([1, 4, 5], [{"n": 1}, {"n": "x"}, {}], {0: "bad"}), FieldTypes({"n": "int"})
    )
    assert (found.indexes, found.records) == ([1, 5], [{"n": 1}, {}])
    assert found.wrong == {0: "bad", 4: "field 'n' is str 'x', but is declared as int"}
