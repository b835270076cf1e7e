"""Change streams that deliver twice: what becomes of them is the table, whatever repeats."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from millwheel.connect.formats import debezium
from millwheel.connect.formats.debezium import DebeziumMessages
from millwheel.connect.formats.lines import JsonMessages
from millwheel.connect.formats.options import DebeziumOptions
from millwheel.core.pipeline import table_changes as changes
from millwheel.core.pipeline.table_changes import (
    ChangePart,
    IdentifiedBy,
    Kept,
    LogPosition,
    TableOutcome,
    applied,
    identity,
    split,
)
from tests.fakes.change_streams import ChangeStream, change_stream

BESIDE = ("changed_ms",)


def plain(row: dict[str, Any]) -> str:
    return json.dumps(
        {name: field for name, field in row.items() if name not in BESIDE}, sort_keys=True
    )


def told(stream: ChangeStream) -> tuple[Counter[str], int]:
    """The rows that the changes of a stream leave, and how many changes there were."""
    keys, values = zip(*stream.messages, strict=True)
    found = DebeziumMessages(JsonMessages(), DebeziumOptions(**stream.form), None).decode_changes(
        values, keys
    )
    assert not found.wrong
    table: dict[tuple[str, bytes], Kept] = {}
    rows: Counter[str] = Counter()
    emitted = 0
    for value in (each for parts in found.records for each in parts):
        change, row = split(value)
        name = (
            value[changes.KEY_FIELD],
            identity(row, BESIDE) if change.identified_by is IdentifiedBy.ROW else b"",
        )
        outcome = applied(table.setdefault(name, Kept()), change, row, BESIDE)
        for gone in outcome.gone:
            assert rows[plain(gone)] > 0, "what is taken back was there"
            rows[plain(gone)] -= 1
        rows.update(map(plain, outcome.new))
        emitted += len(outcome.gone) + len(outcome.new)
    return +rows, emitted


def holds(seed: int) -> bool:
    """Whether the table of a seed is that of the database. If positions tell each old event,
    nothing changes when all of them come once more."""
    stream = change_stream(seed)
    rows, emitted = told(stream)
    if rows != Counter(map(plain, stream.rows.values())):
        return False
    return not stream.exact or told(replace(stream, messages=stream.messages * 2)) == (
        rows,
        emitted,
    )


def test_repeated_events_and_rows_that_are_read_again_change_nothing() -> None:
    assert [seed for seed in range(1, 201) if not holds(seed)] == []


right_applied, right_counted, right_repeated = applied, changes._counted, changes._is_repeated
right_position = debezium.position_of


def _forgets(kept: Kept, change: ChangePart, row: Any, beside: Any) -> TableOutcome:
    outcome = right_applied(kept, change, row, beside)
    kept.seen = kept.seen if kept.count else None
    return outcome


MISTAKES: dict[str, tuple[int, Any, str, Any]] = {
    "every_event_counts": (10, changes, "_is_repeated", lambda kept, change: False),
    "a_row_that_is_read_again_is_a_further_one": (
        20,
        changes,
        "_counted",
        lambda kept, change, row: right_counted(
            kept, msgspec.structs.replace(change, reread=False), row
        ),
    ),
    "a_snapshot_makes_what_was_written_before_it_old": (
        60,
        changes,
        "_is_repeated",
        lambda kept, change: right_repeated(kept, change) or change.position.is_old(kept.read),
    ),
    "both_parts_of_an_update_have_one_position": (
        10,
        debezium,
        "position_of",
        lambda event, part: right_position(event, 0),
    ),
    "equal_keys_are_one_row_in_all_tables": (10, debezium, "table_of", lambda event: []),
    "a_position_is_one_in_the_logs_of_all_servers": (
        60,
        LogPosition,
        "is_old",
        lambda self, seen: seen is not None and bool(self.line) and self.numbers <= seen.numbers,
    ),
    "a_row_that_has_gone_is_forgotten": (20, sys.modules[__name__], "applied", _forgets),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_about_old_events_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    within, owner, attribute, wrong = MISTAKES[name]
    monkeypatch.setattr(owner, attribute, wrong)
    assert any(not safely(seed) for seed in range(1, within + 1))


def safely(seed: int) -> bool:
    try:
        return holds(seed)
    except AssertionError:
        return False
