"""Change events as values and retractions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millwheel.connect.formats.debezium import DebeziumMessages, DebeziumRows, position_of, row_key
from millwheel.connect.formats.lines import JsonMessages
from millwheel.connect.formats.options import DebeziumOptions
from millwheel.core.pipeline.table_changes import KEY_FIELD, IdentifiedBy, LogPosition, split

OLD, NEW = {"id": 1, "n": 2}, {"id": 1, "n": 3}


def decoder(fields: dict[str, str] | None = None, key: Any = (), **add: str) -> DebeziumMessages:
    return DebeziumMessages(JsonMessages(), DebeziumOptions(add=add, key=key), fields)


def event(op: Any, before: Any = None, after: Any = None, **more: Any) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 9, **more}).encode()


def told(changes: list[Any]) -> list[tuple[str, Any]]:
    return [("-" if change.back else "+", row) for change, row in map(split, changes)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_happened_to_rows_becomes_values_and_retractions(wrapped: bool) -> None:
    messages = [event("r", None, OLD), event("c", None, OLD), event("u", OLD, NEW), event("d", NEW)]
    if wrapped:
        messages = [
            b'{"schema": {"type": "struct"}, "payload": %s}' % message for message in messages
        ]
    found = decoder().decode(messages)
    assert found.indexes == [0, 1, 2, 3]
    assert [told(changes) for changes in found.records] == [
        [("+", OLD)],
        [("+", OLD)],
        [("-", OLD), ("+", NEW)],
        [("-", NEW)],
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (event("u", None, NEW), "an update without 'before': .*REPLICA IDENTITY FULL"),
        (event("d"), "a delete without 'before': .*or name it"),
        (event("c"), "an insert whose 'after' is not a row"),
        (event("u", OLD, 3), "an update whose 'after' is not a row"),
        (event("t", source={"table": "users"}), r"op 't' \(users\): the table was truncated"),
        (event("m"), "a message that is not a row"),
        (event("x"), "op 'x'; known are c"),
        (event(["c"]), "known are c"),
        (b'{"id": 1}', "no field 'op'"),
        (event("c", None, {"id": "x"}), "field 'id' is str 'x', but is declared as int"),
        (event("c", None, {"__retraction__": 1}), "marks changes here"),
        (event("c", None, {"__key__": 1}), "marks changes here"),
    ],
)
def test_an_event_that_tells_too_little_is_told_and_others_are_read(
    message: bytes, reason: str
) -> None:
    found = decoder({"id": "int"}).decode([message, event("c", None, NEW)])
    assert found.indexes == [1]
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found.wrong[0])


def test_parts_of_the_envelope_become_fields() -> None:
    found = decoder(changed="ts_ms", table="source.table", none="a.b").decode(
        [event("u", OLD, NEW, source={"table": "users"})]
    )
    extra = {"changed": 9, "table": "users", "none": None}
    assert told(found.records[0]) == [("-", {**OLD, **extra}), ("+", {**NEW, **extra})]


def test_changes_are_written_as_inserts_and_deletes_and_read_back() -> None:
    written = [DebeziumRows().encode(OLD, False, 5_000), DebeziumRows().encode(OLD, True, 6_000)]
    assert json.loads(written[1]) == {"before": OLD, "after": None, "op": "d", "ts_ms": 6}
    assert [told(changes) for changes in decoder().decode(written).records] == [
        [("+", OLD)],
        [("-", OLD)],
    ]


SOURCE = {"name": "shop", "db": "d", "schema": "public", "table": "users", "lsn": 7, "ts_ms": 5}


def keys_of(found: Any) -> list[list[str]]:
    return [[value[KEY_FIELD] for value in changes] for changes in found.records]


def test_a_row_is_known_by_the_key_of_its_message_whatever_schema_that_comes_with() -> None:
    messages = [
        event("c", None, OLD, source=SOURCE),
        event("u", None, NEW, source=SOURCE),
        event("d", source=SOURCE),
    ]
    keys = [b'{"id": 1}', b'{"schema": {"v": 2}, "payload": {"id": 1}}', b'{"id":1}']
    found = decoder().decode_changes(messages, keys)
    assert not found.wrong, "with a key neither an update nor a delete needs the former row"
    assert len({key for each in keys_of(found) for key in each}) == 1
    assert [told(changes) for changes in found.records] == [[("+", OLD)], [("+", NEW)], [("-", {})]]
    other = decoder().decode_changes(
        [event("c", None, OLD, source={**SOURCE, "table": "dogs"})], keys[:1]
    )
    assert keys_of(other)[0] != keys_of(found)[0], (
        "a topic may have several tables, whose keys are equal"
    )


def test_a_key_in_bytes_is_that_key_under_any_schema_and_a_number_keeps_its_digits() -> None:
    assert row_key(b"\0\0\0\0\x07\x02", 5) == row_key(b"\0\0\0\0\x08\x02", 5)
    assert row_key((1 << 40).to_bytes(8, "big")) != row_key((1 << 41).to_bytes(8, "big"))
    assert row_key(None) is None


def test_the_pipeline_may_name_the_key() -> None:
    found = decoder(key="id").decode_changes(
        [event("u", OLD, NEW), event("c", None, {"n": 1})], [b"a", b"b"]
    )
    assert len({*keys_of(found)[0]}) == 1
    assert "its row has no 'id'" in found.wrong[1]


def test_rows_of_a_table_without_a_key_stay_in_order_and_are_known_by_all_of_them() -> None:
    found = decoder().decode_changes(
        [event("u", OLD, NEW, source=SOURCE), event("d", OLD, source=SOURCE)], [None] * 2
    )
    assert len({key for each in keys_of(found) for key in each}) == 1
    assert {split(value)[0].identified_by for each in found.records for value in each} == {
        IdentifiedBy.ROW
    }


def test_events_of_no_connector_are_taken_in_the_order_of_their_keys_or_partitions() -> None:
    found = decoder().decode_changes(
        [event("c", None, OLD), event("u", OLD, NEW)], [b"eu", None], "t/0"
    )
    assert {split(value)[0].identified_by for each in found.records for value in each} == {
        IdentifiedBy.NOTHING
    }
    (first,), (second, third) = keys_of(found)
    assert (first == second, second == third) == (False, True)
    assert (
        decoder().decode_changes([event("c", None, OLD)], [None], "t/1").records[0][0][KEY_FIELD]
        != second
    )


def test_a_former_row_that_lacks_columns_is_none() -> None:
    partial = event("u", {"id": 1, "n": None}, NEW, source=SOURCE)
    assert told(decoder().decode_changes([partial], [b"1"]).records[0]) == [("+", NEW)]


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ({"lsn": 7, "ts_ms": 5}, LogPosition("lsn", (7, 1), 5)),
        ({"lsn": "7"}, LogPosition("lsn", (7, 1))),
        (
            {"file": "bin.000012", "pos": 4, "row": 2, "server_id": 3},
            LogPosition("binlog 3", (12, 4, 2, 1)),
        ),
        (
            {"commit_lsn": "00:1", "change_lsn": "00:0"},
            LogPosition("lsn of a change", ("00:1", "00:0", 0, 1)),
        ),
        ({"lsn": None, "ts_ms": 5}, LogPosition(at_ms=5)),
        ({}, LogPosition(at_ms=9)),
        (None, LogPosition()),
    ],
)
def test_the_position_of_an_event_is_that_in_the_log_of_its_database(
    source: Any, position: LogPosition
) -> None:
    assert position_of({"source": source, "ts_ms": 9}, 1) == position
