"""Change events of databases, as Debezium writes them: values for new rows, and retractions of removed rows.

An event has the former row (``before``) and the new one (``after``). An insert and a row of the snapshot are a value, a
delete is a retraction, and an update is a retraction of the former row and a value. So consumers follow the table: an
aggregation subtracts removed rows, and a sink in mode ``upsert`` contains the present rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millwheel.core.windows.panes import RETRACTION_FIELD, retracted
from millwheel.errors import RecordError
from millwheel.formats.base import Decoding, MessageDecoder
from millwheel.formats.options import DebeziumOptions
from millwheel.sinks.rows import json_lines
from millwheel.sources.fields import FieldTypes

_OPS = "c (insert), r (row of a snapshot), u (update), d (delete)"
_OTHER = {"t": "the table was truncated", "m": "a message that is no row"}


class DebeziumMessages(MessageDecoder):
    """``envelopes`` decodes a message into its event, with or without the wrapper of a schema."""

    changes = True

    def __init__(self, envelopes: MessageDecoder, options: DebeziumOptions, fields: Mapping[str, str] | None) -> None:
        self._envelopes = envelopes
        self._add = {name: path.split(".") for name, path in options.add.items()}
        self._types = FieldTypes(fields or {})

    def decode(self, messages: Sequence[bytes]) -> Decoding:
        decoded = self._envelopes.decode(messages)
        found = Decoding([], [], dict(decoded.wrong))
        for index, event in zip(decoded.indexes, decoded.records, strict=True):
            try:
                changes = self._changes(event)
            except RecordError as ex:
                found.wrong[index] = str(ex)
                continue
            if changes:
                found.indexes.append(index)
                found.records.append(changes)
        return found

    def _changes(self, event: Any) -> list[dict[str, Any]]:
        if "op" not in event and isinstance(event.get("payload"), dict):
            event = event["payload"]
        op = event.get("op")
        make = _MAKE.get(op) if isinstance(op, str) else None
        if make is None:
            raise RecordError(_no_change(event, op))
        changes = make(event)
        if self._add:
            extra = {name: _at(event, path) for name, path in self._add.items()}
            changes = [{**change, **extra} for change in changes]
        if problems := self._types.check(changes):
            raise RecordError(next(iter(problems.values())))
        return changes


def _no_change(event: Mapping[str, Any], op: Any) -> str:
    if op is None:
        return "it is no change event: it has no field 'op'"
    source = event.get("source")
    table = source.get("table", source.get("collection")) if isinstance(source, dict) else None
    about = f" ({str(table)[:100]})" if table else ""
    if isinstance(op, str) and op in _OTHER:
        return f"the change event has op {op!r}{about}: {_OTHER[op]}, which names no row that could be taken back"
    return f"the change event has op {str(op)[:40]!r}{about}; known are {_OPS}"


def _row(event: Mapping[str, Any], part: str, op: str) -> dict[str, Any]:
    row = event.get(part)
    if isinstance(row, dict):
        if RETRACTION_FIELD in row:
            raise RecordError(f"its {part!r} has a field {RETRACTION_FIELD!r}, which marks retractions here")
        return row
    if row is None and part == "before":
        raise RecordError(
            f"{op} without 'before': what the row was is not known, so it cannot be taken back. Let the database log "
            "whole rows (PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)"
        )
    raise RecordError(f"{op} whose {part!r} is no row")


_MAKE: dict[str, Callable[[Mapping[str, Any]], list[dict[str, Any]]]] = {
    "c": lambda event: [_row(event, "after", "an insert")],
    "r": lambda event: [_row(event, "after", "a row of a snapshot")],
    "u": lambda event: [retracted(_row(event, "before", "an update")), _row(event, "after", "an update")],
    "d": lambda event: [retracted(_row(event, "before", "a delete"))],
}


def _at(event: Any, path: Sequence[str]) -> Any:
    for name in path:
        event = event.get(name) if isinstance(event, dict) else None
    return event


class DebeziumRows:
    """Rows as change events: a value is an insert, a retraction a delete."""

    def encode(self, row: Mapping[str, Any], back: bool, timestamp_us: int) -> bytes:
        """One event in JSON, without a schema; ``ts_ms`` is the record's time."""
        before, after = (row, None) if back else (None, row)
        event = {"before": before, "after": after, "op": "d" if back else "c", "ts_ms": timestamp_us // 1_000}
        return json_lines([event])[:-1]
