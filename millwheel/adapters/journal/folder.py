"""The folder of one journal: the meaning of its names, and its seal.

    <incarnation>/00000001.log ...     segments (append form) or group commits (create form)
    <incarnation>/SEAL                 append form: no commit may be acked once it exists
    <incarnation>/SEALED_END           append form: where the journal ends; the first one to publish
                                       it decides
    <incarnation>/COLLECTED            the segments are being deleted, or were; records whether they
                                       were empty
    <incarnation>/.tmp-...             being written

A folder is claimed by making it, once and for ever: by its writer, or by the sealer of a journal
that was never written. It is never removed, nor is a seal: a zombie may come back after any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from millwheel.adapters.spaces.files import Files
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.errors import CorruptionError, FencedError

SEAL, SEALED_END, COLLECTED = "SEAL", "SEALED_END", "COLLECTED"
_SUFFIX = ".log"
_NO_ENTRIES = b"no entries\n"
_END = re.compile(rb"^end ([0-9]{1,18})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """The folder of the journal of ``incarnation``."""

    space: ObjectSpace
    path: str
    incarnation: str

    def segment_path(self, segment: int) -> str:
        return f"{self.path}/{segment_name(segment)}"

    def segments(self) -> list[int]:
        """The segments that exist, in order."""
        return sorted(segments_in(self.names()))

    def claim(self) -> None:
        """Make the folder. Raises FencedError when there is one: incarnations are never reused."""
        if not self.space.claim(self.path):
            raise FencedError(
                f"the journal {self.path} exists: this incarnation was used or sealed before. "
                "Start the worker again, under a new name"
            )

    def ensure(self) -> None:
        """Make the folder unless it exists."""
        self.space.claim(self.path)

    def names(self) -> list[str]:
        """Everything in the folder."""
        return self.space.names(self.path)

    def exists(self, name: str) -> bool:
        return self.space.exists(f"{self.path}/{name}")

    def create(self, name: str, data: bytes) -> bool:
        """Make an object durable unless the name is taken; True when it is ours."""
        return self.space.create(f"{self.path}/{name}", data)

    def delete(self, name: str) -> None:
        """Delete an object, if it exists."""
        self.space.delete(f"{self.path}/{name}")

    def begin_collecting(self, groups: Iterator[list[bytes]], end: int = 0) -> None:
        """Record that the segments may go, whether there was anything in them (``groups``, read if
        need be), and which of them is the seal (``end``), where that is one."""
        if self.exists(COLLECTED):
            return
        try:
            empty = not any(groups)
        except (CorruptionError, FencedError):
            empty = False
        self.create(
            COLLECTED, (_NO_ENTRIES if empty else b"") + (b"end %d\n" % end if end else b"")
        )

    def collected_end(self) -> int:
        """The seal of a journal whose collection has begun, 0 when it has not."""
        try:
            match = _END.search(self.space.get(f"{self.path}/{COLLECTED}"))
        except FileNotFoundError:
            return 0
        return int(match[1]) if match else 0

    def was_empty(self) -> bool:
        """True when the journal was collected and held nothing. A range table may name it all the
        same: its worker was so slow to join that it counted as dead before it was given its first
        shard."""
        if not self.exists(COLLECTED):
            return False
        return self.space.get(f"{self.path}/{COLLECTED}").startswith(_NO_ENTRIES)

    def fenced(self) -> FencedError:
        return FencedError(
            f"the journal of {self.incarnation} is sealed: its shards belong to others. This"
            " process must exit; a new one takes its place"
        )

    def damaged(self, segment: int, offset: int, what: str) -> CorruptionError:
        return CorruptionError(
            f"{self.segment_path(segment)}: damaged at offset {offset}: {what}. Nothing behind it"
            " can be trusted. Restore the file from a copy of the disk, or start the pipeline on a"
            " new root and replay its input"
        )

    def refuse_gap(self, missing: int) -> NoReturn:
        """The error for an absent segment: it was collected, or it is lost."""
        if self.exists(COLLECTED):
            raise FencedError(
                f"the journal of {self.incarnation} was collected: a process that still needs it"
                " works from an old range table, and newer snapshots exist. Start again from the"
                " table as it is now"
            )
        raise CorruptionError(
            f"{self.segment_path(missing)} is missing, although segments before or behind it exist"
            " or were sealed. Restore the file from a copy of the disk, or start the pipeline on a"
            " new root and replay its input"
        )


@dataclass(frozen=True, slots=True)
class SegmentFolder(JournalFolder):
    """The same on a file system, for the form that writes into the middle of files."""

    files: Files


def segment_name(segment: int) -> str:
    """The file name of a segment."""
    return f"{segment:08d}{_SUFFIX}"


def segments_in(names: list[str]) -> list[int]:
    """The segment numbers among the names in a folder."""
    numbers = (name[: -len(_SUFFIX)] for name in names if name.endswith(_SUFFIX))
    return [int(number) for number in numbers if number.isdecimal()]
