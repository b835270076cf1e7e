"""What stands in the end: the rows of ``upsert`` sinks, which were emitted last and not taken
back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from millwheel.core.formats.codec import encode_value
from millwheel.core.model.keys import check_key
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import SinkSpec
from millwheel.core.windows.panes import as_retraction
from tests.search.script import Row


def standing(sink: SinkSpec, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of an ``upsert`` sink. Versions of one row from different keys are in no order with
    ``by``, which is then the key of its records."""
    table: dict[bytes, Row] = {}
    for row in rows:
        back = as_retraction(row.value)
        value = row.value if back is None else back.value
        identity = encode_value(_identity(sink, row.key, value))
        if back is None:
            table[identity] = replace(row, key=_key(sink, row))
        elif identity in table and encode_value(table[identity].value) == encode_value(value):
            del table[identity]
    return tuple(table.values())


def _key(sink: SinkSpec, row: Row) -> Any:
    if sink.key.kind is KeyKind.RECORD:
        return row.key
    names = [check_key(row.value[name]) for name in sink.key.names]
    return names[0] if len(names) == 1 else tuple(names)


def _identity(sink: SinkSpec, key: Any, value: Any) -> Any:
    if sink.key.kind is not KeyKind.RECORD:
        return [check_key(value[name]) for name in sink.key.names]
    if isinstance(value, dict) and "window_start" in value and "window_end" in value:
        return [key, value["window_start"], value["window_end"]]
    return [key]
