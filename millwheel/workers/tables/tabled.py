"""A table as a Computation: the row of each key, from change events that may repeat."""

from __future__ import annotations

from typing import Any

from millwheel.api import Computation, Context, MapState, ValueState
from millwheel.core.model.records import Record
from millwheel.core.pipeline.spec import TableSpec
from millwheel.core.tables.changes import ChangePart, Kept, Known, TableOutcome, applied, identity, passed, split
from millwheel.core.windows.panes import retracted

REPEATED = "repeated_changes"
"""The counter of change events that were old, so that they changed nothing."""


class Tabled(Computation):
    """Passes on how the row of a key has changed: a retraction of the former row, and the new one."""

    kept: ValueState[Kept] = ValueState(Kept)
    rows: MapState[bytes, Kept] = MapState(Kept)

    def __init__(self, spec: TableSpec, outputs: tuple[str, ...]) -> None:
        self._beside = frozenset(spec.beside)
        self._outputs = outputs

    def process_record(self, ctx: Context, record: Record) -> None:
        """One part of a change event."""
        change, row = split(record.value)
        outcome = self._outcome(change, row)
        if outcome.repeated:
            ctx.count(REPEATED)
        for stream in self._outputs:
            for gone in outcome.gone:
                ctx.produce(stream, retracted(gone))
            for new in outcome.new:
                ctx.produce(stream, new)

    def _outcome(self, change: ChangePart, row: dict[str, Any]) -> TableOutcome:
        if change.known is Known.NOT:
            return passed(change, row)
        if change.known is Known.KEY:
            kept = self.kept.get() or Kept()
            outcome = applied(kept, change, row, self._beside)
            self.kept.set(kept)
            return outcome
        name = identity(row, self._beside)
        kept = self.rows.get(name) or Kept()
        outcome = applied(kept, change, row, self._beside)
        self.rows[name] = kept
        return outcome
