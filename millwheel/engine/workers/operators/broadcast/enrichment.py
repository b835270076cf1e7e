"""Records get the rows of a table that their worker holds whole. No state: the result of a record
follows from it and the table, and so does the one that a retraction takes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.api import Computation, Context
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.stages import Passed
from millwheel.core.columns.stateless.tables import EnrichColumns
from millwheel.core.model.keys import key_bytes, key_from_bytes
from millwheel.core.model.records import Record
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.tables import declared_name
from millwheel.core.pipeline.work import EnrichSpec, Missing
from millwheel.core.windows.panes import as_retraction, retracted
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.broadcast.table import HeldTable, KeyBytes
from millwheel.engine.workers.operators.record_joins import UNMATCHED, plain
from millwheel.engine.workers.operators.stateless import StatelessOperator
from millwheel.errors import RecordError


class EnrichedWhole(Computation):
    """The computation that adds the row of its key to a record. ``finds`` gives the bytes of the
    key by a record's value; without it a record has come with the key."""

    def __init__(
        self, spec: EnrichSpec, table: HeldTable, finds: KeyBytes | None, outputs: Sequence[str]
    ) -> None:
        self._spec = spec
        self._rows = table.rows
        self._finds = finds
        self._outputs = tuple(outputs)

    def process_record(self, ctx: Context, record: Record) -> None:
        """Enrich a record; the table is there."""
        back = as_retraction(record.value)
        value = record.value if back is None else back.value
        fields, spec = plain(value), self._spec
        if type(fields) is not dict:
            raise RecordError(
                f"enrich adds the field {spec.name!r}, and a {type(fields).__name__} has no fields"
            )
        key = key_bytes(record.key) if self._finds is None else self._finds(value)
        table_row = self._rows.get(key)
        if table_row is None and spec.missing is Missing.DROP:
            ctx.count(UNMATCHED)
            return
        if table_row is None and spec.missing is Missing.DEAD_LETTER:
            of = declared_name(spec.stream)
            raise RecordError(f"{of} has no row of {key_from_bytes(key)!r}")
        row: dict[str, Any] = {**fields, spec.name: table_row}
        for stream in self._outputs:
            ctx.produce(stream, row if back is None else retracted(row))


class BroadcastOperator(StatelessOperator):
    """The operator of such an enrichment: no record is processed before its worker has all of the
    table. Columns get rows by columns, where those of the table are alike."""

    def __init__(self, table: HeldTable, columns: EnrichColumns, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._held = table
        self._columns = columns

    @property
    def paused(self) -> bool:
        return not self._held.ready

    def intake(self, waiting: int, now_us: int, watermark: int) -> int:
        return waiting if self._held.ready else 0

    def wakes_at(self, now_us: int) -> int:
        return MAX_TIME if self._held.ready else self._held.reads_at()

    def _become(self, batch: ColumnBatch) -> Passed | None:
        table = self._held.columns
        return None if table is None else self._columns.passed(batch, table)

    def run(self, bundle: Bundle) -> None:
        if bundle.arrivals or bundle.due:
            super().run(bundle)
            return
        bundle.positions_only = True
        self._held.read(bundle.now_us)
