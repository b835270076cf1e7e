"""Reads files of lines: a block of whole lines at a time, decoded together.

The position of a record is the end of its line. The sizes of reads never change the result: a line
gives the same record, or the same reject, in every block.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millwheel.connect.sources.base import Chunk, FrameChunk, LinesChunk, Reader, Reject
from millwheel.connect.sources.files.inputs import PartitionInput
from millwheel.connect.sources.files.rotation import FollowedInput
from millwheel.core.model.damage import DAMAGE
from millwheel.errors import RecordError

MAX_RAW_BYTES = 65_536
"""The most bytes that are kept of a rejected line."""
_SCAN_BYTES = 1 << 20  # searched at once for the next line break
_MOST_BYTES = 16 << 20
"""The most bytes of one read, unless a single line is longer."""
_PIECE_BYTES = 1 << 20
"""The bytes that are converted to columns at once: their objects fit into the cache of the
processor."""
_BOM = b"\xef\xbb\xbf"
_NEWLINE = 10  # Fixed: the byte
_FEW = 64
"""Up to so many numbers a list is quicker than an array."""
Ends = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """Complete lines. ``ends[i]`` is the end of line i in ``data``, after its newline if it has
    one; ``base`` is the position of the block's first byte. ``last`` is True when no further line
    will follow."""

    data: bytes
    ends: Ends
    base: int
    last: bool = True

    def lines(self) -> list[bytes]:
        """The lines, with their newlines."""
        start, lines = 0, []
        for end in self.ends.tolist():
            lines.append(self.data[start:end])
            start = end
        return lines

    def positions(self) -> list[int]:
        """The position of each line."""
        positions: list[int] = (self.ends + self.base).tolist()
        return positions


@dataclass(slots=True)
class Decoded:
    """The result of decoding a block. ``positions`` None means that each line gave one of
    ``values``. ``used`` is the number of decoded lines (-1: all); the others need lines that
    follow."""

    positions: list[int] | None
    values: list[Any]
    rejects: list[Reject] = field(default_factory=list)
    used: int = -1

    def add(self, position: int, value: Any) -> None:
        """Add a value, where positions are listed."""
        assert self.positions is not None
        self.positions.append(position)
        self.values.append(value)


class LineFormat(Protocol):
    """How lines become values."""

    has_header: bool
    """True when the first line of a file is a header."""
    one_line: bool
    """True when each line is a record of its own."""

    def begin(self, header: bytes) -> None:
        """Called with the header of a file (empty without one) before any of its lines are
        decoded."""

    def decode(self, block: Block) -> Decoded:
        """Decode lines. Blank lines are skipped; invalid lines become rejects."""


@dataclass(frozen=True, slots=True)
class FrameForm:
    """How lines become columns: ``form`` decodes them, and ``fields`` of the values become columns.
    ``guessed``: the fields that are not declared. ``whole``: the form refuses lines with other
    fields."""

    form: LineFormat
    fields: Mapping[str, str]
    guessed: Collection[str] = ()
    whole: bool = False


@dataclass(slots=True)
class _Window:
    """The bytes at an offset: complete lines, or the head of an overlong line."""

    data: bytes
    ends: Ends
    at_end: bool
    too_long: bool = False


@dataclass(slots=True)
class _Step:
    """The outcome of one read. ``block`` is None when nothing was decoded."""

    decoded: Decoded
    next_position: int
    finished: bool
    block: Block | None = None
    begins: tuple[int, bytes] | None = None


class LineReader(Reader):
    """A reader of one file of lines. A ``followed`` file ends only when another one replaces it."""

    def __init__(
        self,
        source: PartitionInput,
        form: LineFormat,
        max_line_bytes: int,
        followed: FollowedInput | None = None,
        frames: FrameForm | None = None,
        guess: Callable[[Mapping[str, str]], FrameForm] | None = None,
        whole: Callable[[Mapping[str, str]], FrameForm] | None = None,
    ) -> None:
        self._input = source
        self._followed = followed
        self._format = form
        self._frames = frames
        self._guess = guess
        self._whole = whole
        self._max_line = max_line_bytes
        self._line_bytes = 200.0
        self._begun_life = 0
        self._first = 0
        self._scanned = 0

    def read(self, position: int, max_records: int) -> Chunk:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        size = min(max(int(self._line_bytes * max_records * 1.05), 4096), _MOST_BYTES)
        step = self._step(position, size, max_records, self._format)
        decoded = step.decoded
        positions, block = decoded.positions, step.block
        values, end, rejects, note = (
            decoded.values,
            step.next_position,
            decoded.rejects,
            self._note(position, step),
        )
        if positions is None and block is not None and len(block.ends) > _FEW:
            ends = block.ends + block.base
            return LinesChunk(ends, values, end, rejects, step.finished, note, step.begins)
        if positions is None:
            positions = block.positions() if block is not None else []
        return Chunk(positions, values, end, rejects, step.finished, note=note, begins=step.begins)

    def skip(self, position: int) -> Chunk | None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if not self._format.one_line:
            return None
        step = self._step(position, 4096, 1, _Untouched())
        note = self._note(position, step)
        rejects = step.decoded.rejects
        return Chunk(
            [], [], step.next_position, rejects, step.finished, note=note, begins=step.begins
        )

    def resume(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if self._followed is not None:
            self._followed.resume(notes)

    def stop_at(self, end: tuple[int, ...]) -> None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if self._followed is not None:
            self._followed.stop_at(end)

    def take_columns(self, fields: Mapping[str, str]) -> bool:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if self._guess is None:
            return False
        self._frames = self._guess(fields)
        return True

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if self._whole is None:
            return False
        self._frames = self._whole(fields)
        return True

    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        """See :class:`millwheel.connect.sources.base.Reader`."""
        if self._frames is None:
            return None
        from millwheel.core.columns.declared_fields import are_exact, frame_of, frames_of

        frames, positions, rejects, at = [], [], [], position
        while True:
            size = max(min(position + max_bytes - at, _PIECE_BYTES), 4096)
            step = self._step(at, size, sys.maxsize, self._frames.form)
            decoded, read, at = step.decoded, step.next_position - at, step.next_position
            if self._frames.guessed and not are_exact(
                decoded.values, self._frames.fields, self._frames.guessed
            ):
                return None
            if self._frames.whole and decoded.rejects:
                return None
            try:
                frames.append(frame_of(decoded.values, self._frames.fields))
            except RecordError:  # a field that is not a time
                return None
            if decoded.positions is None and step.block is not None:
                positions.append(step.block.ends + step.block.base)
            else:
                positions.append(np.array(decoded.positions, np.int64))
            rejects += decoded.rejects
            if step.finished or step.begins or read < size // 2 or at >= position + max_bytes:
                note = self._note(position, step)
                return FrameChunk(
                    np.concatenate(positions),
                    frames_of(frames),
                    at,
                    rejects,
                    step.finished,
                    note,
                    step.begins,
                )

    def close(self) -> None:
        self._input.close()

    def _note(self, position: int, step: _Step) -> bytes:
        if self._followed is None or step.next_position == position:
            return b""
        return self._followed.note(step.next_position)

    def _step(self, position: int, size: int, max_records: int, form: LineFormat) -> _Step:
        located = self._input.locate(position)
        base, offset = located.base, located.offset
        if located.nothing or located.begins is not None or located.skip_to > position:
            return _Step(
                Decoded([], []), max(position, located.skip_to), False, begins=located.begins
            )
        if located.life != self._begun_life and not self._begin(located.life):
            return self._nothing(position, b"", offset)
        offset = max(offset, self._first)
        while True:
            window = self._window(offset, size)
            if window.too_long:
                return self._skip_line(position, base, offset, window.data)
            ends = window.ends[:max_records]
            if not len(ends):
                return self._nothing(position, window.data, base + offset)
            # "Last" only if the input has ended: in a file that grows, half a line at its end is
            # the beginning of one, and as a record of its own it would be read again, whole, from a
            # position in its middle.
            last = window.at_end and len(ends) == len(window.ends) and self._input.ended()
            block = Block(window.data, ends, base + offset, last)
            decoded = form.decode(block)
            if decoded.used:
                return self._done(decoded, block, window)
            if window.at_end and len(ends) == len(window.ends):
                return _Step(decoded, position, False, begins=self._succeeded())
            size, max_records = size * 2, max_records * 2

    def _succeeded(self) -> tuple[int, bytes] | None:
        return None if self._followed is None else self._followed.succeeded()

    def _begin(self, life: int) -> bool:
        """Read the header; False while the file is too short for it."""
        head = self._input.read_at(0, self._max_line)
        ended = len(head) < self._max_line and self._input.ended()
        if not ended and (not head or _BOM.startswith(head)):
            return False
        first = len(_BOM) if head.startswith(_BOM) else 0
        header = b""
        if self._format.has_header:
            end = head.find(b"\n", first) + 1
            if not end and not ended and len(head) < self._max_line:
                return False
            header = head[first : end or len(head)]
            first = end or len(head)
        self._format.begin(header)
        if self._frames is not None:
            self._frames.form.begin(header)
        self._begun_life, self._first, self._scanned = life, first, 0
        return True

    def _window(self, offset: int, size: int) -> _Window:
        while True:
            data = self._input.read_at(offset, size)
            at_end = len(data) < size
            ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
            whole = int(ends[-1]) if len(ends) else 0
            if whole < len(data) and at_end and self._input.ended() and not self._input.damage():
                ends = np.append(ends, len(data))
            if len(ends) or at_end or len(data) > self._max_line:
                break
            size = max(size * 2, self._max_line + 1)
        return self._without_long_lines(_Window(data, ends, at_end))

    def _without_long_lines(self, window: _Window) -> _Window:
        """Cut the window before its first overlong line, and mark a window that begins with one."""
        if len(window.data) <= self._max_line:
            return window
        if not len(window.ends):
            return _Window(window.data, window.ends, False, too_long=True)
        long = np.flatnonzero(np.diff(window.ends, prepend=0) > self._max_line)
        if not len(long):
            return window
        return _Window(window.data, window.ends[: long[0]], False, too_long=bool(long[0] == 0))

    def _skip_line(self, position: int, base: int, offset: int, head: bytes) -> _Step:
        """Reject an overlong line; its end is searched for without keeping its bytes."""
        at = max(offset, self._scanned)
        while True:
            data = self._input.read_at(at, _SCAN_BYTES)
            newline = data.find(b"\n")
            at += newline + 1 if newline >= 0 else len(data)
            if newline >= 0 or (len(data) < _SCAN_BYTES and self._input.ended()):
                break
            if len(data) < _SCAN_BYTES:
                self._scanned = at
                return _Step(Decoded([], []), position, False, begins=self._succeeded())
        reason = (
            f"the line has {at - offset} bytes, more than max_line_bytes: {self._max_line} allows"
        )
        return _Step(Decoded([], [], [Reject(base + at, raw_text(head), reason)]), base + at, False)

    def _nothing(self, position: int, tail: bytes, at: int) -> _Step:
        """No complete line is there now; in a bounded file, none will come."""
        if self._followed is not None:
            return _Step(Decoded([], []), position, False, begins=self._followed.succeeded())
        if reason := self._input.damage():
            after = at + len(tail) + 1
            return _Step(Decoded([], [], [Reject(after, raw_text(tail), reason)]), after, True)
        return _Step(Decoded([], []), position, True)

    def _done(self, decoded: Decoded, block: Block, window: _Window) -> _Step:
        used = len(block.ends) if decoded.used < 0 else decoded.used
        end = int(block.ends[used - 1])
        self._line_bytes = max(end / used, 1.0)
        finished = (
            self._followed is None
            and window.at_end
            and end == len(window.data)
            and not self._input.damage()
        )
        return _Step(decoded, block.base + end, finished, block)


class _Untouched:
    """No line is looked at: each is a reject."""

    has_header = False
    one_line = True

    def begin(self, header: bytes) -> None:
        return

    def decode(self, block: Block) -> Decoded:
        lines = zip(block.positions(), block.lines(), strict=True)
        return Decoded(
            [],
            [],
            [Reject(position, raw_text(line), "") for position, line in lines if line.strip()],
        )


def decode_each(block: Block, one: Callable[[bytes], Any]) -> Decoded:
    """Decode line by line, for blocks with an invalid line. ``one`` is called with each line,
    without its end."""
    decoded = Decoded([], [])
    for line, position in zip(block.lines(), block.positions(), strict=True):
        if not line.strip():
            continue
        try:
            value = one(line.rstrip(b"\r\n"))
        except (RecordError, *DAMAGE) as ex:
            decoded.rejects.append(Reject(position, raw_text(line), reason_of(ex, line)))
            continue
        decoded.add(position, value)
    return decoded


def raw_text(line: bytes) -> str:
    """A rejected line as text, with bytes that are not UTF-8 escaped, cut at 64 kB."""
    return line[:MAX_RAW_BYTES].rstrip(b"\r\n").decode("utf-8", "backslashreplace")


def reason_of(error: Exception, line: bytes) -> str:
    """The reason why a line is not a record."""
    if isinstance(error, UnicodeDecodeError):
        try:
            line.decode()
        except UnicodeDecodeError as ex:
            return f"not UTF-8: {ex.reason} (column {ex.start + 1})"
    return str(error)
