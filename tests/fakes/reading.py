"""Reads a source to its end, in reads of a chosen size, checking the contract of a reader on the
way."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millwheel.connect.kinds import build_source
from millwheel.connect.sources.base import Partition, Reader, Reject, Source
from millwheel.core.pipeline.spec import SourceSpec


@dataclass
class Everything:
    """All that was read: positions and values of records, rejects, where reading ended, and its
    notes."""

    records: list[tuple[int, Any]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    next_position: int = 0
    finished: bool = False
    note: bytes = b""
    decided: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def notes(self) -> list[tuple[int, bytes]]:
        """What a reader is told that goes on where this one ended."""
        return [
            (self.next_position, self.note),
            *(d for d in self.decided if d[0] >= self.next_position),
        ]

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self.records]

    @property
    def rejected(self) -> list[tuple[int, Any]]:
        return [(reject.position, reject.raw) for reject in self.rejects]

    def after(self, position: int) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
        """What has a position beyond ``position``."""
        return (
            [record for record in self.records if record[0] > position],
            [reject for reject in self.rejected if reject[0] > position],
        )


def files(
    path: Path | str, kind: str = "jsonl", schema: Any = None, fields: Any = None, **options: Any
) -> Source:
    return build_source(
        SourceSpec("files", {"path": str(path), "format": kind, **options}), "/", schema, fields
    )


def open_file(
    path: Path, kind: str = "jsonl", schema: Any = None, fields: Any = None, **options: Any
) -> Reader:
    """A reader of one file."""
    return files(path, kind, schema, fields, **options).open(Partition(path.name))


def read_on(reader: Any, position: int = 0, size: int = 1_000, columns: bool = False) -> Everything:
    """Read until the reader is finished, or has nothing for now. ``size`` is in records, or bytes
    for columns."""
    found = Everything(next_position=position)
    while not found.finished:
        chunk = (
            reader.read_frame(found.next_position, size)
            if columns
            else reader.read(found.next_position, size)
        )
        values = chunk.frame.to_dicts() if columns else chunk.values
        positions = [int(position) for position in chunk.positions]
        _check(chunk, positions, values, found.next_position)
        nothing = chunk.next_position == found.next_position and chunk.begins is None
        found.records += zip(positions, values, strict=True)
        found.rejects += chunk.rejects
        if chunk.next_position > found.next_position:
            found.note = chunk.note
        if chunk.begins is not None:
            found.decided.append(chunk.begins)
        found.next_position, found.finished = chunk.next_position, chunk.finished
        if nothing:
            break
    return found


def _check(chunk: Any, positions: list[int], values: list[Any], before: int) -> None:
    assert len(positions) == len(values) == len(chunk)
    everything = sorted(positions + [reject.position for reject in chunk.rejects])
    assert len(set(everything)) == len(everything)
    assert positions == sorted(positions)
    assert [reject.position for reject in chunk.rejects] == sorted(
        reject.position for reject in chunk.rejects
    )
    assert all(before < position <= chunk.next_position for position in everything)
