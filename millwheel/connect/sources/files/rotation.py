"""A growing file, which log rotation may rename, replace, truncate, compress or delete.

Positions count the bytes that were read under one name, over all files that had it. Which file
continues at which position does not follow from the files' content, so it is a *decision*: the
reader returns it, and continues once it is durable. A later reader that starts before that position
reads the former file to the decided end, under any name in the folder, and then the
next one.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
import xxhash

from millwheel.connect.sources.files.inputs import NOTHING, InputPosition, cannot_read, read_fully
from millwheel.core.model.damage import checked
from millwheel.errors import ExhaustedError, SetupError

log = logging.getLogger(__name__)

GENERATION = 1 << 48
"""Positions without a note have an earlier form: those of the n-th file under a name began at n
times this."""
# Fixed: of a file's beginning, by which a rotated file is recognized; notes are stored
_CHECKED_BYTES = 256
_LEAP = 1 << 40
"""A dead reader may have sent up to this many bytes beyond the committed position, and once the
bytes are gone their number is unknown. The input that replaces them gets positions beyond this
range: with the same positions, consumers would drop it as already applied."""


class FileMark(msgspec.Struct, frozen=True, array_like=True):
    """A file whose first byte follows position ``base``. The last bytes before ``offset`` have the
    ``digest``. ``followers``: the files that have had its name since; their positions are not
    decided yet."""

    base: int
    device: int
    inode: int
    offset: int = 0
    digest: int = 0
    followers: tuple[FileMark, ...] = ()

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return self.device, self.inode


_encode = msgspec.msgpack.Encoder().encode
_decode = checked(msgspec.msgpack.Decoder(FileMark).decode, "which file a followed source reads")


class FollowedInput:
    """The bytes under one name, as ``tail -F`` finds them.

    Once the open file is read to its end and the name belongs to another, non-empty file, reading
    continues there. If the file has become shorter, or its bytes have changed, it was truncated and
    is read from its start. docs/pipeline.md lists what can be lost in that case.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._named = _NamedFile(path)
        self._fd = -1
        self._file: FileMark | None = None
        self._next: deque[FileMark] = deque()
        self._followers: deque[FileMark] = deque()
        self._read_to = 0
        self._seen = (-1, -1)
        self._life = 0
        self._is_gone = self._was_cut = False
        self._stops_in = (-1, -1)
        self._stops_at = 0

    def stop_at(self, end: tuple[int, ...]) -> None:
        """Return nothing beyond the size of the file when it was listed, and nothing of files that
        got its name later. ``end`` is (device, inode, size)."""
        self._stops_in, self._stops_at = (end[0], end[1]), end[2]

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """Continue as the earlier reader would: with the file of the first note, if there is one,
        then the decided ones."""
        marks = [_decode(note) if note else None for _, note in notes]
        self._turn_to(marks[0])
        self._next = deque(mark for mark in marks[1:] if mark is not None)
        decided = {mark.identity for mark in self._next}
        later = marks[0].followers if marks[0] is not None else ()
        self._followers = deque(mark for mark in later if mark.identity not in decided)

    def locate(self, position: int) -> InputPosition:
        while self._next and position >= self._next[0].base:
            self._turn_to(self._next.popleft())
        if self._file is None:
            return self._begin(position)
        if self._fd < 0 and not self._reopen():
            return self._without_it(position)
        self._note_new_file()
        # Before each read, not only at the end of the file: a file that comes and is renamed while
        # this one is read would never be read. See mistake only_the_last_name_counts.
        offset = self._read_to = position - self._file.base
        if not self._unchanged(offset):
            return self._without_it(position) if self._next else self._truncated(position, offset)
        return InputPosition(self._file.base, offset, self._life)

    def read_at(self, offset: int, size: int) -> bytes:
        if self._next and self._file is not None:
            size = max(min(size, self._next[0].base - self._file.base - offset), 0)
        if self._stops_here():
            size = max(min(size, self._stops_at - offset), 0)
        data = read_fully(self._fd, offset, size)
        self._read_to = max(self._read_to, offset + len(data))
        return data

    def ended(self) -> bool:
        """True once it is decided where the file ends."""
        return bool(self._next)

    def succeeded(self) -> tuple[int, bytes] | None:
        """Called when no complete line is left: the decision that the file ends here, if another
        file has its name."""
        if self._fd < 0 or self._file is None or self._next or self._stops_here():
            return None
        self._note_new_file()
        return self._decided(self._file.base + self._read_to) if self._followers else None

    def note(self, position: int) -> bytes:
        """The facts that a later reader needs to continue at a position."""
        if self._fd < 0 or self._file is None:
            return b""
        self._file = _marked(self._fd, self._file.base, position - self._file.base)
        return _encode(msgspec.structs.replace(self._file, followers=tuple(self._followers)))

    def damage(self) -> str:
        return ""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _stops_here(self) -> bool:
        return self._file is not None and self._file.identity == self._stops_in

    # --- decisions --------------------------------------------------------------------------------

    def _begin(self, position: int) -> InputPosition:
        """Start without a note: with the first file, or at a position of the earlier form."""
        if self._next:
            return InputPosition(skip_to=self._next[0].base)
        if not position:
            return self._input_position(self._decided(0))
        if (fd := self._named.open()) is None:
            return NOTHING
        base, offset = position - position % GENERATION, position % GENERATION
        if os.fstat(fd).st_size >= offset and (not offset or os.pread(fd, 1, offset - 1) == b"\n"):
            self._turn_to(_marked(fd, base, offset))
            self._fd = fd
            return self.locate(position)
        os.close(fd)
        self._warn_of_loss(offset)
        return self._input_position(self._decided(base + GENERATION))

    def _without_it(self, position: int) -> InputPosition:
        """The former file cannot be found: continue with the next one, or with the one that has its
        name now."""
        assert self._file is not None
        self.close()
        self._is_gone = True
        if self._next:
            log.warning(
                "a file that was %s is gone; its records that had not been applied are lost",
                self._path,
            )
            return InputPosition(skip_to=self._next[0].base)
        # A leap, because the dead reader may have sent bytes of the former file beyond this
        # position: see mistake what_goes_on_takes_positions_that_were_used.
        mark = self._decided(position + _LEAP)
        if mark is not None:
            self._warn_of_loss(position - self._file.base)
            self._file = None
        return self._input_position(mark)

    def _truncated(self, position: int, offset: int) -> InputPosition:
        """Go on at the start of the open file, once it holds something."""
        if not self._was_cut:
            # Remembered until the file holds something: then it may be as long as it was. See
            # mistake a_truncation_is_forgotten_while_the_file_is_empty.
            self._was_cut = True
            log.warning(
                "the followed file %s was truncated after %d bytes of it had been read; reading"
                " starts again at its beginning, and bytes written between the last poll and the"
                " truncation are lost",
                self._path,
                offset,
            )
        mark = _marked(self._fd, position + _LEAP, min(os.fstat(self._fd).st_size, _CHECKED_BYTES))
        decided = (
            self._add(mark)
            if mark.offset
            else self._decided(position + _LEAP)
            if self._followers
            else None
        )
        if decided is not None:
            self._file = None  # it stays open: it may have no name left
        return self._input_position(decided)

    def _decided(self, position: int) -> tuple[int, bytes] | None:
        """Decide that the next file of that name, or the present one, continues at ``position``.
        None while it is empty."""
        while self._followers:
            mark = self._named.mark_of(self._followers[0], position)
            if mark is not None and mark.offset:
                self._followers.popleft()
                return self._add(mark)
            if mark is not None and self._named.identity() == mark.identity:
                return None
            self._followers.popleft()  # it is gone, or nothing was ever written into it
        mark = self._named.mark(position)
        return None if mark is None or not mark.offset else self._add(mark)

    def _add(self, mark: FileMark) -> tuple[int, bytes]:
        self._next.append(mark)
        return mark.base, _encode(mark)

    def _input_position(self, begins: tuple[int, bytes] | None) -> InputPosition:
        return NOTHING if begins is None else InputPosition(begins=begins)

    def _warn_of_loss(self, offset: int) -> None:
        log.warning(
            "the followed file %s was replaced while it was not open here; anything that the former"
            " file had after %d bytes is lost",
            self._path,
            offset,
        )

    # --- the file at hand -------------------------------------------------------------------------

    def _turn_to(self, mark: FileMark | None) -> None:
        if self._fd >= 0 and mark is not None:
            status = os.fstat(self._fd)
            if (status.st_dev, status.st_ino) != mark.identity:
                self.close()
        self._file = mark
        self._life += 1
        self._seen = (-1, -1)
        self._is_gone = self._was_cut = False

    def _unchanged(self, offset: int) -> bool:
        """False when the file is shorter than the bytes read so far, or these bytes have
        changed."""
        assert self._file is not None
        status = os.fstat(self._fd)
        length = self._next[0].base - self._file.base if self._next else offset
        if self._was_cut or status.st_size < length:
            return False
        seen = (status.st_size, status.st_mtime_ns)
        if seen != self._seen and not _fits(self._fd, self._file):
            return False
        self._seen = seen
        return True

    def _reopen(self) -> bool:
        """Open the file again, under any name in its folder; False when it is gone, or
        rewritten."""
        assert self._file is not None
        fd = None if self._is_gone else self._named.find(self._file)
        if fd is not None:
            self._fd = fd
        return fd is not None

    def _note_new_file(self) -> None:
        """Remember each file that gets the name: it may be renamed before the present one is read
        to its end."""
        assert self._file is not None
        there = self._named.stat()
        identity = None if there is None else (there.st_dev, there.st_ino)
        last = [self._file, *self._next, *self._followers][-1]
        if identity == self._file.identity and not self._next:
            self._followers.clear()
        elif there is not None and (
            identity != last.identity or (there.st_size and not last.offset)
        ):
            try:
                mark = self._named.mark(0)
            except ExhaustedError:
                return
            if identity == last.identity and self._followers:
                self._followers.pop()
            if mark is not None:
                self._followers.append(mark)


