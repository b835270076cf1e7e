"""A table that a worker holds whole: its shards read it together, each from its source.

Nothing of it is state, so there is nothing to move or split. The rows follow from the input alone:
the partitions are those that the run has kept since its beginning, and of one key the last row
counts, by partition and position. Where the source may have others later, the root has the rows
(rows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from millwheel.adapters.waits import Wait
from millwheel.connect.plug_ins import as_reader
from millwheel.connect.sources.base import Partition, Reader, Source
from millwheel.core.columns.stateless.tables import TableColumns, table_columns
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.keys import fitting_key, key_bytes
from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.engine.workers.boundaries import passes
from millwheel.engine.workers.bundle.value_sizes import carried
from millwheel.engine.workers.delivery.consumer_keys import Extractor
from millwheel.errors import ExhaustedError, SetupError

_AT_ONCE = 5_000
"""Records that are read in one step of the loop, as by a source: other shards work in between."""

KeyBytes = Callable[[object], bytes]
TableRows = dict[bytes, msgspec.Raw]
"""Rows by the bytes of their keys, as they are encoded."""


def key_bytes_of(extract: Extractor, most_bytes: int) -> KeyBytes:
    """The bytes of a record's key, by its value. As where records are divided by keys: equal keys
    have equal types, and one that cannot be a key, or is longer, raises RecordError."""
    return lambda value: key_bytes(fitting_key(extract(value), most_bytes))


def too_large(where: str, name: str, limit: int, holder: str, rows: str = "") -> str:
    """The error that ends the run where a table is larger than ``holder`` may hold of it."""
    return (
        f"{where}: the table {name!r} has more than the {limit:,} bytes that {holder} may hold of"
        f" it{rows}; leave out broadcast, so that it is divided by its key, or give it more, for"
        f" example broadcast: {{limit: {-(-2 * limit // 1_000_000)}MB}}"
    )


@dataclass(frozen=True, slots=True)
class TableSource:
    """The source of a table, and the meaning of its records. ``partitions`` come in the order of
    their channels. ``finds`` gives the bytes of a row's key, and ``deletes`` decides whether a
    record is not a row; they raise for records that are dead letters elsewhere, as are those of
    more than ``most_bytes``. ``name`` is the table's, ``where`` the line of the enrichment, and
    ``kept`` gives the rows, where they were read before."""

    name: str
    where: str
    source: Source
    partitions: Callable[[], Sequence[Partition]]
    finds: KeyBytes
    deletes: Callable[[object], bool]
    limit_bytes: int
    most_bytes: int
    kept: Callable[[], TableRows] | None = None


class HeldTable:
    """The rows of a table by the bytes of their keys, as they are encoded, once it is ``ready``.
    Keys and rows together may have as many bytes as its limit says."""

    def __init__(self, source: TableSource, wait: Wait) -> None:
        self._source = source
        self._wait = wait
        self._unread: list[Partition] | None = None
        self._reader: Reader | None = None
        self._position = 0
        self._again_at_us = 0
        self.rows: TableRows = {}
        self.size_bytes = 0
        self.ready = False

    @cached_property
    def columns(self) -> TableColumns | None:
        """Its rows as columns, once it is ready; None where they are not alike."""
        return table_columns(self.rows)

    def reads_at(self) -> int:
        """When :meth:`read` goes on (wall clock, µs; MAX_TIME: not before the end of its input is
        announced, or never again)."""
        if self.ready or not self._source.source.bounded:
            return MAX_TIME
        return self._again_at_us

    def read(self, now_us: int) -> None:
        """Read some more of it. Raises SetupError where it cannot be read, or is too large."""
        if now_us < self.reads_at():
            return
        if self._source.kept is not None:
            self._take(self._source.kept())
            return
        if self._unread is None:
            self._unread = list(self._source.partitions())
        try:
            self._read_some(self._unread, now_us)
        except ExhaustedError as ex:
            self._wait.noted(str(ex))
            self._close()
            self._again_at_us = now_us + SECOND
        else:
            self._wait.over()

    def _read_some(self, unread: list[Partition], now_us: int) -> None:
        if not unread:
            self.ready = True
            return
        if self._reader is None:
            self._reader = as_reader(self._source.source.open(unread[0]))
            self._reader.resume([(self._position, b"")])
        chunk = self._reader.read(self._position, _AT_ONCE)
        _, for_rows = carried(chunk.values, self._source.most_bytes)
        for index, value in enumerate(chunk.values):
            if index not in for_rows:
                self._keep(value)
        if chunk.next_position == self._position and not chunk.finished:
            self._again_at_us = now_us + self._source.source.poll_us
        self._position = chunk.next_position
        if chunk.finished:
            self._close()
            self._position = 0
            del unread[0]
            self.ready = not unread

    def _take(self, rows: TableRows) -> None:
        # In place: enrichments have it already.
        self.rows.update(rows)
        self.size_bytes = sum(len(key) + len(row) for key, row in rows.items())
        self._check_size()
        self.ready = True

    def _keep(self, value: object) -> None:
        """Keep a record as the row of its key, or remove that. A record that is a dead letter
        elsewhere does neither."""
        judged = self._judged(value)
        if judged is None:
            return
        key, deleted = judged
        row = None if deleted else msgspec.Raw(encode_value(value))
        before = self.rows.pop(key, None)
        if before is not None:
            self.size_bytes -= len(key) + len(before)
        if row is not None:
            self.rows[key] = row
            self.size_bytes += len(key) + len(row)
            self._check_size()

    def _judged(self, value: object) -> tuple[bytes, bool] | None:
        """(the bytes of its key, whether the key has no row from here on); None for a dead letter
        elsewhere."""
        table = self._source
        try:
            return table.finds(value), table.deletes(value)
        except BaseException as ex:  # from the code of a key, which may be user code
            if passes(ex):
                raise
            return None

    def _check_size(self) -> None:
        limit = self._source.limit_bytes
        if self.size_bytes > limit:
            table, rows = self._source, f" ({len(self.rows):,} rows so far)"
            raise SetupError(too_large(table.where, table.name, limit, "each worker", rows))

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
