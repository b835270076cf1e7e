"""Records as rows of a table: their columns, and their values as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.connect.connectors.external.changes import RowChange, changes_of
from millwheel.connect.connectors.postgres.sink_options import PostgresSinkOptions, identity_of
from millwheel.connect.connectors.postgres.table import DatabaseTable, TableColumn
from millwheel.connect.connectors.postgres.values import text_of
from millwheel.connect.options import did_you_mean
from millwheel.connect.own_functions import expression_of
from millwheel.connect.sinks.base import SinkRecord
from millwheel.connect.sinks.result_rows import Mode, rows_of, without
from millwheel.errors import RecordError

OF_WINDOWS = frozenset({"window_start", "window_end"})
"""Fields of every row of a window, which a table may omit."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """A row as texts of its columns. ``names`` are its columns, in order; missing columns get their
    defaults. ``back``: the row is retracted."""

    index: int
    names: tuple[str, ...]
    values: tuple[str | None, ...]
    back: bool
    identity: tuple[str | None, ...]


Evaluators = Mapping[str, Callable[[Any], Any]]
"""By column, for computed columns: the function that computes the value."""


def evaluators(options: PostgresSinkOptions) -> Evaluators:
    """The expressions of the columns."""
    return {column: expression_of(text).evaluate for column, text in options.columns.items()}


class RowMaker:
    """Makes rows of a table from the records of a batch."""

    def __init__(
        self, options: PostgresSinkOptions, table: DatabaseTable, evaluate: Evaluators
    ) -> None:
        self._options = options
        self._table = table
        self._mode = Mode(options.mode)
        self._by = tuple(identity_of(options))
        self._evaluate = evaluate

    def rows(self, records: Sequence[SinkRecord]) -> tuple[list[TextRow], dict[int, str]]:
        """The rows in the order of the records, and the errors of records that cannot be rows, by
        index."""
        rows: list[TextRow] = []
        wrong: dict[int, str] = {}
        for change in changes_of(records):
            try:
                rows.append(self._row(change))
            except RecordError as ex:
                wrong[change.index] = str(ex)
        return rows, wrong

    def _row(self, change: RowChange) -> TextRow:
        fields = self._fields(change)
        texts = {
            name: text_of(value, self._column(name))
            for name, value in fields.items()
            if self._has(name)
        }
        missing = [name for name in self._by if texts.get(name) is None]
        if missing:
            raise RecordError(f"the row has no {missing[0]!r}, which is part of its identity (by)")
        identity = tuple(texts[name] for name in self._by)
        back = change.back and self._mode is Mode.UPSERT
        return TextRow(change.index, tuple(texts), tuple(texts.values()), back, identity)

    def _fields(self, change: RowChange) -> dict[str, Any]:
        options = self._options
        if self._evaluate:
            fields = {column: evaluate(change.row) for column, evaluate in self._evaluate.items()}
        else:
            plain = SinkRecord(change.record.key, change.row, change.record.timestamp)
            (fields,) = rows_of([plain], options.with_key, options.with_timestamp)
        if self._mode is Mode.CHANGELOG:
            return {options.mark: "-" if change.back else "+", **without(fields, options.mark)}
        return fields

    def _has(self, name: str) -> bool:
        return name in self._table.columns or name not in OF_WINDOWS

    def _column(self, name: str) -> TableColumn:
        column = self._table.columns.get(name)
        if column is None:
            raise RecordError(
                f"the table {self._table.name} has no column"
                f" {name!r}{did_you_mean(name, list(self._table.columns))}; add it, or name the"
                " columns to write in option 'columns'"
            )
        return column