class _NamedFile:
    """The files that have, or have had, one name in a folder."""

    def __init__(self, path: str) -> None:
        self._path = path

    def stat(self) -> os.stat_result | None:
        """The status of the file that has the name now; None when there is none."""
        try:
            return os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the file that has the name now."""
        there = self.stat()
        return None if there is None else (there.st_dev, there.st_ino)

    def open(self) -> int | None:
        """The file that has the name now; None when there is none."""
        return _open(self._path)

    def mark(self, position: int) -> FileMark | None:
        """A mark of the file that has the name now, with its beginning."""
        return _beginning(_open(self._path), position)

    def mark_of(self, mark: FileMark, position: int) -> FileMark | None:
        """A mark of a file that has had the name; None when it is gone."""
        return _beginning(self.find(mark), position)

    def find(self, mark: FileMark) -> int | None:
        """Open a file, under any name in its folder. The bytes read so far are checked,
        because a file system reuses the inode of a deleted file; an empty file is recognized by its
        name only."""
        for path in self._names(mark.identity):
            try:
                fd = _open(path)
            except SetupError:
                continue  # a renamed file may be unreadable for us
            if fd is None:
                continue
            status = os.fstat(fd)
            # By number alone, another file that got the number of a deleted one would be read on in
            # its stead: see mistake a_file_is_known_by_its_number_alone.
            certain = mark.offset > 0 or path == self._path
            if certain and (status.st_dev, status.st_ino) == mark.identity and _fits(fd, mark):
                return fd
            os.close(fd)
        return None

    def _names(self, identity: tuple[int, int]) -> Iterator[str]:
        if self.identity() == identity:
            yield self._path
            return
        try:
            with os.scandir(os.path.dirname(self._path) or ".") as entries:
                yield from [entry.path for entry in entries if entry.inode() == identity[1]]
        except (FileNotFoundError, NotADirectoryError):
            return


def _beginning(fd: int | None, position: int) -> FileMark | None:
    if fd is None:
        return None
    try:
        return _marked(fd, position, min(os.fstat(fd).st_size, _CHECKED_BYTES))
    finally:
        os.close(fd)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as ex:
        raise cannot_read(path, ex) from ex


def _marked(fd: int, base: int, offset: int) -> FileMark:
    status = os.fstat(fd)
    return FileMark(base, status.st_dev, status.st_ino, offset, _digest(fd, offset))


def _fits(fd: int, mark: FileMark) -> bool:
    """Whether the bytes read so far are unchanged."""
    return os.fstat(fd).st_size >= mark.offset and _digest(fd, mark.offset) == mark.digest


def _digest(fd: int, offset: int) -> int:
    """The digest of the last bytes before ``offset``."""
    start = max(offset - _CHECKED_BYTES, 0)
    return xxhash.xxh3_64_intdigest(read_fully(fd, start, offset - start))
