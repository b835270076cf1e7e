"""Plain values to Protobuf messages and back, and the field of what does not fit."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.formats.options import ProtobufOptions
from millwheel.connect.formats.protobuf_messages import message_class
from millwheel.connect.formats.protobuf_values import MessageReading, MessageWriting
from millwheel.errors import RecordError
from tests.fakes.protobuf import FULL, write_descriptors


@pytest.fixture
def click(tmp_path: Path) -> Any:
    return message_class(ProtobufOptions("shop.Click", write_descriptors(tmp_path)), str(tmp_path))


def test_values_come_back_as_they_were(click: Any) -> None:
    message = MessageWriting(click, True).message(FULL)
    assert (
        MessageReading(click.DESCRIPTOR).plain(click.FromString(message.SerializeToString()))
        == FULL
    )


def test_fields_that_are_not_set_are_none_or_their_default(click: Any) -> None:
    found = MessageReading(click.DESCRIPTOR).plain(click())
    assert {name for name, value in found.items() if value is None} == {
        "tag",
        "timestamp",
        "duration",
        "struct",
        "int64value",
    }
    assert (found["ad"], found["name"], found["kind"], found["numbers"], found["counts"]) == (
        0,
        "",
        "VIEW",
        [],
        {},
    )


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"ad": "x"}, "field 'ad' is str 'x', but the Protobuf message requires int64"),
        ({"ad": True}, "field 'ad' is bool True"),
        ({"ad": 2**63}, "requires int64"),
        ({"ad": 1.5}, "requires int64"),
        ({"ok": 1}, "requires bool"),
        ({"raw": "x"}, "requires bytes"),
        ({"name": b"x"}, "requires string"),
        ({"name": "\ud800"}, "requires string"),
        ({"kind": "SELL"}, "requires one of VIEW, BUY"),
        ({"numbers": 3}, "field 'numbers' is int 3"),
        ({"numbers": [1, "x"]}, "field 'numbers'"),
        ({"tag": {"within": {"text": 3}}}, r"field 'tag\.within\.text' is int 3"),
        (
            {"tags": [{}, {"more": 1}]},
            r"field 'tags\[1\]\.more' is not in the message shop\.Click\.Tag",
        ),
        ({"tag": 3}, r"requires a message shop\.Click\.Tag"),
        ({"counts": {"a": "x"}}, "field 'counts'"),
        ({"counts": 3}, "requires a map"),
        ({"timestamp": "x"}, "field 'timestamp' is str 'x'"),
        ({"timestamp": 2**90}, "field 'timestamp'"),
        ({"struct": {"a": object()}}, "field 'struct'"),
        ({"struct": 3}, "field 'struct'"),
        ({"int64value": "x"}, "field 'int64value'"),
        ({"more": 1}, "field 'more' is not in the message shop.Click"),
        (3, "field '' is int 3"),
    ],
)
def test_what_does_not_fit_is_told_with_the_path_of_its_field(
    click: Any, row: Any, told: str
) -> None:
    with pytest.raises(RecordError, match=told):
        MessageWriting(click, True).message(row)


def test_fields_may_be_ignored_and_none_is_not_set(click: Any) -> None:
    assert MessageWriting(click, False).message({"ad": 1, "more": 1, "name": None}) == click(ad=1)


def test_a_decimal_is_written_where_all_of_its_digits_have_room(click: Any) -> None:
    found = MessageWriting(click, True).message({"name": Decimal("10.50"), "ad": Decimal("7.00")})
    assert (found.name, found.ad) == ("10.50", 7)
    for name, value in (("x", "0.5"), ("ad", "7.5"), ("ok", "1")):
        with pytest.raises(RecordError, match=f"field '{name}' is Decimal"):
            MessageWriting(click, True).message({name: Decimal(value)})
