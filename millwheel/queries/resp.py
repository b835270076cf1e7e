"""The Redis protocol: bytes to commands, values to replies. Pure.

hiredis parses everything except headers of huge arrays, for which it would allocate memory before their data is there.
Malformed input gives one error reply; the rest of that read is dropped, and the connection continues with the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millwheel.errors import SetupError

MAX_COMMAND_BYTES = 1 << 20
"""The largest command: 10,000 names of 100 bytes."""
MAX_WORDS = 99_999
"""The most words in a command."""
_MOST_SKIPPED, _MOST_SKIPPED_BYTES = 10_000_000, 512 << 20
"""A command beyond these limits is not skipped to its end: it is an error, and the bytes that follow are read as
commands."""
_HUGE = re.compile(rb"[*%~>|][+-]?[0-9]{6,}")  # an array of 100,000 or more, for which hiredis allocates at once
_HEADER_BYTES = 32  # of the length of a string or array; a longer header is malformed
_ARRAY, _BULK = b"*$"


class ProtocolError(Exception):
    """The input is not a command; the sentence says why."""


def hiredis_reader() -> Any:
    """A parser. SetupError when the package is missing."""
    try:
        import hiredis
    except ImportError as ex:
        raise SetupError("The Redis protocol needs hiredis: pip install 'millwheel-spark[queries]'") from ex
    return hiredis.Reader(encoding=None, notEnoughData=_NOTHING)


_NOTHING = object()


class CommandReader:
    """The commands of one connection. hiredis parses reads that consist of whole commands, which nearly all do. It does
    not report whether it stands between two commands, so a sentinel is appended to each read. A read that ends within a
    command is kept, and parsed here."""

    def __init__(self) -> None:
        self._reader = hiredis_reader()
        self._kept = b""
        self._skipped: _Skipped | None = None

    def feed(self, data: bytes) -> list[list[bytes] | ProtocolError]:
        """The commands that are complete now, followed by at most one error."""
        found: list[list[bytes] | ProtocolError] = []
        if self._skipped is not None:
            return self._go_on_skipping(self._skipped, data)
        if not self._kept and self._whole(data, found):
            return found
        data, self._kept = self._kept + data, b""
        found = []
        try:
            at = 0
            while at < len(data) and (parsed := _command(data, at)) is not None:
                words, at = parsed
                if words:
                    found.append(words)
            self._kept = data[at:]
            if len(self._kept) > MAX_COMMAND_BYTES:
                raise _TooMuch(at, f"a command has {MAX_COMMAND_BYTES} bytes at most")
        except _TooMuch as ex:
            self._kept, self._skipped = b"", _Skipped(str(ex))
            found += self._go_on_skipping(self._skipped, data[max(ex.at, at) :])
        except ProtocolError as ex:
            self._kept = b""  # the next command can only be found at the beginning of the next read
            found.append(ex)
        return found

    def _go_on_skipping(self, skipped: _Skipped, data: bytes) -> list[list[bytes] | ProtocolError]:
        """Read a too large command to its end without keeping it: it gives one error, and the commands behind it are
        executed."""
        try:
            rest = skipped.feed(data)
        except ProtocolError as ex:
            self._skipped = None
            return [ex]
        if rest is None:
            return []
        self._skipped = None
        return [ProtocolError(skipped.why), *self.feed(rest)] if rest else [ProtocolError(skipped.why)]

    def _whole(self, data: bytes, found: list[list[bytes] | ProtocolError]) -> bool:
        """Parse a read that consists of whole commands into ``found``. False, without any effect, when it does not."""
        if data[:1] != b"*" or _HUGE.search(data):
            return False
        reader = self._reader
        reader.feed(data + _END)
        try:
            while (command := reader.gets()) is not _NOTHING:
                found.append(command)
        except Exception:  # hiredis raises its own exceptions
            found.clear()
        if found and found.pop() == _END_WORDS and all(map(_is_words, found)):
            return True
        self._reader = hiredis_reader()
        return False


class _TooMuch(ProtocolError):
    """The command that begins ``at`` is too large, but may be skipped."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


class _Skipped:
    """A command that is skipped. ``why``: the reason."""

    def __init__(self, why: str) -> None:
        self.why = why
        self._words = -1  # still to come; -1: the header has not come either
        self._bytes = 0  # of the word that is being skipped
        self._line = b""

    def feed(self, data: bytes) -> bytes | None:
        """The bytes behind the command, once its end has come; None before. Raises ProtocolError where it is
        malformed."""
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


def _command(data: bytes, at: int) -> tuple[list[bytes], int] | None:
    """The command that begins ``at``, and where it ends; None while it is not complete."""
    end = data.find(b"\n", at)
    if data[at] != _ARRAY:
        return None if end < 0 else (data[at:end].split(), end + 1)
    if end < 0:
        _check_header(data, at)
        return None
    words: list[bytes] = []
    begin_at, count = at, _count(data[at + 1 : end], _MOST_SKIPPED)
    if count > MAX_WORDS:
        raise _TooMuch(begin_at, f"a command has {MAX_WORDS} words at most, this one {count}")
    at = end + 1
    for _ in range(count):
        end = data.find(b"\n", at)
        if end < 0:
            _check_header(data, at)
            return None
        if data[at] != _BULK:
            raise ProtocolError("a command is an array of strings")
        begin, size = end + 1, _count(data[at + 1 : end], _MOST_SKIPPED_BYTES)
        if size > MAX_COMMAND_BYTES:
            raise _TooMuch(begin_at, f"a command has {MAX_COMMAND_BYTES} bytes at most")
        end = begin + size
        if len(data) < end + 2:
            return None
        if data[end : end + 2] != b"\r\n":
            raise ProtocolError("a string does not end where its length says")
        words.append(data[begin:end])
        at = end + 2
    return words, at


def _check_header(data: bytes, at: int) -> None:
    if len(data) - at > _HEADER_BYTES:
        raise ProtocolError("the length of a string or array has no end")


def _count(text: bytes, most: int) -> int:
    text = text.removesuffix(b"\r")
    if not text.isdigit() or len(text) > _HEADER_BYTES or int(text) > most:
        raise ProtocolError(f"{text[:20]!r} is no length; a command has {MAX_WORDS} words at most")
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
