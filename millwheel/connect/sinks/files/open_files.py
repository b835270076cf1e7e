"""Decides which file takes the rows of a batch, and when a file is closed for good.

A row never moves to another file. While a file is open, each batch replaces it with one that has
the same rows and more. Once closed, it is final. So there are no small files to compact, and at
every moment a row is in exactly one file.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Annotated

import msgspec

from millwheel.connect.formats.avro.containers import joined
from millwheel.connect.options import Option
from millwheel.core.model.limits import size_bytes
from millwheel.core.model.times import duration_us

MOST_ROLL_BYTES = 1_000_000_000
"""An open file is held in memory and written in one piece."""
MOST_OPEN = 64
"""Files that a shard keeps open. To open one more, it closes the file that was changed longest
ago."""
# of all open files of a shard, in memory, however small the option ``size`` is
_LEAST_OPEN_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Roll:
    """A file is closed once it has ``size`` bytes, or is open for ``every_us``."""

    size: int
    every_us: int


class RollOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When growing files are closed, for ``roll`` of a sink of files."""

    size: Annotated[
        str, Option("128MB", text="a file that grows is closed once it has this many bytes")
    ] = "128MB"
    every: Annotated[str | int, Option("10m", python="Duration", text="or once it is this old")] = (
        "10m"
    )

    def roll(self) -> Roll:
        """The checked value. Raises ValueError, with a sentence."""
        try:
            size, every_us = size_bytes(self.size), duration_us(self.every)
        except ValueError as ex:
            raise ValueError(f"option 'roll': {ex}") from None
        if not 1 <= size <= MOST_ROLL_BYTES or every_us < 1:
            raise ValueError(
                "option 'roll' closes files at once, or later than at 1GB; write for example roll:"
                " {size: 128MB, every: 10m}"
            )
        return Roll(size, every_us)


class OpenFile(msgspec.Struct, frozen=True):
    """``final`` is its path; ``since_us`` is when it was begun."""

    final: str
    since_us: int
    rows: int = 0
    content: bytes = b""


class OpenFiles:
    """The open files of one shard, by folder. A new owner begins new files, so those of the former
    owner are final."""

    def __init__(self, form: str, roll: Roll | None) -> None:
        self._form = form
        self._roll = roll
        self._open: dict[str, OpenFile] = {}

    def add(self, folder: str, fresh: str, data: bytes, rows: int, now_us: int) -> OpenFile:
        """The file that takes these rows: the open one of the folder, or a new one at the path
        ``fresh``. Its content is complete."""
        there = self._open.get(folder)
        if (
            there is not None
            and self._roll is not None
            and now_us >= there.since_us + self._roll.every_us
        ):
            there = None
        joined = None if there is None else join(self._form, there.content, data)
        file = (
            OpenFile(fresh, now_us, rows, data)
            if there is None or joined is None
            else OpenFile(there.final, there.since_us, there.rows + rows, joined)
        )
        self._keep(folder, file)
        return file

    def copy(self) -> OpenFiles:
        """The open files as they are now, unaffected by later additions."""
        files = OpenFiles(self._form, self._roll)
        files._open = dict(self._open)
        return files

    def _keep(self, folder: str, file: OpenFile) -> None:
        self._open.pop(folder, None)
        if self._roll is None or len(file.content) >= self._roll.size:
            return
        self._open[folder] = file
        room = max(self._roll.size, _LEAST_OPEN_BYTES)
        while (
            len(self._open) > MOST_OPEN
            or sum(len(each.content) for each in self._open.values()) > room
        ):
            # The dict is ordered by the last change, so this closes the file that has had no new
            # rows for longest.
            del self._open[next(iter(self._open))]


def join(form: str, old: bytes, new: bytes) -> bytes | None:
    """One file with the rows of both; None when the columns of the second do not fit the first."""
    if form == "jsonl":
        return old + new
    if form == "avro":
        return joined(old, new)
    return _joined_csv(old, new) if form == "csv" else _joined_parquet(old, new)


def _joined_csv(old: bytes, new: bytes) -> bytes | None:
    header, _, rows = new.partition(b"\n")
    # A quoted name may hold a line break. Then ``header`` is only a part of the header, and the
    # files are not joined.
    return old + rows if old.startswith(header + b"\n") and b'"' not in header else None


def _joined_parquet(old: bytes, new: bytes) -> bytes | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(io.BytesIO(data), use_threads=False) for data in (old, new)]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, TypeError):
        return None
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd")
    return bytes(out.getvalue())
