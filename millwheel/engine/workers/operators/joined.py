"""Joins and enrichment as Computations, so that they share the windows, bundles, retries and dead
letters of callbacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from millwheel.api import Computation, Context, ValueState
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.keys import Key
from millwheel.core.model.records import Record
from millwheel.core.pipeline.joins import Version, known, newer, pairs, pairs_of
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import EnrichSpec, JoinKind, JoinSpec, Missing
from millwheel.core.windows.windows import Window
from millwheel.errors import RecordError

UNMATCHED = "unmatched"
"""The counter of records that are dropped because nothing enriches them."""


class Joined(Computation):
    """Every two records of a window and key, one of each stream. Stateless: the windows keep the
    records."""

    def __init__(
        self,
        kind: JoinKind,
        inputs: Sequence[InputSpec],
        outputs: Sequence[str],
        fields: Sequence[Sequence[str]] = ((), ()),
    ) -> None:
        """``fields``: those that either stream declares, in their order."""
        self._kind = kind
        self._fields = tuple(map(tuple, fields))
        self._left, self._right = (each.stream for each in inputs)
        self._head = inputs[0].key.naming()
        self._outputs = tuple(outputs)

    def process_window(
        self, ctx: Context, key: Key, window: Window, records: Sequence[Record]
    ) -> None:
        """The window has closed."""
        for row in self._rows(key, window, pairs(records, self._left, self._kind)):
            for stream in self._outputs:
                ctx.produce(stream, row)

    def rows(
        self, key: Key, window: Window, lefts: Sequence[Any], rights: Sequence[Any]
    ) -> Iterator[dict[str, Any]]:
        """The results of a window that has closed, by the values of either stream in their
        order."""
        return self._rows(key, window, pairs_of(lefts, rights, self._kind))

    def _rows(
        self, key: Key, window: Window, matches: Iterable[tuple[Any, Any]]
    ) -> Iterator[dict[str, Any]]:
        head = self._head(key)
        head["window_start"], head["window_end"] = window
        lefts, rights = self._fields
        for left, right in matches:
            yield {**head, self._left: ordered(left, lefts), self._right: ordered(right, rights)}


def ordered(value: Any, fields: tuple[str, ...]) -> Any:
    """A value with its fields as columns have them: in the order of their declaration, the others
    by name. Whether records come in columns must make no difference."""
    if not fields or type(value) is not dict or tuple(value) == fields:
        return value
    names = (*fields, *sorted(value.keys() - fields))
    return {name: value[name] for name in names if name in value}


class Enriched(Computation):
    """Adds to a record the latest value of another stream for its key."""

    version: ValueState[Version] = ValueState(Version)

    def __init__(self, spec: EnrichSpec, outputs: Sequence[str]) -> None:
        self._spec = spec
        self._outputs = tuple(outputs)

    def process_record(self, ctx: Context, record: Record) -> None:
        """A new version, or a record to enrich."""
        spec = self._spec
        version = self.version.get()
        if record.stream == spec.stream:
            if newer(record.timestamp, version):
                self.version.set(Version(record.timestamp, plain(record.value)))
            return
        fields = plain(record.value)
        if type(fields) is not dict:
            raise RecordError(
                f"enrich adds the field {spec.name!r}, and a {type(fields).__name__} has no fields"
            )
        value = known(version, record.timestamp if spec.waits else None)
        if value is None and spec.missing is Missing.DROP:
            ctx.count(UNMATCHED)
            return
        if value is None and spec.missing is Missing.DEAD_LETTER:
            raise RecordError(
                f"{spec.stream} has said nothing of {record.key!r} up to {record.timestamp}"
            )
        for stream in self._outputs:
            ctx.produce(stream, {**fields, spec.name: value})


def plain(value: Any) -> Any:
    """The fields of a typed object, as they are encoded; any other value as it is."""
    return decode_value(encode_value(value)) if isinstance(value, Struct) else value


def joined(spec: ComputationSpec, pipeline: PipelineSpec) -> Computation:
    """The computation of a spec with ``join`` and ``window``, or ``enrich``."""
    if isinstance(spec.work, JoinSpec):
        return Joined(spec.work.kind, spec.inputs, spec.outputs, declared_fields(spec, pipeline))
    return Enriched(spec.work_as(EnrichSpec), spec.outputs)


def declared_fields(spec: ComputationSpec, pipeline: PipelineSpec) -> list[tuple[str, ...]]:
    """The fields that the source of each input declares, in their order; none for others."""
    streams = [pipeline.stream(each.stream) for each in spec.inputs]
    return [() if stream.source is None else tuple(stream.fields) for stream in streams]
