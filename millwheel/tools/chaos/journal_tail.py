"""Follows the journal of a worker from outside while it is written: which shards have committed,
and when.

Works for both forms of journals in a folder. It takes no part in any protocol: entries that are not
readable yet are read next time, and deleted segments are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from millwheel.core.formats.journal_segment import (
    OpenedSegment,
    SegmentKind,
    decode_entries,
    decode_header,
    valid_prefix,
)
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.names import ShardName, Token
from millwheel.errors import CorruptionError

_MAX_HEADER = 512  # bytes: more than the header of a segment takes
SEAL = "SEAL"


class Committed(msgspec.Struct, array_like=True, frozen=True):
    """The head of a commit; its contents are skipped."""

    shard: ShardName
    token: Token


_head = msgspec.msgpack.Decoder(Committed).decode


@dataclass(slots=True)
class JournalTail:
    """One journal. ``folder`` need not be there yet."""

    folder: Path
    number: int = 0
    offset: int = 0
    opened: OpenedSegment | None = None

    def sealed(self) -> bool:
        """Whether the journal has been sealed (append form)."""
        return (self.folder / SEAL).exists()

    def new(self) -> Iterator[Committed]:
        """The commits since the last call."""
        for number in self._segments():
            with suppress(OSError, CorruptionError, *DAMAGE):
                if number != self.number:
                    self.number, self.offset, self.opened = number, 0, None
                yield from self._groups()

    def _segments(self) -> list[int]:
        numbers = (int(path.stem) for path in self.folder.glob("*.log") if path.stem.isdecimal())
        return sorted(number for number in numbers if number >= self.number)

    def _groups(self) -> Iterator[Committed]:
        with (self.folder / f"{self.number:08d}.log").open("rb") as file:
            if self.opened is None:
                self.opened = decode_header(file.read(_MAX_HEADER))
                self.offset = self.opened.start
            if self.opened.header.kind is SegmentKind.SEAL:
                return
            file.seek(self.offset)
            data = file.read()
        prefix = valid_prefix(data, replace(self.opened, start=0))
        header = replace(self.opened.header, first_group=prefix.next_group)
        self.opened, self.offset = replace(self.opened, header=header), self.offset + prefix.end
        for body in prefix.bodies:
            yield from map(_head, decode_entries(data, body))
