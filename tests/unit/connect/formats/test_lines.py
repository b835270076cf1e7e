"""JSON, CSV, text and bytes in messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.formats.lines import (
    CsvMessageRows,
    CsvMessages,
    JsonMessages,
    JsonRows,
    TextMessages,
    TextRows,
)
from millwheel.connect.formats.options import CsvOptions, TextOptions
from millwheel.errors import RecordError

COLUMNS = CsvOptions(["id", "text"], ";")


def test_json_that_is_no_object_spoils_no_other_message() -> None:
    found = JsonMessages().decode(
        [b'{"n": 1}', b"{bad", b"  ", b'{"n":\n2}', b"[1]", b'{"n": 3}{}']
    )
    assert (found.indexes, found.records) == ([0, 3], [{"n": 1}, {"n": 2}])
    assert set(found.wrong) == {1, 2, 4, 5}


def test_a_csv_message_is_one_record_whatever_stands_beside_it() -> None:
    decoder = CsvMessages(COLUMNS, {"id": "int"})
    found = decoder.decode(
        [b"1;a", b'2;"open', b'3;"a\nb"', b"4", b"x;y", b"5;b\r\n", b"6;\xff", b"7;a\n8;b", b";z"]
    )
    assert (found.indexes, found.records) == (
        [0, 2, 5, 8],
        [
            {"id": 1, "text": "a"},
            {"id": 3, "text": "a\nb"},
            {"id": 5, "text": "b"},
            {"id": None, "text": "z"},
        ],
    )
    assert found.wrong[3] == "1 fields where there are 2 columns"
    assert found.wrong[4] == "field 'id' is 'x', but is declared as int"
    assert set(found.wrong) == {1, 3, 4, 6, 7}


def test_csv_messages_that_are_sound_are_read_together_as_they_are_one_by_one() -> None:
    messages, decoder = (
        [b"%d;t%d" % (n, n) for n in range(50)] + [b";"],
        CsvMessages(COLUMNS, {"id": "int"}),
    )
    alone = [decoder.decode([message, b'x;"']).records[0] for message in messages]
    assert decoder.decode(messages) == (list(range(51)), alone, {})


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0")),
    st.integers(-(2**63), 2**63 - 1),
)
def test_csv_is_read_as_it_was_written(text: str, number: int) -> None:
    written = CsvMessageRows(COLUMNS).encode({"id": number, "text": text, "more": 1})
    assert CsvMessages(COLUMNS, {"id": "int"}).decode([written]).records == [
        {"id": number, "text": text}
    ]


def test_csv_messages_need_names_for_their_fields() -> None:
    with pytest.raises(ValueError, match="option 'format': csv needs 'columns'"):
        CsvMessages(CsvOptions())
    with pytest.raises(ValueError, match="csv needs 'columns'"):
        CsvMessageRows(CsvOptions())


def test_text_and_bytes_are_one_field_both_ways() -> None:
    text, raw = TextOptions("line"), TextOptions()
    assert TextMessages(text, False).decode([b"caf\xc3\xa9", b"\xff"]).records == [{"line": "café"}]
    assert TextMessages(raw, True).decode([b"\xff"]).records == [{"value": b"\xff"}]
    assert TextRows(text, False).encode({"line": "é"}) == "é".encode()
    assert TextRows(raw, True).encode({"value": b"\xff"}) == b"\xff"
    for encoder, row in (
        (TextRows(text, False), {"line": 1}),
        (TextRows(raw, True), {"value": "x"}),
    ):
        with pytest.raises(RecordError, match="can be a message"):
            encoder.encode(row)
    with pytest.raises(RecordError, match="UTF-8"):
        TextRows(text, False).encode({"line": "\ud800"})


def test_a_json_message_has_no_line_end() -> None:
    assert JsonRows().encode({"a": [1, "x\n"]}) == b'{"a":[1,"x\\n"]}'
