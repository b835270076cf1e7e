"""Journals in files, append form: for local disks and shared file systems with strong consistency.

    journal/<incarnation>/00000001.log …   segments: group commits, one checksummed append each
    journal/<incarnation>/SEAL             created by the sealer, never deleted
    journal/<incarnation>/SEALED_END       what counts, decided once: segment and offset

A commit is one write, one fdatasync, and then, before anything is acked, one look for the seal. The sealer
creates the seal and only then reads how far the journal is valid. So a commit either was complete before the
seal, and is inside the valid length, or its writer sees the seal and acks nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from millwheel.adapters.files import create_if_absent, setup_error, sync_folder
from millwheel.core.segment import decode_group, encode_group, next_valid
from millwheel.errors import CorruptionError, FencedError, UnavailableError

SEGMENT_BYTES = 64 << 20
_OFFSET_BITS = 40
_SEAL, _END = "SEAL", "SEALED_END"


class FileJournal:
    """The writer of one incarnation."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._seal = str(folder / _SEAL)
        self._segment_bytes = segment_bytes
        self._group = 0
        self._segments: list[int] = []
        self._broken: Exception | None = None
        self._fd = -1
        self._size = 0
        self._roll()

    def commit(self, entries: Sequence[bytes]) -> int:
        """See :class:`millwheel.ports.JournalWriter`."""
        if self._broken is not None:
            raise self._broken
        if entries:
            self._append(encode_group(self._group + 1, entries))
            self._group += 1
        if os.access(self._seal, os.F_OK):
            self._broken = FencedError(f"the journal {self._folder.name} is sealed: its ranges belong to others")
            raise self._broken
        segment = self._segments[-1]
        if self._size >= self._segment_bytes:
            self._roll()
        return segment

    def segments(self) -> Sequence[int]:
        return list(self._segments)

    def delete_segment(self, segment: int) -> None:
        """Forget a finished segment."""
        if segment in self._segments[:-1]:
            self._segments.remove(segment)
            (self._folder / _segment_name(segment)).unlink(missing_ok=True)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
            os.fdatasync(self._fd)
        except OSError as ex:
            self._broken = setup_error(ex, "writing the journal", self._folder)
            self._cut_back()
            raise self._broken from ex
        self._size += len(data)

    def _cut_back(self) -> None:
        """A failed write may have left half a group; what cannot be cut off is torn, which readers expect."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            pass

    def _roll(self) -> None:
        number = self._segments[-1] + 1 if self._segments else 1
        path = self._folder / _segment_name(number)
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
            sync_folder(self._folder)
        except OSError as ex:
            self._broken = setup_error(ex, "creating a journal segment", path)
            raise self._broken from ex
        self.close()
        self._fd, self._size = fd, 0
        self._segments.append(number)


class FileJournals:
    """All journals below ``<root>/journal``."""

    def __init__(self, root: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = Path(root) / "journal"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._segment_bytes = segment_bytes

    def create(self, incarnation: str) -> FileJournal:
        """See :class:`millwheel.ports.Journals`."""
        folder = self._folder / incarnation
        try:
            folder.mkdir()
            sync_folder(self._folder)
        except FileExistsError:
            raise FencedError(f"the journal {incarnation} exists or is sealed; an incarnation is never used twice") from None
        except OSError as ex:
            raise setup_error(ex, "creating the journal", folder) from ex
        return FileJournal(folder, self._segment_bytes)

    def seal(self, incarnation: str) -> int:
        """See :class:`millwheel.ports.Journals`."""
        folder = self._folder / incarnation
        end = folder / _END
        try:
            folder.mkdir(exist_ok=True)
            create_if_absent(folder / _SEAL, b"sealed\n")
            if not end.exists():
                create_if_absent(end, str(self._valid_end(incarnation)).encode())
            return int(end.read_bytes())
        except OSError as ex:
            raise setup_error(ex, "sealing the journal", folder) from ex

    def read(self, incarnation: str, upto: int) -> Iterator[bytes]:
        """See :class:`millwheel.ports.Journals`."""
        last, end = (upto >> _OFFSET_BITS, upto & ((1 << _OFFSET_BITS) - 1)) if upto >= 0 else (-1, -1)
        expected = 0
        segments = self._segments(incarnation)
        for number in segments:
            if upto >= 0 and number > last:
                return
            data = self._load(incarnation, number)
            is_last = number == (last if upto >= 0 else segments[-1])
            limit = end if upto >= 0 and is_last else len(data)
            offset = 0
            while offset < limit:
                group = decode_group(data, offset)
                if group is None or group.end > limit:
                    if is_last and upto < 0 and next_valid(data, offset) < 0:
                        return
                    raise self._damaged(incarnation, number, offset)
                if expected and group.number != expected:
                    raise self._damaged(incarnation, number, offset)
                expected, offset = group.number + 1, group.end
                yield from group.entries
        if upto >= 0 and end > 0 and last not in segments:
            raise self._damaged(incarnation, last, 0)

    def incarnations(self) -> Sequence[str]:
        return sorted(path.name for path in self._folder.iterdir() if path.is_dir())

    def collect(self, incarnation: str) -> None:
        """Delete the segments of a sealed journal; the seal stays."""
        folder = self._folder / incarnation
        if not (folder / _END).exists():
            raise UnavailableError(f"the journal {incarnation} is not sealed; only sealed journals are collected")
        for number in self._segments(incarnation):
            (folder / _segment_name(number)).unlink(missing_ok=True)

    def _segments(self, incarnation: str) -> list[int]:
        """Existing segments in order; they may start late (collected), but have no gaps."""
        folder = self._folder / incarnation
        numbers = sorted(int(path.stem) for path in folder.glob("*.log"))
        for before, after in zip(numbers, numbers[1:], strict=False):
            if after != before + 1:
                raise self._damaged(incarnation, before + 1, 0)
        return numbers

    def _load(self, incarnation: str, number: int) -> bytes:
        path = self._folder / incarnation / _segment_name(number)
        try:
            return path.read_bytes()
        except OSError as ex:
            raise setup_error(ex, "reading a journal segment", path) from ex

    def _valid_end(self, incarnation: str) -> int:
        """How far the journal is valid: all its segments but the last in full, the last up to a torn group."""
        segments = self._segments(incarnation)
        end = 0
        for number in segments:
            data, offset = self._load(incarnation, number), 0
            while (group := decode_group(data, offset)) is not None:
                offset = group.end
            torn = offset < len(data)
            if torn and (number != segments[-1] or next_valid(data, offset) >= 0):
                raise self._damaged(incarnation, number, offset)
            end = number << _OFFSET_BITS | offset
        return end

    def _damaged(self, incarnation: str, segment: int, offset: int) -> CorruptionError:
        path = self._folder / incarnation / _segment_name(segment)
        return CorruptionError(
            f"journal segment {path} is damaged or missing at byte {offset}: recovery stops rather than skip commits. "
            "Restore the file from a copy; if there is none, start from a savepoint with a new root"
        )


def _segment_name(number: int) -> str:
    return f"{number:08d}.log"
