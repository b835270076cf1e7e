"""The Redis protocol: bytes to commands, values to replies. Pure.

hiredis parses everything except headers of huge arrays, for which it would allocate memory before
their data is there. Malformed input gives one error reply; the rest of that read is dropped, and
the connection continues with the next one.
"""

from __future__ import annotations

import re
from array import array as packed
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millwheel.errors import SetupError

MAX_COMMAND_BYTES = 1 << 20
"""The largest command: 10,000 names of 100 bytes."""
MAX_WORDS = 99_999
"""The most words in a command."""
MAX_LINE_BYTES = 64 << 10
"""The longest line that is a command, as Redis has it."""
_MOST_SKIPPED, _MOST_SKIPPED_BYTES = 10_000_000, 512 << 20
"""A command beyond these limits is not skipped to its end: it is an error, and the bytes that
follow are read as commands."""
# an array of 100,000 or more, for which hiredis allocates at once
_HUGE = re.compile(rb"[*%~>|][+-]?[0-9]{6,}")
_HEADER_BYTES = 32  # of the length of a string or array; a longer header is malformed
_ARRAY, _BULK = b"*$"


class ProtocolError(Exception):
    """The input is not a command; the sentence explains why."""


def hiredis_reader() -> Any:
    """A parser. SetupError when the package is missing."""
    try:
        import hiredis
    except ImportError as ex:
        raise SetupError(
            "The Redis protocol needs hiredis: pip install 'millwheel-spark[queries]'"
        ) from ex
    return hiredis.Reader(encoding=None, notEnoughData=_NOTHING)


_NOTHING = object()


class TypedLine(list[bytes]):
    """The words of a command that was written as a line: by a person, or by a client of another
    protocol."""


class CommandReader:
    """The commands of one connection. hiredis parses reads that consist of whole commands, which
    nearly all do. It does not report whether it stands between two commands, so a sentinel is
    appended to each read. A command that comes in several reads is parsed here. ``most_bytes`` of
    one command are taken."""

    def __init__(self, most_bytes: int = MAX_COMMAND_BYTES) -> None:
        self.most_bytes = most_bytes
        self._reader = hiredis_reader()
        self._kept = _Half()
        self._skipped: _Skipped | None = None

    def feed(self, data: bytes) -> list[list[bytes] | ProtocolError]:
        """The commands that are complete now, followed by at most one error."""
        commands: list[list[bytes] | ProtocolError] = []
        if self._skipped is not None:
            return self._go_on_skipping(self._skipped, data)
        if not self._kept and self._whole(data, commands):
            return commands
        self._kept.data += data
        commands = []
        try:
            while (words := self._kept.take(self.most_bytes)) is not None:
                if words:
                    commands.append(words)
        except _TooMuch as ex:
            rest, self._kept, self._skipped = bytes(self._kept.data), _Half(), _Skipped(str(ex))
            commands += self._go_on_skipping(self._skipped, rest)
        except ProtocolError as ex:
            # the next command can only be found at the beginning of the next read
            self._kept = _Half()
            commands.append(ex)
        return commands

    def _go_on_skipping(self, skipped: _Skipped, data: bytes) -> list[list[bytes] | ProtocolError]:
        """Read a too large command to its end without keeping it: it gives one error, and the
        commands behind it are executed."""
        try:
            rest = skipped.feed(data)
        except ProtocolError as ex:
            self._skipped = None
            return [ex]
        if rest is None:
            return []
        self._skipped = None
        return (
            [ProtocolError(skipped.why), *self.feed(rest)] if rest else [ProtocolError(skipped.why)]
        )

    def _whole(self, data: bytes, commands: list[list[bytes] | ProtocolError]) -> bool:
        """Parse a read that consists of whole commands into ``commands``. False, without any
        effect, when it does not."""
        if data[:1] != b"*" or _HUGE.search(data):
            return False
        reader = self._reader
        reader.feed(data + _END)
        try:
            while (command := reader.gets()) is not _NOTHING:
                commands.append(command)
        except Exception:  # hiredis raises its own exceptions
            commands.clear()
        if commands and commands.pop() == _END_WORDS and all(map(_is_words, commands)):
            return True
        self._reader = hiredis_reader()
        return False


