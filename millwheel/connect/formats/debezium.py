"""Change events of databases, as Debezium writes them: changes of rows, for the table behind the
source.

An event has the former row (``before``) and the new one (``after``). An insert and a row of the
snapshot have only a new row, a delete only a former one, an update both. A row is identified by the
fields that ``key`` names, by the key of a connector's message, or, without either, by all of
its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from millwheel.connect.formats.base import Decoding, MessageDecoder
from millwheel.connect.formats.options import DebeziumOptions
from millwheel.connect.formats.row_lines import json_lines
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.instants.decimals import without_decimals
from millwheel.core.pipeline.table_changes import (
    CHANGE_FIELD,
    KEY_FIELD,
    ChangePart,
    IdentifiedBy,
    LogPosition,
)
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.errors import RecordError

_OPS = "c (insert), r (row of a snapshot), u (update), d (delete)"
_SCHEMA_ID = 5  # Fixed: bytes of the wire format of schema registries, with a zero in front
_in_order = msgspec.json.Encoder(order="deterministic").encode
_OTHER = {"t": "the table was truncated", "m": "a message that is not a row"}


class DebeziumMessages(MessageDecoder):
    """``envelopes`` decodes a message into its event, with or without the wrapper of a schema."""

    changes = True

    def __init__(
        self, envelopes: MessageDecoder, options: DebeziumOptions, fields: Mapping[str, str] | None
    ) -> None:
        self._envelopes = envelopes
        self._add = {name: path.split(".") for name, path in options.add.items()}
        self._key = [options.key] if isinstance(options.key, str) else options.key
        self._types = FieldTypes(fields or {})
        self._skips = 0 if options.encoding == "json" or "json" in options.encoding else _SCHEMA_ID

    def decode(self, messages: Sequence[bytes]) -> Decoding:
        """See :class:`.MessageDecoder`."""
        return self.decode_changes(messages, [None] * len(messages))

    def decode_changes(
        self, messages: Sequence[bytes], keys: Sequence[bytes | None], partition: str = ""
    ) -> Decoding:
        """See :class:`.MessageDecoder`. Each record is a list of one or two values, in which
        changes travel."""
        decoded = self._envelopes.decode(messages)
        decoding = Decoding([], [], dict(decoded.wrong))
        for index, event in zip(decoded.indexes, decoded.records, strict=True):
            try:
                changes = self._changes(event, keys[index], partition)
            except RecordError as ex:
                decoding.wrong[index] = str(ex)
                continue
            decoding.indexes.append(index)
            decoding.records.append(changes)
        return decoding

    def _changes(
        self, event: Any, message_key: bytes | None, partition: str
    ) -> list[dict[str, Any]]:
        if "op" not in event and isinstance(event.get("payload"), dict):
            event = event["payload"]
        op = event.get("op")
        make = _PARTS.get(op) if isinstance(op, str) else None
        if make is None:
            raise RecordError(_no_change(event, op))
        identified_by = self._identified_by(event, message_key)
        parts = make(event, identified_by is IdentifiedBy.KEY)
        if problems := self._types.check([row for _, row in parts]):
            raise RecordError(next(iter(problems.values())))
        extra = {name: without_decimals(_at(event, path)) for name, path in self._add.items()}
        values = []
        for back, row in parts:
            change = ChangePart(back, op == "r", identified_by, position_of(event, int(not back)))
            key = self._identity(identified_by, row, event, message_key, partition)
            values.append(
                {**row, **extra, KEY_FIELD: key, CHANGE_FIELD: msgspec.to_builtins(change)}
            )
        return values

    def _identified_by(self, event: Mapping[str, Any], message_key: bytes | None) -> IdentifiedBy:
        """The part of the event that identifies its row. Only the connector of a database keys
        messages by the primary key; other senders use any key."""
        if self._key:
            return IdentifiedBy.KEY
        if not isinstance(event.get("source"), dict):
            return IdentifiedBy.NOTHING
        return IdentifiedBy.ROW if message_key is None else IdentifiedBy.KEY

    def _identity(
        self,
        identified_by: IdentifiedBy,
        row: Mapping[str, Any],
        event: Mapping[str, Any],
        message_key: bytes | None,
        partition: str,
    ) -> str:
        """The key of the table's state, within which changes stay in order: of one row, of all rows
        of a table without a key, or of all messages with one key."""
        if identified_by is IdentifiedBy.NOTHING:
            return _in_order([partition if message_key is None else message_key.hex()]).decode()
        parts = table_of(event)
        if self._key:
            parts.append([_named(row, name) for name in self._key])
        elif message_key is not None:
            parts.append(row_key(message_key, self._skips))
        return _in_order(parts).decode()


def row_key(message_key: bytes | None, skips: int = 0) -> Any:
    """The primary key in the key of a message; None for a message without one. A key that is not
    JSON begins with ``skips`` bytes that name a schema, which may change while the key stays."""
    if message_key is None:
        return None
    try:
        key = msgspec.json.decode(message_key)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return message_key[skips:].hex()
    return key["payload"] if isinstance(key, dict) and {*key} == {"schema", "payload"} else key


def table_of(event: Mapping[str, Any]) -> list[Any]:
    """The table of an event: a topic may have events of several tables, whose keys are equal."""
    source = event.get("source")
    if not isinstance(source, dict):
        return []
    return [source.get(name) for name in ("name", "db", "schema", "table", "collection")]


def position_of(event: Mapping[str, Any], part: int) -> LogPosition:
    """The position of a part of an event in the log of its database: PostgreSQL's lsn; file,
    position and row of MySQL's binary log, which compare within one server; the lsns of SQL Server.
    For others the time alone."""
    source = event.get("source")
    if not isinstance(source, dict):
        return LogPosition()
    at = next(
        (each for each in (source.get("ts_ms"), event.get("ts_ms")) if type(each) is int), None
    )
    lsn = source.get("lsn")
    if type(lsn) is int or (isinstance(lsn, str) and lsn.isdecimal()):
        return LogPosition("lsn", (int(lsn), part), _time_beside(source))
    file, pos = source.get("file"), source.get("pos")
    if (
        isinstance(file, str)
        and type(pos) is int
        and (number := file.rpartition(".")[2]).isdecimal()
    ):
        row = source.get("row")
        numbers = (int(number), pos, row if type(row) is int else 0, part)
        return LogPosition(f"binlog {source.get('server_id')}", numbers, _time_beside(source))
    commit, change = source.get("commit_lsn"), source.get("change_lsn")
    if isinstance(commit, str):
        serial = source.get("event_serial_no")
        numbers_of_text = (commit, change or "", serial if type(serial) is int else 0, part)
        return LogPosition("lsn of a change", numbers_of_text, _time_beside(source))
    return LogPosition(at_ms=at)


def _time_beside(source: Mapping[str, Any]) -> int | None:
    """The time of the commit by the clock of the database. The event's own time is the connector's,
    and changes when the event is sent again."""
    at = source.get("ts_ms")
    return at if type(at) is int else None


def _named(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if value is None:
        raise RecordError(
            f"its row has no {name!r}, which `key` names as a part of the table's primary key"
        )
    return value


def _no_change(event: Mapping[str, Any], op: Any) -> str:
    if op is None:
        return "it is not a change event: it has no field 'op'"
    source = event.get("source")
    table = source.get("table", source.get("collection")) if isinstance(source, dict) else None
    about = f" ({str(table)[:100]})" if table else ""
    if isinstance(op, str) and op in _OTHER:
        return (
            f"the change event has op {op!r}{about}: {_OTHER[op]}, which names no row that could be"
            " taken back"
        )
    return f"the change event has op {str(op)[:40]!r}{about}; known are {_OPS}"


def _row(event: Mapping[str, Any], part: str, op: str) -> dict[str, Any]:
    row = event.get(part)
    if isinstance(row, dict):
        for name in (RETRACTION_FIELD, KEY_FIELD, CHANGE_FIELD):
            if name in row:
                raise RecordError(f"its {part!r} has a field {name!r}, which marks changes here")
        return row
    if row is None and part == "before":
        raise RecordError(
            f"{op} without 'before': which row it was is not known. Give its messages the primary"
            " key, or name it (format: {debezium: {key: [id]}}); or let the database log whole"
            " rows (PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)"
        )
    raise RecordError(f"{op} whose {part!r} is not a row")


Parts = list[tuple[bool, dict[str, Any]]]
"""(Whether it is taken back, the row)."""


def _inserted(event: Mapping[str, Any], keyed: bool) -> Parts:
    return [(False, _row(event, "after", "an insert"))]


def _read(event: Mapping[str, Any], keyed: bool) -> Parts:
    return [(False, _row(event, "after", "a row of a snapshot"))]


def _updated(event: Mapping[str, Any], keyed: bool) -> Parts:
    after = _row(event, "after", "an update")
    if keyed and not _is_whole(event.get("before"), after):
        return [(False, after)]
    return [(True, _row(event, "before", "an update")), (False, after)]


def _deleted(event: Mapping[str, Any], keyed: bool) -> Parts:
    if keyed and event.get("before") is None:
        return [(True, {})]
    return [(True, _row(event, "before", "a delete"))]


_PARTS: dict[str, Callable[[Mapping[str, Any], bool], Parts]] = {
    "c": _inserted,
    "r": _read,
    "u": _updated,
    "d": _deleted,
}


def _is_whole(before: Any, after: Mapping[str, Any]) -> bool:
    """Whether the former row of an update has more than its key. A table that has the key has the
    row itself; this row only gives its event time."""
    if not isinstance(before, dict):
        return False
    return all(before.get(name) is not None for name, field in after.items() if field is not None)


def _at(event: Any, path: Sequence[str]) -> Any:
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event


class DebeziumRows:
    """Rows as change events: a value is an insert, a retraction a delete."""

    def encode(self, row: Mapping[str, Any], back: bool, timestamp_us: int) -> bytes:
        """One event in JSON, without a schema; ``ts_ms`` is the record's time."""
        before, after = (row, None) if back else (None, row)
        event = {
            "before": before,
            "after": after,
            "op": "d" if back else "c",
            "ts_ms": timestamp_us // 1_000,
        }
        return json_lines([event])[:-1]
