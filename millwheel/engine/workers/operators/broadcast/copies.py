"""Copies of a table that goes on: each is the state of one key, and the records that ask for it
wait there beside its changes (core/pipeline/tables.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from millwheel.api import Computation, Context, MapState, ValueState
from millwheel.connect.own_functions import language_of
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.keys import Key, fitting_key, key_bytes
from millwheel.core.model.records import Record
from millwheel.core.pipeline.graph import takes_back
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.tables import copy_keys
from millwheel.core.pipeline.work import CopiesSpec, EnrichSpec
from millwheel.core.rows.latest import Located, deletion
from millwheel.core.windows.panes import as_retraction, retracted
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.operators.broadcast.table import too_large
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.engine.workers.operators.record_joins import (
    Enriched,
    EnrichedChanges,
    HeldVersion,
    plain,
)
from millwheel.errors import SetupError
from millwheel.language.spec.key_extractors import load_extractor

KeyOf = Callable[[Any], Key]
"""The key of a record, by its value."""


class Copied(Computation):
    """The computation that sends each change of a table to every copy: the key of the row, where
    the change came from, and the row, or None where it ends. A record that has no key, or whose
    ``delete`` cannot be evaluated, is a dead letter here, once."""

    sizes: MapState[bytes, int] = MapState(int)
    """The bytes of key and row, of the keys that have a row."""
    total: ValueState[int] = ValueState(int)

    def __init__(
        self,
        spec: CopiesSpec,
        key_of: KeyOf,
        deletes: Callable[[Any], bool] | None,
        outputs: Sequence[str],
    ) -> None:
        self._spec = spec
        self._key_of = key_of
        self._deletes = deletes
        self._outputs = tuple(outputs)
        self.size_bytes = 0
        """Bytes of all rows and keys as of the last change."""

    def process_record(self, ctx: Context, record: Record) -> None:
        """Send a change, which comes from the source of the table or of its stream."""
        assert isinstance(record, Located)
        back = as_retraction(record.value)
        value = record.value if back is None else back.value
        key, row = self._key_of(value), plain(value)
        if back is None and self._deletes is not None and self._deletes(row):
            row = None
        self._measure(key_bytes(key), row, back is not None)
        change = [key, record.channel, record.number, row if back is None else retracted(row)]
        for own in copy_keys(self._spec.copies):
            for stream in self._outputs:
                ctx.produce(stream, change, key=own)

    def _measure(self, name: bytes, row: Any, ends: bool) -> None:
        """Count one row of each key: the last that came, until it is taken back."""
        before = self.sizes.get(name) or 0
        size = 0 if row is None else len(name) + len(encode_value(row))
        if ends:
            # Only the row in force ends: where another has come before this, that one stands.
            size = 0 if size == before else before
        if size:
            self.sizes[name] = size
        elif before:
            del self.sizes[name]
        self.size_bytes = (self.total.get() or 0) + size - before
        self.total.set(self.size_bytes)


class CopiesOperator(CallbackOperator):
    """The operator of :class:`Copied`, which stops the run where the table is larger than a copy
    may be."""

    def __init__(self, copied: Copied, spec: ComputationSpec, *arguments: Any) -> None:
        pipeline, *rest = arguments
        super().__init__(spec, pipeline, copied, *rest)
        self._copied = copied
        self._where = spec.where
        self._work = spec.work_as(CopiesSpec)

    def run(self, bundle: Bundle) -> None:
        super().run(bundle)
        # Behind the calls: an error of a call concerns its record, and this concerns the run.
        if self._copied.size_bytes > self._work.limit_bytes:
            work = self._work
            raise SetupError(too_large(self._where, work.of, work.limit_bytes, "each copy"))


class _InCopies(Enriched):
    """The versions of all keys of a table, in the state of the key of a copy."""

    versions: MapState[bytes, HeldVersion] = MapState(HeldVersion)

    def __init__(self, key_of: KeyOf, spec: EnrichSpec, outputs: Sequence[str]) -> None:
        super().__init__(spec, outputs)
        self._key_of = key_of
        self._key: Key = None
        self._name = b""

    def process_record(self, ctx: Context, record: Record) -> None:
        """Apply a change of the copy, or enrich a record."""
        if record.stream == self._spec.stream:
            key, channel, number, value = record.value
            self._point(fitting(key))
            at = (self._key, value, record.timestamp, record.stream, channel, number)
            self._update_version(Located(*at))
            return
        back = as_retraction(record.value)
        self._point(self._key_of(record.value if back is None else back.value))
        super().process_record(ctx, structs.replace(record, key=self._key))

    def _point(self, key: Key) -> None:
        self._key, self._name = key, key_bytes(key)

    def _current_version(self) -> HeldVersion | None:
        return self.versions.get(self._name)

    def _keep(self, version: HeldVersion) -> None:
        self.versions[self._name] = version

    def _produce(self, ctx: Context, row: Any) -> None:
        # Under the key of its row, as where the table is divided by it.
        for stream in self._outputs:
            ctx.produce(stream, row, key=self._key)


class EnrichedInCopies(_InCopies):
    """The computation that adds to a record the row of its key as of its time, from a copy."""


class EnrichedChangesInCopies(_InCopies, EnrichedChanges):
    """The same for streams with retractions."""


def fitting(key: Any) -> Key:
    """A key that has travelled within a value."""
    return tuple(map(fitting, key)) if isinstance(key, list | tuple) else key


def copied(spec: ComputationSpec, pipeline: PipelineSpec) -> Copied:
    """The computation that sends the changes of a table to its copies."""
    work, language = spec.work_as(CopiesSpec), language_of(pipeline)
    extract = load_extractor(work.key, pipeline.folder, language)
    condition = language.compile(work.delete).evaluate if work.delete else None
    deletes = deletion(condition) if work.upserts else None
    most = pipeline.limits.key
    return Copied(work, lambda value: fitting_key(extract(value), most), deletes, spec.outputs)


def enriched_in_copies(spec: ComputationSpec, pipeline: PipelineSpec) -> Computation:
    """The computation of a spec that enriches with copies of a table."""
    work = spec.work_as(EnrichSpec)
    assert work.broadcast is not None
    assert work.broadcast.by is not None
    extract = load_extractor(work.broadcast.by, pipeline.folder, language_of(pipeline))
    most = pipeline.limits.key
    kind = EnrichedChangesInCopies if takes_back(spec, pipeline) else EnrichedInCopies
    return kind(lambda value: fitting_key(extract(value), most), work, spec.outputs)