class _Half:
    """Bytes that begin with a command of which the end may not have come. The results of parsing
    them are kept, so a further byte costs one byte of work and of memory, however many came before
    it."""

    def __init__(self) -> None:
        self.data = bytearray()
        # of the command that are still to come; -1: its header has not come either
        self._words = -1
        self._at = 0  # the bytes before were looked at
        self._spans = packed("I")  # the beginning and the end of each word so far

    def __len__(self) -> int:
        return len(self.data)

    def take(self, most_bytes: int) -> list[bytes] | None:
        """The next command, removed from the bytes; None while it is not complete. Raises
        ProtocolError."""
        if self._words < 0 and self.data and self.data[0] != _ARRAY:
            return self._line(min(most_bytes, MAX_LINE_BYTES))
        if len(self.data) and self._collect(most_bytes):
            spans = self._spans
            words = [
                bytes(self.data[begin:end])
                for begin, end in zip(spans[::2], spans[1::2], strict=True)
            ]
            self._cut()
            return words
        if len(self.data) > most_bytes:
            raise _TooMuch(f"a command has {most_bytes} bytes at most")
        return None

    def _line(self, most_bytes: int) -> list[bytes] | None:
        end = self.data.find(b"\n", self._at)
        if (len(self.data) if end < 0 else end) > most_bytes:
            raise ProtocolError(f"a line has {most_bytes} bytes at most")
        self._at = len(self.data) if end < 0 else end + 1
        if end < 0:
            return None
        words = TypedLine(map(bytes, self.data[:end].split()))
        self._cut()
        return words

    def _cut(self) -> None:
        """Remove the command."""
        del self.data[: self._at]
        self._words, self._at, self._spans = -1, 0, packed("I")

    def _collect(self, most_bytes: int) -> bool:
        """Note the words that have come. True once there are all of them."""
        if self._words < 0 and (header := self._header(_ARRAY, _MOST_SKIPPED)) is not None:
            count, self._at = header
            if count > MAX_WORDS:
                raise _TooMuch(f"a command has {MAX_WORDS} words at most, this one {count}")
            self._words = count
        while self._words > 0:
            header = self._header(_BULK, _MOST_SKIPPED_BYTES)
            if header is None:
                return False
            size, begin = header
            if size > most_bytes:
                raise _TooMuch(f"a command has {most_bytes} bytes at most")
            end = begin + size
            if len(self.data) < end + 2:
                return False
            if self.data[end : end + 2] != b"\r\n":
                raise ProtocolError("a string does not end where its length says")
            self._spans.extend((begin, end))
            self._at, self._words = end + 2, self._words - 1
        return self._words == 0

    def _header(self, kind: int, most: int) -> tuple[int, int] | None:
        """The number in the line that begins here, and the index behind it; None while its end has
        not come."""
        data, at = self.data, self._at
        end = data.find(b"\n", at, at + _HEADER_BYTES + 1)
        if len(data) > at and data[at] != kind:
            raise ProtocolError("a command is an array of strings")
        if end < 0:
            _check_header(data, at)
            return None
        return _count(bytes(data[at + 1 : end]), most), end + 1


class _TooMuch(ProtocolError):
    """The command is too large, but may be skipped."""


class _Skipped:
    """A command that is skipped. ``why``: the reason."""

    def __init__(self, why: str) -> None:
        self.why = why
        self._words = -1  # still to come; -1: the header has not come either
        self._bytes = 0  # of the word that is being skipped
        self._line = b""

    def feed(self, data: bytes) -> bytes | None:
        """The bytes behind the command, once its end has come; None before. Raises ProtocolError
        where it is malformed."""
        at, data, self._line = 0, self._line + data, b""
        while self._words:
            if self._bytes:
                step = min(self._bytes, len(data) - at)
                at, self._bytes = at + step, self._bytes - step
                if self._bytes:
                    return None
                self._words -= 1
                continue
            end = data.find(b"\n", at)
            if end < 0:
                _check_header(data, at)
                self._line = data[at:]
                return None
            self._header(data[at:end])
            at = end + 1
        return data[at:]

    def _header(self, line: bytes) -> None:
        if self._words < 0:
            if line[:1] != b"*":
                raise ProtocolError(self.why)
            self._words = _count(line[1:], _MOST_SKIPPED)
        elif line[:1] != b"$":
            raise ProtocolError("a command is an array of strings")
        else:
            self._bytes = _count(line[1:], _MOST_SKIPPED_BYTES) + 2


_END, _END_WORDS = b"*1\r\n$1\r\n\0\r\n", [b"\0"]


def _is_words(command: Any) -> bool:
    return type(command) is list and bool(command) and all(type(word) is bytes for word in command)


def _check_header(data: bytes | bytearray, at: int) -> None:
    if len(data) - at > _HEADER_BYTES:
        raise ProtocolError("the length of a string or array has no end")


def _count(text: bytes, most: int) -> int:
    text = text.removesuffix(b"\r")
    if not text.isdigit() or len(text) > _HEADER_BYTES or int(text) > most:
        raise ProtocolError(
            f"{text[:20]!r} is not a length; a command has {MAX_WORDS} words at most"
        )
    return int(text)


OK = b"+OK\r\n"
_NULL = {2: b"$-1\r\n", 3: b"_\r\n"}


def simple(text: str) -> bytes:
    """A status."""
    return b"+%s\r\n" % text.encode()


def error(sentence: str, kind: str = "ERR") -> bytes:
    """An error, always as one line."""
    line = " ".join(sentence.split())
    return f"-{kind} {line}\r\n".encode(errors="replace")


def number(value: int) -> bytes:
    """A whole number."""
    return b":%d\r\n" % value


def bulk(value: bytes) -> bytes:
    """A string."""
    return b"$%d\r\n%s\r\n" % (len(value), value)


def null(protocol: int) -> bytes:
    """No value."""
    return _NULL[protocol]


def array(parts: Sequence[bytes]) -> bytes:
    """An array of replies."""
    return b"*%d\r\n" % len(parts) + b"".join(parts)


def mapping(parts: Mapping[str, bytes], protocol: int) -> bytes:
    """A map of replies; in RESP2 an array of names and values."""
    head = b"%%%d\r\n" % len(parts) if protocol == 3 else b"*%d\r\n" % (2 * len(parts))
    return head + b"".join(bulk(name.encode()) + part for name, part in parts.items())


def strings(words: Iterable[str]) -> bytes:
    """An array of strings."""
    return array([bulk(word.encode()) for word in words])
