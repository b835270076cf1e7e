"""Records that a test pushes to a stream: a source that can be read again, so that a crash loses
none of them.

Each push and each statement about the watermark has a position in a log, one log per partition. So
lateness follows from the log alone, however often it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import msgspec

from millwheel.connect.kinds import build_source
from millwheel.connect.sources.base import Chunk, Partition, Reader, Reject, Source
from millwheel.core.columns.declared_fields import FieldTypes
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import PipelineSpec, SourceSpec, StreamSpec
from millwheel.core.pipeline.tables import declared_name, source_stream
from millwheel.language.spec.reading.problems import unknown

KIND = "pushed"
DEFAULT_PARTITION = "pushed"


@dataclass(frozen=True, slots=True)
class _Row:
    """A record of one push, or a statement about the watermark (``push`` 0). ``watermark`` holds
    from here on."""

    value: Any
    push: int
    watermark: int


class PushedStream(Source):
    """All records pushed to one stream, and the source from which the runtime reads them."""

    poll_us = MAX_TIME
    list_us = MAX_TIME

    def __init__(self, name: str) -> None:
        self.name = name
        self.bounded = False
        """True once the stream was finished."""
        self.watermark = MIN_TIME
        """The watermark of new partitions."""
        self._logs: dict[str, list[_Row]] = {DEFAULT_PARTITION: []}
        self._pushes = 0
        self._schema: Any = None
        self._fields = FieldTypes({})

    # --- calls of the test ------------------------------------------------------------------------

    def push(self, values: Sequence[Any], partition: str = DEFAULT_PARTITION) -> None:
        """Append records, which are read together."""
        self._pushes += 1
        watermark, log = self.watermark_of(partition), self._log(partition)
        log += [_Row(deepcopy(value), self._pushes, watermark) for value in values]

    def watermark_of(self, partition: str) -> int:
        """The last stated watermark of a partition."""
        log = self._logs.get(partition)
        return log[-1].watermark if log else self.watermark

    def highest_watermark(self) -> int:
        """The highest of all partitions."""
        return max(self.watermark, *(self.watermark_of(partition) for partition in self._logs))

    def state_watermark(self, watermark: int, partition: str | None = None) -> None:
        """State that nothing before ``watermark`` will follow, in one partition or in all present
        and future ones."""
        if partition is None:
            self.watermark = watermark
        for log in self._logs.values() if partition is None else (self._log(partition),):
            log.append(_Row(None, 0, watermark))

    def _log(self, partition: str) -> list[_Row]:
        return self._logs.setdefault(partition, [_Row(None, 0, self.watermark)])

    def finish(self) -> None:
        """State that the input has ended."""
        self.bounded = True

    # --- calls of the runtime ---------------------------------------------------------------------

    def typed(self, schema: Any, fields: Mapping[str, str]) -> PushedStream:
        """This source, with the types that the stream declares."""
        self._schema, self._fields = schema, FieldTypes(fields)
        return self

    def partitions(self) -> Sequence[Partition]:
        """The default partition, and one for each key that was passed to a push."""
        return [Partition(name) for name in sorted(self._logs)]

    def open(self, partition: Partition) -> PushedReader:
        """A reader of one partition."""
        return PushedReader(self, self._logs[partition.name])

    def typed_value(self, value: Any) -> tuple[Any, str]:
        """(value converted to the stream's types, error), the error being "" for a valid value."""
        copy = deepcopy(value)
        if self._schema is not None:
            try:
                return msgspec.convert(msgspec.to_builtins(copy), self._schema), ""
            except (msgspec.ValidationError, TypeError) as ex:
                return None, str(ex)
        if self._fields and type(copy) is dict:
            return copy, self._fields.check([copy]).get(0, "")
        return copy, ""


class PushedStreams:
    """The sources of a pipeline under test: those that records are pushed to, and those of its
    file."""

    def __init__(self, spec: PipelineSpec, make: Callable[[StreamSpec], PushedStream]) -> None:
        self._spec = spec
        self.by_name = {
            stream.name: make(stream)
            for stream in spec.streams
            if stream.source is not None and stream.source.kind == KIND
        }
        self._listed: dict[str, Sequence[Partition]] = {}

    def chosen(self, stream: str | None) -> list[PushedStream]:
        """The one of this name, or all that were not finished. Raises ValueError."""
        if stream is not None:
            return [self.taking(stream, "given a watermark")]
        if not self.by_name:
            raise ValueError(
                "with run_sources the sources of the pipeline move their watermarks themselves"
            )
        return [each for each in self.by_name.values() if not each.bounded]

    def taking(self, name: str, what: str) -> PushedStream:
        """A stream that takes records; raises ValueError if it cannot be ``what`` ("pushed to")."""
        stream = self.by_name.get(source_stream(self._spec, name))
        if stream is None:
            raise ValueError(self._why_not(name, what))
        if stream.bounded:
            raise ValueError(f"{name} was finished: nothing more can come")
        return stream

    def _why_not(self, name: str, what: str) -> str:
        maker = next((c.name for c in self._spec.computations if name in c.outputs), None)
        if maker is not None:
            others = ", ".join(map(declared_name, self.by_name)) or "there is none"
            return (
                f"{name!r} cannot be {what}: the computation {maker!r} produces it. Push to a"
                f" stream with a source: {others}"
            )
        if name in {stream.name for stream in self._spec.streams}:
            return f"{name!r} cannot be {what}: its own source runs (run_sources=True)"
        return unknown("stream", name, [*map(declared_name, self.by_name)], "Streams with a source")

    def build(self, spec: SourceSpec, folder: str, schema: Any, fields: Mapping[str, str]) -> Any:
        """The source of a stream, as the runtime makes one."""
        if spec.kind == KIND:
            return self.by_name[spec.options["stream"]].typed(schema, fields)
        return build_source(spec, folder, schema, fields)

    def listed(self, stream: str, source: Source) -> Sequence[Any]:
        """The partitions: of a source of the file, those of the first look."""
        if stream in self.by_name:
            return source.partitions()
        if stream not in self._listed:
            self._listed[stream] = source.partitions()
        return self._listed[stream]


class PushedReader(Reader):
    """Reads one partition; each push is a read of its own."""

    def __init__(self, stream: PushedStream, log: list[_Row]) -> None:
        self._stream = stream
        self._log = log

    def read(self, position: int, max_records: int) -> Chunk:
        rows = self._next(position, max_records)
        after = position + len(rows)
        watermark = rows[-1].watermark if rows else self._before(position)
        chunk = Chunk(
            [],
            [],
            after,
            finished=self._stream.bounded and after >= len(self._log),
            caught_up=after >= len(self._log),
            watermark=watermark,
        )
        for at, row in enumerate(rows, position + 1):
            if not row.push:
                continue
            value, problem = self._stream.typed_value(row.value)
            if problem:
                chunk.rejects.append(
                    Reject(at, msgspec.to_builtins(row.value, enc_hook=repr), problem)
                )
            else:
                chunk.positions.append(at)
                chunk.values.append(value)
        return chunk

    def _next(self, position: int, max_records: int) -> list[_Row]:
        rows: list[_Row] = []
        for row in self._log[position : position + max_records]:
            if rows and row.push != rows[0].push:
                break
            rows.append(row)
        return rows

    def _before(self, position: int) -> int:
        return self._log[position - 1].watermark if position else MIN_TIME
