"""Change events as values and retractions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millwheel import as_retraction
from millwheel.formats.debezium import DebeziumMessages, DebeziumRows
from millwheel.formats.lines import JsonMessages
from millwheel.formats.options import DebeziumOptions

OLD, NEW = {"id": 1, "n": 2}, {"id": 1, "n": 3}


def decoder(fields: dict[str, str] | None = None, **add: str) -> DebeziumMessages:
    return DebeziumMessages(JsonMessages(), DebeziumOptions(add=add), fields)


def event(op: Any, before: Any = None, after: Any = None, **more: Any) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "ts_ms": 9, **more}).encode()


def told(changes: list[Any]) -> list[tuple[str, Any]]:
    backs = [as_retraction(change) for change in changes]
    return [("+", change) if back is None else ("-", back.value) for change, back in zip(changes, backs, strict=True)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_happened_to_rows_becomes_values_and_retractions(wrapped: bool) -> None:
    messages = [event("r", None, OLD), event("c", None, OLD), event("u", OLD, NEW), event("d", NEW)]
    if wrapped:
        messages = [b'{"schema": {"type": "struct"}, "payload": %s}' % message for message in messages]
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
        (event("d"), "a delete without 'before'"),
        (event("c"), "an insert whose 'after' is no row"),
        (event("u", OLD, 3), "an update whose 'after' is no row"),
        (event("t", source={"table": "users"}), r"op 't' \(users\): the table was truncated"),
        (event("m"), "a message that is no row"),
        (event("x"), "op 'x'; known are c"),
        (event(["c"]), "known are c"),
        (b'{"id": 1}', "no field 'op'"),
        (event("c", None, {"id": "x"}), "field 'id' is str 'x', but is declared as int"),
        (event("c", None, {"__retraction__": 1}), "marks retractions here"),
    ],
)
def test_an_event_that_tells_too_little_is_told_and_others_are_read(message: bytes, reason: str) -> None:
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
    assert [told(changes) for changes in decoder().decode(written).records] == [[("+", OLD)], [("-", OLD)]]
