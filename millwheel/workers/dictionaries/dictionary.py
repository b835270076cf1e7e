"""Runs a dictionary: every different value of a field gets a whole number, once and for ever.

The key is the partition of the value. Its state is one entry per value and the number of the next one. Both are part of
the commit that also has the records with their new numbers, so no number is seen that a later owner could give again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.lazy_polars import pl
from millwheel.core.formats.store_layout import STATE, key_prefix, pack, unpack
from millwheel.core.model.keys import fitting_key, key_hash
from millwheel.core.model.records import Batch, DeadLetter
from millwheel.core.pipeline.dictionaries import id_of
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.errors import RecordError
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.bundle.operator import Operator
from millwheel.workers.operators.callbacks import Decode
from millwheel.workers.state.overlay import Overlay

_VALUE, _NEXT = b"i", b"n"
_CACHED_VALUES = 200_000  # of a shard: some 30 MB; a look into the store takes a few microseconds


class Numbers:
    """The numbers of values, by partition: a cache over the store."""

    def __init__(self, overlay: Overlay, partitions: int, limit: int = _CACHED_VALUES) -> None:
        self._overlay = overlay
        self._partitions = partitions
        self._limit = limit
        self._known: dict[Any, int] = {}
        self._next: dict[int, int] = {}
        self._changed: dict[int, None] = {}
        self._prefixes: dict[int, bytes] = {}

    def of(self, values: Sequence[Any], partitions: Sequence[int]) -> list[int]:
        """The id of each value; those that come for the first time get the next ones of their partitions."""
        known = self._known
        try:
            return list(map(known.__getitem__, values))
        except KeyError:
            pass
        if len(known) > self._limit:
            for value in list(known)[: len(known) - self._limit // 2]:
                del known[value]
        missing = {value: at for value, at in zip(values, partitions, strict=True) if value not in known}
        store_keys = [self._prefix(at) + _VALUE + pack(value) for value, at in missing.items()]
        found = self._overlay.get_many(store_keys)
        for (value, at), store_key, data in zip(missing.items(), store_keys, found, strict=True):
            number: Any = unpack(data) if data is not None else self._give(at, store_key)
            known[value] = id_of(at, number, self._partitions)
        return list(map(known.__getitem__, values))

    def write(self) -> None:
        """Write how far the partitions have counted."""
        for at in self._changed:
            self._overlay.put(self._prefix(at) + _NEXT, pack(self._next[at]))
        self._changed.clear()

    def _give(self, at: int, store_key: bytes) -> int:
        number: Any = self._next.get(at)
        if number is None:
            data = self._overlay.get(self._prefix(at) + _NEXT)
            number = 0 if data is None else unpack(data)
        self._next[at] = number + 1
        self._changed[at] = None
        self._overlay.put(store_key, pack(number))
        return int(number)

    def _prefix(self, at: int) -> bytes:
        prefix = self._prefixes.get(at)
        if prefix is None:
            prefix = self._prefixes[at] = key_prefix(STATE, at, key_hash(at))
        return prefix


class DictionaryOperator(Operator):
    """The operator of a computation with ``dictionary``."""

    def __init__(self, spec: ComputationSpec, pipeline: PipelineSpec, overlay: Overlay, decode: Decode) -> None:
        assert spec.dictionary is not None
        self._spec = spec
        self._pipeline = pipeline
        self._given = spec.dictionary
        self._decode = decode
        self._numbers = Numbers(overlay, spec.dictionary.partitions)

    def run(self, bundle: Bundle) -> None:
        for arrival in bundle.arrivals:
            self._take(arrival.batch, bundle)
        self._numbers.write()

    def _take(self, batch: AnyBatch, bundle: Bundle) -> None:
        if isinstance(batch, ColumnBatch):
            if batch.keys.dtype == pl.Int64 and {self._given.of, *self._given.keep} <= {*batch.frame.columns}:
                self._take_columns(batch, bundle)
                return
            batch = batch.rows()
        self._take_rows(batch, bundle)

    def _take_columns(self, batch: ColumnBatch, bundle: Bundle) -> None:
        given = self._given
        ids = self._numbers.of(batch.frame[given.of].to_list(), batch.keys.to_list())
        frame = batch.frame.with_columns(pl.Series(given.name, ids, pl.Int64))
        if given.keep:
            frame = frame.select([*given.keep, given.name])
        for stream in self._spec.outputs:
            bundle.outputs.produce_columns(
                replace(batch, stream=stream, seqs=np.array([], np.int64), frame=frame, ids=None)
            )

    def _take_rows(self, batch: Batch, bundle: Bundle) -> None:
        for key, raw, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            [value] = self._decode(batch.stream, [raw])
            try:
                row = self._row(key, value)
            except RecordError as ex:
                letter = DeadLetter(self._pipeline.name, self._spec.name, batch.stream, str(ex), key, value, timestamp)
                bundle.dead_letter(letter, max(timestamp, bundle.floor))
                continue
            for stream in self._spec.outputs:
                bundle.outputs.produce(stream, key, row, timestamp)

    def _row(self, partition: Any, value: Any) -> dict[str, Any]:
        given = self._given
        if not isinstance(value, dict):
            raise RecordError(
                f"a dictionary adds a field to records with fields, and this is a {type(value).__name__}; make a dict "
                "of it in a computation before (map: …)"
            )
        found = value[given.of]
        fitting_key(found, self._pipeline.limits.key)
        [number] = self._numbers.of([found], [partition])
        kept = {name: value[name] for name in given.keep if name in value} if given.keep else value
        return {**kept, given.name: number}
