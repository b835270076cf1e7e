"""The append form: a commit is one write and one fdatasync to a segment, and then a look for the
seal.

Why that is safe: the sealer creates the seal first and reads the length of the journal afterwards.
A commit that was durable before the seal existed is inside the length. One that was not looks for
the seal after it became durable, sees it, and is never acked, whether it is inside the length or
not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence

from millwheel.adapters.journal.folder import (
    COLLECTED,
    SEAL,
    SEALED_END,
    JournalFolder,
    SegmentFolder,
    segment_name,
)
from millwheel.adapters.journal.follower import certain_groups, groups_between
from millwheel.adapters.journal.reader import load_segment, read_segments, valid_part
from millwheel.adapters.ports import Followed
from millwheel.adapters.spaces.durable import read_whole, write_all
from millwheel.adapters.spaces.files import Files, explained
from millwheel.core.formats.journal_segment import (
    PUT_ID_BYTES,
    JournalEnd,
    JournalPosition,
    SegmentHeader,
    SegmentKind,
    decode_header,
    decode_sealed_end,
    encode_group,
    encode_header,
    encode_sealed_end,
    unpack_end,
)
from millwheel.errors import (
    CorruptionError,
    InvariantError,
    MillwheelError,
    UnavailableError,
    invariant,
)

_SEGMENT_GROUPS = 4_000
"""The most groups of a segment: some 20 s of a busy worker's. Sealing a journal reads its last
segment, recovering a shard all that have not been deleted; while groups are small, their number
decides how long that takes."""


_SMALL_PART = 8
"""Groups of at most this part of the room have zeros written for them first. For larger ones the
zeros would double the bytes written, to save a small part of the time."""


class AppendForm:
    """Segments of about ``segment_bytes``, or of fewer in many groups, that are appended to.
    ``room_bytes``: small groups overwrite that many zeros, which were written before them (0: no
    zeros, files grow)."""

    def __init__(self, files: Files, segment_bytes: int, room_bytes: int = 0) -> None:
        self._files = files
        self._segment_bytes = segment_bytes
        self._room_bytes = room_bytes

    def create(self, folder: JournalFolder) -> AppendWriter:
        return AppendWriter(self._on_files(folder), self._segment_bytes, self._room_bytes)

    def seal(self, folder: JournalFolder) -> int:
        """Seal, then measure, then publish. The first sealer to publish decides for all."""
        folder = self._on_files(folder)
        if (end := _published_end(folder)) is None:
            # The seal first, its name durable, and only then the length. Measured before, a group
            # could be written, synced and acked in between, and no later owner would read it
            # (tests/contract/journals/test_sealing.py tries every interleaving; mutation
            # owner_before_seal).
            seal = SegmentHeader(
                folder.incarnation, 0, 0, os.urandom(PUT_ID_BYTES), SegmentKind.SEAL
            )
            folder.create(SEAL, encode_header(seal))
            folder.create(SEALED_END, encode_sealed_end(folder.incarnation, _measured_end(folder)))
            end = _published_end(folder)
        invariant(end is not None, f"{folder.path} has no sealed end after it was published")
        assert end is not None
        return end.packed()

    def read(
        self, folder: JournalFolder, upto: int, since: JournalPosition | None = None
    ) -> Iterator[list[bytes]]:
        """The entries of each group up to a sealed end; in a live journal, of the groups that are
        durable by now."""
        folder = self._on_files(folder)
        end = _published_end(folder)
        if upto >= 0 and end is not None and end.packed() != upto:
            raise CorruptionError(
                f"{folder.path}/{SEALED_END} says {end}, the range table {unpack_end(upto)}: one of"
                " them is of another run. Point the pipeline at the root and the ZooKeeper path"
                " that belong together"
            )
        if since is not None and upto >= 0:
            yield from groups_between(folder, since, upto)
        else:
            yield from read_segments(folder, end if upto < 0 else unpack_end(upto))

    def follow(self, folder: JournalFolder, since: JournalPosition | None) -> Followed:
        return certain_groups(self._on_files(folder), since)

    def collect(self, folder: JournalFolder) -> None:
        folder = self._on_files(folder)
        end = _published_end(folder)
        if end is None:
            raise InvariantError(
                f"{folder.path} is not sealed: only journals of dead workers are collected"
            )
        folder.begin_collecting(read_segments(folder, end))
        for name in folder.names():
            if name not in (SEAL, SEALED_END, COLLECTED):
                folder.delete(name)

    def _on_files(self, folder: JournalFolder) -> SegmentFolder:
        return SegmentFolder(folder.space, folder.path, folder.incarnation, self._files)


def _published_end(folder: SegmentFolder) -> JournalEnd | None:
    path = f"{folder.path}/{SEALED_END}"
    try:
        data = read_whole(folder.files, path)
    except FileNotFoundError:
        return None
    try:
        return decode_sealed_end(data)
    except CorruptionError as ex:
        raise CorruptionError(
            f"{path}: {ex}. Restore it from a copy of the disk; do not delete it"
        ) from ex


def _measured_end(folder: SegmentFolder) -> JournalEnd:
    """The end of the valid groups. Earlier segments are whole by construction, and checked when
    they are read."""
    segments = folder.segments()
    if not segments:
        return JournalEnd(0, 0)
    last = segments[-1]
    fd = folder.files.open_read(folder.segment_path(last))
    try:
        # A counted group must survive a power cut, even if its writer died between write and
        # fdatasync.
        folder.files.sync(fd)
        segment = load_segment(folder, last, fd)
        return JournalEnd(last, valid_part(folder, segment, fd).end)
    finally:
        folder.files.close(fd)


class AppendWriter:
    """The writer of one incarnation. ``commit`` is for one thread, the rest for any."""

    quick = True

    def __init__(self, folder: SegmentFolder, segment_bytes: int, room_bytes: int = 0) -> None:
        self._folder = folder
        self._room_bytes = room_bytes
        self._files = folder.files
        self._seal = f"{folder.path}/{SEAL}"
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()  # guards the two collections of segments
        self._segments: tuple[int, ...] = ()
        self._forgotten: set[int] = set()
        self._broken: MillwheelError | None = None
        self._put_id = os.urandom(PUT_ID_BYTES)
        self._fd = -1
        self._segment = self._seed = self._offset = self._size = 0
        self._group = self._full_at = 1
        self._roll()
        try:
            # Looks for the seal: it may have come between the claim of the folder and this segment.
            self.commit(())
        except MillwheelError:
            self.close()
            raise

    # --- committing

    def commit(self, entries: Sequence[bytes]) -> int:
        """See :class:`millwheel.adapters.ports.JournalWriter`.

        After UnavailableError from a write that was undone (a full disk) the journal goes on where
        it was; after any other error it answers every call with that error.
        """
        if self._broken is not None:
            raise self._broken
        if entries:
            if self._offset >= self._segment_bytes or self._group >= self._full_at:
                self._roll_or_explain()
            self._append(encode_group(self._seed, self._group, entries))
        # After the sync, never before: a sealer that came in between has measured a length without
        # this group, and an ack now would be for lost work (mutation seal_not_looked_for). Also
        # without entries: an idle writer must notice that it was declared dead (mutation
        # seal_not_noticed_when_idle).
        try:
            sealed = self._files.exists(self._seal)
        except OSError as ex:
            raise self._break(explained(ex, f"look for the seal {self._seal}")) from ex
        if sealed:
            raise self._break(self._folder.fenced())
        return self._segment

    def _append(self, group: bytes) -> None:
        end = self._offset + len(group)
        try:
            if end > self._size and len(group) <= self._room_bytes // _SMALL_PART:
                self._make_room()
            write_all(self._files, self._fd, group, self._offset)
            self._files.sync_data(self._fd)  # before anything is acked (mutation group_not_synced)
        except OSError as ex:
            raise self._failed(ex, end) from ex
        self._offset = end
        self._size = max(self._size, end)
        self._group += 1

    def _make_room(self) -> None:
        """Zeros for the next groups. Syncing groups over zeros takes one write to the disk; where
        the file grows, its file system also writes, and waits for, a record of that. Without space
        for them the file grows."""
        # In front of the end of the groups, the zeros would wipe out acked groups.
        invariant(
            self._size >= self._offset, f"zeros at {self._size}, groups end at {self._offset}"
        )
        try:
            write_all(self._files, self._fd, bytes(self._room_bytes), self._size)
            self._size += self._room_bytes
        except OSError:
            self._files.truncate(self._fd, self._offset)
            self._size = self._offset

    def _failed(self, ex: OSError, end: int) -> MillwheelError:
        """Undo a write that stopped in the middle of a file that grows. One that is complete but
        perhaps not durable must stand: a sealer may have counted it already. Over zeros, the two
        cannot be told apart."""
        error = explained(
            ex, f"write group {self._group} to {self._folder.segment_path(self._segment)}"
        )
        try:
            if self._files.size(self._fd) < end:
                self._files.truncate(self._fd, self._offset)
                self._files.sync(self._fd)
                if self._files.size(self._fd) == self._offset:
                    self._size = self._offset
                    return error
        except OSError:
            pass
        return self._break(
            UnavailableError(
                f"{error}. Whether it is durable is not known, so this process must exit and be"
                " replaced"
            )
        )

    def _break(self, error: MillwheelError) -> MillwheelError:
        self._broken = error
        return error

    # --- segments

    def _roll_or_explain(self) -> None:
        try:
            self._roll()
        except OSError as ex:
            raise explained(ex, f"create {self._folder.segment_path(self._segment + 1)}") from ex

    def _roll(self) -> None:
        """Start the next segment. Its name is durable before anything is written to it; a second
        try after a failure finds its own bytes there."""
        segment = self._segment + 1
        head = encode_header(
            SegmentHeader(self._folder.incarnation, segment, self._group, self._put_id)
        )
        # The header has our put-id: a name with other bytes belongs to another writer, and two
        # writers would overwrite each other's groups.
        if not self._folder.create(segment_name(segment), head):
            raise self._break(self._folder.fenced())
        fd = self._files.open_write(self._folder.segment_path(segment))
        if self._fd >= 0:
            self._files.close(self._fd)
        opened = decode_header(head)
        # Readers stop at a segment that is not the next, or begins with another group.
        invariant(
            (opened.header.segment, opened.header.first_group) == (segment, self._group),
            f"{self._folder.path}: segment {segment} is headed {opened.header}",
        )
        self._fd, self._segment, self._seed, self._offset = fd, segment, opened.seed, opened.start
        self._size = self._offset
        self._full_at = self._group + _SEGMENT_GROUPS
        with self._lock:
            self._segments = (*self._segments, segment)

    def segments(self) -> Sequence[int]:
        """See :class:`millwheel.adapters.ports.JournalWriter`."""
        with self._lock:
            return [segment for segment in self._segments if segment not in self._forgotten]

    def delete_segment(self, segment: int) -> None:
        """See :class:`millwheel.adapters.ports.JournalWriter`. A segment stays on disk while an
        older one is needed."""
        with self._lock:
            invariant(segment < self._segment, f"segment {segment} is still being written to")
            if segment in self._segments:
                self._forgotten.add(segment)
            while self._segments and self._segments[0] in self._forgotten:
                self._unlink(self._segments[0])
                self._forgotten.discard(self._segments[0])
                self._segments = self._segments[1:]
            # A sealer measures the newest one: without it, the journal would seem to have no end.
            invariant(bool(self._segments), f"{self._folder.path} has no segment any more")

    def _unlink(self, segment: int) -> None:
        path = self._folder.segment_path(segment)
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as ex:
            raise explained(ex, f"delete {path}") from ex

    def close(self) -> None:
        """See :class:`millwheel.adapters.ports.JournalWriter`."""
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1
        self._broken = self._broken or InvariantError(f"the journal {self._folder.path} is closed")
