"""Files in partitioned folders, rolled by size and time, in a folder or in an object store.

A batch is divided by folder. Each part of it goes into the open file of its folder
(``open_files.py``), whose whole new content is hidden, or in the committable, until the batch is
published.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import msgspec
import xxhash

from millwheel.connect.sinks.base import LostError, Refused, SinkBatch, SinkRecord, Writer
from millwheel.connect.sinks.files.open_files import OpenFile, OpenFiles, Roll
from millwheel.connect.sinks.files.paths import Partitioning
from millwheel.connect.sinks.result_rows import records_of
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.model.damage import checked
from millwheel.core.model.lease import Lease
from millwheel.errors import CorruptionError, RecordError


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """One file and its content from this batch on: ``size`` bytes with the xxh3-64 ``checksum``,
    either in ``data`` or under the hidden name ``temp``. ``final`` is a path below the sink's
    folder."""

    final: str
    temp: str
    rows: int
    size: int
    checksum: int
    data: bytes = b""

    def __post_init__(self) -> None:
        """Raises ValueError for names that lead elsewhere."""
        if (
            not self.final
            or "\0" in self.final
            or any(part in ("", ".", "..") for part in self.final.split("/"))
        ):
            raise ValueError(f"{self.final!r} is not a path below the folder of a sink")
        if not self.temp or "/" in self.temp or "\0" in self.temp:
            raise ValueError(f"{self.temp!r} is not a name of a file")


class Pieces(msgspec.Struct, frozen=True, array_like=True):
    """All pieces of batch ``number``."""

    number: int
    pieces: list[Piece]


pack = msgspec.msgpack.Encoder().encode
unpack = checked(msgspec.msgpack.Decoder(Pieces).decode, "the files of a batch")
"""Decodes :class:`Pieces`. Raises CorruptionError for any other bytes."""


LARGE_RECORDS = 2_000
"""From this many records on, a batch is encoded, written and synced on another thread; waking one
is cheaper."""

Fitting = Callable[[Sequence[SinkRecord]], tuple[list[SinkRecord], list[Refused]]]
"""The records that the format can hold, and the others."""


class Destination(Protocol):
    """The folder or bucket that takes a sink's files.

    ``hide`` and ``publish`` may run at the same time on two threads.
    """

    name: str
    small_bytes: int

    def check(self, identity: str) -> None: ...

    def adopt(self, former: str, identity: str) -> None: ...

    def discard(self, identity: str) -> str: ...

    def hide(self, contents: list[tuple[str, bytes]]) -> None: ...

    def publish(self, piece: Piece, number: int) -> None: ...

    def sweep(self, shard: str, token: int, committed: set[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are laid out in files. ``form`` is the suffix of files. ``latest``: the shard has
    one file with its current rows, which each batch replaces."""

    form: str
    partitioning: Partitioning | None
    roll: Roll | None = None
    latest: bool = False


def _wall_us() -> int:
    return time.time_ns() // 1_000


