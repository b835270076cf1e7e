"""Runs a dictionary: every different value of a field gets a whole number, once and for ever.

The key is the partition of the value. The numbers of values (:mod:`.numbers`) are part of the
commit that also has the records with their new numbers, so no number is seen that a later owner
could give again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from millwheel.adapters.ports import StateStore
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.formats.number_runs import words_of, words_of_column
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import fitting_key
from millwheel.core.model.records import Batch, DeadLetter
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.dictionaries.numbers import Numbers
from millwheel.engine.workers.dictionaries.store_form import StoredNumbers
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import RecordError


class DictionaryOperator(Operator):
    """The operator of a computation with ``dictionary``."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: PipelineSpec,
        store: StateStore,
        overlay: Overlay,
        decode: Decode,
        shard: str,
        stored: StoredNumbers | None = None,
    ) -> None:
        self._spec = spec
        self._pipeline = pipeline
        self._work = spec.work_as(DictionarySpec)
        self._decode = decode
        work = self._work
        self._numbers = Numbers(store, overlay, work.partitions, shard, work.ttl_us, stored=stored)

    def due_at(self) -> int:
        return self._numbers.due_at()

    def run(self, bundle: Bundle) -> None:
        self._numbers.forget(bundle.watermark)
        for arrival in bundle.arrivals:
            self._take(arrival.batch, bundle)
        self._numbers.write()

    def _take(self, batch: AnyBatch, bundle: Bundle) -> None:
        if isinstance(batch, ColumnBatch):
            if batch.keys.dtype == pl.Int64 and {self._work.of, *self._work.keep} <= {
                *batch.frame.columns
            }:
                self._take_columns(batch, bundle)
                return
            batch = batch.rows()
        self._take_rows(batch, bundle)

    def _take_columns(self, batch: ColumnBatch, bundle: Bundle) -> None:
        work = self._work
        values = batch.frame[work.of]
        times = np.maximum(batch.timestamps, bundle.watermark)
        ids = self._numbers.of(
            words_of_column(values), batch.keys.to_numpy(), times, values.to_list
        )
        frame = batch.frame.with_columns(pl.Series(work.name, ids, pl.Int64))
        if work.keep:
            frame = frame.select([*work.keep, work.name])
        elif declared := self._declared(batch.stream):
            frame = frame.select(
                [name for name in frame.columns if name in declared or name == work.name]
            )
        for stream in self._spec.outputs:
            bundle.outputs.produce_columns(
                replace(batch, stream=stream, seqs=np.array([], np.int64), frame=frame, ids=None)
            )

    def _take_rows(self, batch: Batch, bundle: Bundle) -> None:
        rows = list(self._fitting(batch, bundle))
        if not rows:
            return
        partitions, values, times, field_values = zip(*rows, strict=True)
        late = np.maximum(np.array(times, np.int64), bundle.watermark)
        ids = self._numbers.of(
            words_of(field_values), np.array(partitions, np.int64), late, lambda: field_values
        )
        fields = self._kept(batch.stream, values)
        for partition, value, timestamp, number in zip(
            partitions, fields, times, ids.tolist(), strict=True
        ):
            row = {**value, self._work.name: number}
            for stream in self._spec.outputs:
                bundle.outputs.produce(stream, partition, row, timestamp)

    def _fitting(
        self, batch: Batch, bundle: Bundle
    ) -> Iterator[tuple[int, dict[str, Any], int, Any]]:
        """(partition, value, timestamp, field value to number) of each record that has one; the
        others become letters."""
        for key, raw, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            [value] = self._decode(batch.stream, [raw])
            try:
                yield key, value, timestamp, self._numbered(value)
            except RecordError as ex:
                letter = DeadLetter(
                    self._pipeline.name,
                    self._spec.name,
                    batch.stream,
                    str(ex),
                    key,
                    value,
                    timestamp,
                )
                bundle.dead_letter(letter, max(timestamp, bundle.floor))

    def _numbered(self, value: Any) -> Any:
        """The value in a record that gets a number. Raises RecordError where there is none."""
        if not isinstance(value, dict):
            raise RecordError(
                "a dictionary adds a field to records with fields, and this is a"
                f" {type(value).__name__}; make a dict of it in a computation before (map: …)"
            )
        field_value = value[self._work.of]
        fitting_key(field_value, self._pipeline.limits.key)
        return field_value

    def _kept(self, stream: str, values: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """The fields of records that are passed on."""
        if keep := self._work.keep:
            return [{name: value[name] for name in keep if name in value} for value in values]
        # Columns have declared fields only, and whether records come in columns must make no
        # difference.
        declared = self._declared(stream)
        if not declared or set().union(*values) <= declared:
            return values
        return [{name: of for name, of in value.items() if name in declared} for value in values]

    def _declared(self, stream: str) -> Set[str]:
        return self._pipeline.stream(stream).fields.keys()
