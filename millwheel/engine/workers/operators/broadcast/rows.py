"""The rows of held tables in a root.

Files have the same rows whenever they are read, so each worker reads them. A topic or a table of a
database may have others when a worker comes in the place of one that has died, and results would
depend on which worker has made them. So the driver reads such a table before the first worker
starts, and its rows stay in the root: they are the table of every worker, for as long as the root
lasts, and of a run from its savepoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from millwheel.adapters.waits import Wait
from millwheel.connect.kinds import build_source
from millwheel.connect.python_objects import load_object
from millwheel.connect.sources.base import ROWS, Partition, Source
from millwheel.core.expressions.language import Language
from millwheel.core.model.damage import checked
from millwheel.core.model.names import partition_channel
from millwheel.core.model.times import SECOND
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec, SourceSpec
from millwheel.core.pipeline.tables import declared_name
from millwheel.core.pipeline.work import EnrichSpec
from millwheel.core.rows.latest import deletion
from millwheel.engine.workers.operators.broadcast.table import (
    HeldTable,
    TableRows,
    TableSource,
    key_bytes_of,
)
from millwheel.engine.workers.sources.partitions import decode_partitions
from millwheel.language.spec.key_extractors import load_extractor

encode_rows: Callable[[Mapping[bytes, msgspec.Raw]], bytes] = msgspec.msgpack.encode
decode_rows: Callable[[bytes], TableRows] = checked(
    msgspec.msgpack.Decoder(TableRows).decode, "the rows of a table (inputs/)"
)


def has_kept_rows(source: SourceSpec | None) -> bool:
    """Whether the root keeps the rows that a held table has of this source."""
    return source is not None and source.kind != "files"


def rows_file(root: Path, stream: str) -> Path:
    """The path under which a root keeps the rows of a stream's table."""
    return root / "inputs" / f"{stream}{ROWS}"


def computations_with_kept_rows(spec: PipelineSpec) -> Iterator[ComputationSpec]:
    """The enrichments with tables whose rows the root keeps: of each table the one with the lowest
    limit."""
    first_of: dict[str, ComputationSpec] = {}
    for each in spec.computations:
        work = each.work
        if isinstance(work, EnrichSpec) and work.held:
            other = first_of.get(work.stream)
            if other is None or _limit(each) < _limit(other):
                first_of[work.stream] = each
    yield from (each for name, each in first_of.items() if has_kept_rows(spec.stream(name).source))


def _limit(computation: ComputationSpec) -> int:
    broadcast = computation.work_as(EnrichSpec).broadcast
    assert broadcast is not None
    return broadcast.limit_bytes


def table_source(
    spec: PipelineSpec,
    computation: ComputationSpec,
    source: Source,
    listed: Callable[[], Sequence[Partition]],
    language: Language,
    kept: Callable[[], TableRows] | None = None,
) -> TableSource:
    """The source of the table of an enrichment. ``listed`` gives the partitions that the run has
    kept, ``kept`` the rows, where the root has them."""
    work = computation.work_as(EnrichSpec)
    broadcast, stream = work.broadcast, spec.stream(work.stream)
    assert broadcast is not None
    assert broadcast.of is not None
    extract = load_extractor(broadcast.of, spec.folder, language)
    condition = language.compile(work.delete).evaluate if work.delete else None

    def partitions() -> Sequence[Partition]:
        # The one whose rows count comes last, as where records are ordered by channel.
        node = f"source.{stream.name}"
        return sorted(listed(), key=lambda each: partition_channel(node, each.name))

    return TableSource(
        declared_name(stream.name),
        computation.where,
        source,
        partitions,
        key_bytes_of(extract, spec.limits.key),
        deletion(condition),
        broadcast.limit_bytes,
        spec.limits.record,
        kept,
    )


def missing_rows(
    spec: PipelineSpec, root: Path, language: Language, report: Callable[[str], None]
) -> Iterator[tuple[Path, bytes]]:
    """The rows that the root lacks of tables whose rows it keeps, by their path. ``report`` gets a
    line where they cannot be read now. Raises SetupError where they cannot be read, or are too
    many."""
    for computation in computations_with_kept_rows(spec):
        stream = spec.stream(computation.work_as(EnrichSpec).stream)
        assert stream.source is not None
        path = rows_file(root, stream.name)
        if not path.exists():
            schema = load_object(stream.schema, spec.folder) if stream.schema else None
            source = build_source(stream.source, spec.folder, schema, stream.declared)
            listed = decode_partitions((root / "inputs" / f"{stream.name}.json").read_bytes())
            table = table_source(spec, computation, source, listed.copy, language)
            yield path, encode_rows(_read(table, report))


def _read(source: TableSource, report: Callable[[str], None]) -> TableRows:
    wait = Wait(f"table {source.name}")
    table, reported = HeldTable(source, wait), False
    while not table.ready:
        table.read(now_us := time.time_ns() // 1000)
        waiting = wait.waiting()
        if waiting is not None and not reported:
            report(f"Waiting for the table {source.name!r}: {waiting.why}")
            reported = True
        if not table.ready and table.reads_at() > now_us:
            time.sleep((table.reads_at() - now_us) / SECOND)
    return table.rows