class LayoutWriter(Writer):
    """Writes the batches of one shard. Batches are published one after the other, because each
    version of a file includes the rows of the versions before it."""

    publishes_aside = True
    prepares_aside = LARGE_RECORDS
    publishes_in_order = True

    def __init__(
        self,
        encode: Callable[[SinkBatch], bytes],
        layout: Layout,
        destination: Destination,
        shard: str,
        token: int,
        now_us: Callable[[], int] = _wall_us,
        fitting: Fitting | None = None,
    ) -> None:
        self._encode = encode
        self._fitting = fitting
        self._layout = layout
        self._destination = destination
        self._shard = shard
        self._token = token
        self._now_us = now_us
        self._files = OpenFiles(layout.form, layout.roll)
        self._refused: list[Refused] = []
        self.lane = f"files {destination.name} {shard}"

    def prepare(self, batch: SinkBatch) -> bytes:
        former = self._files.copy()
        try:
            return self._prepared(batch)
        except BaseException:
            # The same batch comes again: rows that were added of it would stand in its files twice
            # (test_a_batch_that_is_prepared_again_is_in_its_files_once).
            self._files, self._refused = former, []
            raise

    def _prepared(self, batch: SinkBatch) -> bytes:
        pieces, hidden = [], []
        if self._fitting is not None and not batch.columns:
            records, self._refused = self._fitting(batch.records)
            batch = SinkBatch(batch.number, batch.attempt, records)
        for number, (folder, part) in enumerate(self._divided(batch)):
            rows = len(part.records) + sum(map(len, part.columns))
            file = self._file(folder, part, rows)
            temp = hidden_name(self._shard, batch.number, f"{batch.attempt}-{number}")
            small = len(file.content) <= self._destination.small_bytes
            checksum = xxhash.xxh3_64_intdigest(file.content)
            data = file.content if small else b""
            pieces.append(Piece(file.final, temp, file.rows, len(file.content), checksum, data))
            if not small:
                hidden.append((temp, file.content))
        if hidden:
            self._destination.hide(hidden)
        return pack(Pieces(batch.number, pieces))

    def take_refused(self) -> list[Refused]:
        refused, self._refused = self._refused, []
        return refused

    def publish(self, committable: bytes) -> None:
        batch = unpack(committable)
        for piece in batch.pieces:
            try:
                self._destination.publish(piece, batch.number)
            except LostError as ex:
                if self._layout.latest:
                    raise
                raise CorruptionError(
                    f"{ex}, with {piece.rows} rows of results; put it back, or start again with a"
                    " new root and path"
                ) from ex

    def sweep(self, committables: list[bytes]) -> None:
        committed = {
            piece.temp for committable in committables for piece in unpack(committable).pieces
        }
        self._destination.sweep(self._shard, self._token, committed)

    def _file(self, folder: str, part: SinkBatch, rows: int) -> OpenFile:
        data = self._encode(part)
        if self._layout.latest:
            return OpenFile(f"part-{self._shard}.{self._layout.form}", 0, rows, data)
        name = f"part-{self._shard}-{part.number:08d}.{self._layout.form}"
        return self._files.add(
            folder, f"{folder}/{name}" if folder else name, data, rows, self._now_us()
        )

    def _divided(self, batch: SinkBatch) -> Sequence[tuple[str, SinkBatch]]:
        """The batch, divided by folder. Records without a folder are refused."""
        partitioning = self._layout.partitioning
        if partitioning is None:
            return [("", batch)]
        divided = [partitioning.divided(columns) for columns in batch.columns]
        if batch.columns and None not in divided:
            folders: dict[str, list[ColumnBatch]] = {}
            for folder, part in chain.from_iterable(filter(None, divided)):
                folders.setdefault(folder, []).append(part)
            return [
                (folder, SinkBatch(batch.number, batch.attempt, [], columns))
                for folder, columns in folders.items()
            ]
        parts: dict[str, list[SinkRecord]] = {}
        for record in chain(batch.records, *map(records_of, batch.columns)):
            try:
                parts.setdefault(partitioning.folder(record), []).append(record)
            except RecordError as ex:
                self._refused.append(Refused(record, str(ex)))
        return [
            (folder, SinkBatch(batch.number, batch.attempt, records))
            for folder, records in parts.items()
        ]


def hidden_name(shard: str, number: int, attempt: str) -> str:
    """The file of one attempt (``<token>-<counter>``) at a batch."""
    return f"part-{shard}-{number:08d}-{attempt}.tmp"


def left_behind(names: list[str], shard: str, token: int) -> list[str]:
    """The hidden files of the former owners of a shard.

    Files of newer owners stay: we may be the zombie, and they may be about to publish them.
    """
    ours, lease = re.compile(rf"part-{re.escape(shard)}-\d+-(\d+)-[^.]*\.tmp"), Lease(token)
    matches = ((name, ours.fullmatch(name)) for name in names)
    return [name for name, parts in matches if parts and lease.outlived(int(parts[1]))]
