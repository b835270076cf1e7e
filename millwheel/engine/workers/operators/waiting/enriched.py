"""``enrich`` as of event time: records and versions wait in columns, and all records that have come
due get their versions in one operation (:mod:`millwheel.core.waiting.versions`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.columns.batch import key_list
from millwheel.core.columns.groups_frame import KEY
from millwheel.core.columns.state.columns_to_rows import Left
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import Key
from millwheel.core.ranked.kept_records import AT, ROW
from millwheel.core.waiting.records import WaitingColumns
from millwheel.core.waiting.versions import (
    VERSION,
    EnrichPlan,
    VersionSegments,
    last_versions,
    versions_of,
)
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.record_computations import UNMATCHED
from millwheel.engine.workers.operators.record_joins import Enriched
from millwheel.engine.workers.operators.waiting.in_columns import WaitingOperator
from millwheel.engine.workers.state.column_segments import ColumnShard

KeptVersion = tuple[Any, int]
"""A value and its time."""


class EnrichOperator(WaitingOperator):
    """See the head of this file."""

    def __init__(
        self, plan: EnrichPlan | None, shard: ColumnShard, few: int, *arguments: Any
    ) -> None:
        """Without a ``plan`` all keys are in rows, also those that another version of the pipeline
        had in columns."""
        self._plan = plan
        self.in_columns = plan is not None
        super().__init__(VersionSegments, shard, few, *arguments)
        assert isinstance(self._instance, Enriched)
        self._enriched: Enriched = self._instance

    def _has_others(self) -> bool:
        """Rows and keys of another type than those of the plan, or than each other."""
        for stream, column in self._streams():
            segments = [each.groups.schema for each in self._segments()]
            types = [(each[column], each[KEY]) for each in segments if column in each]
            columns = self._columns_for(stream)
            alike = all(each == types[0] for each in types)
            if not alike or (types and (columns is None or not columns.holds(*types[0]))):
                return True
        return False

    def _row_type(self, stream: str) -> Any:
        return self._waiting.row_type(dict(self._streams())[stream])

    def _holds(self, rows: Any, keys: Any) -> bool:
        return self._plan is not None

    def _columns_for(self, stream: str) -> WaitingColumns | None:
        return None if self._plan is None else self._plan.columns[stream]

    def _streams(self) -> Sequence[tuple[str, str]]:
        versions = self._spec.work.stream
        return [
            (each.stream, VERSION if each.stream == versions else ROW) for each in self._spec.inputs
        ]

    def _release(self, watermark: int, bundle: Bundle) -> pl.Series:
        assert self._plan is not None
        made = self._plan.results(self._segments(), watermark)
        if made is None:
            return pl.Series(KEY, [])
        if not len(made.apart):
            for stream in self._outputs:
                bundle.outputs.produce_columns(made.batch.named(stream))
            if made.unmatched:
                bundle.outputs.counted.append((UNMATCHED, made.unmatched))
        return made.apart

    # --- keys in rows -----------------------------------------------------------------------------

    def _rows_of(self, segments: Sequence[Left]) -> dict[Key, KeptVersion]:
        taken = [
            versions_of(each.groups.filter(pl.col(AT) < each.fired)).drop(ROW, strict=False)
            for each in segments
        ]
        taken = [each for each in taken if each.height]
        if not taken:
            return {}
        last = last_versions(pl.concat(taken, how="diagonal"))
        values = last[VERSION].struct.unnest().to_dicts()
        pairs = zip(values, last[AT].to_list(), strict=True)
        return dict(zip(key_list(last[KEY]), pairs, strict=True))

    def _keep_in_rows(self, key: Key, rows: KeptVersion) -> None:
        self._enriched.go_on(*rows)

    def _rows_in(self, rows: KeptVersion) -> list[KeptVersion]:
        return [rows]
