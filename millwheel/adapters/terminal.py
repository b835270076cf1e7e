"""Text on a terminal: without characters that the terminal would obey.

Records, names of fields and exceptions come from outside. With control characters in them they
could clear the screen, forge lines, or fill the clipboard of the person who looks. So every
command writes through this module: rich through :class:`Terminal`, everything else through
:func:`plain_stream`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROLS = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # C0 without tabs and line ends, DEL, C1
    # they change the direction or the line of the characters behind them
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\ud800-\udfff]"  # halves of characters, which no stream can write
    "|\r(?!\n)"
)


def plain(text: str) -> str:
    """The text with ``\\u001b`` in place of each control character."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Terminal(Console):
    """A console that shows text as it is: without control characters, and without markup of its
    own, since a name may look like some."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See :class:`rich.console.Console`."""
        for segment in super().render(renderable, options):
            obeyed = not segment.control and _CONTROLS.search(segment.text)
            yield Segment(plain(segment.text), segment.style) if obeyed else segment


def plain_stream(stream: TextIO) -> TextIO:
    """A stream on which no control character appears. Bytes, which are for programs, pass unchanged
    unless it is a terminal."""
    return cast(TextIO, _PlainStream(stream))


class _PlainStream:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # rich writes here: its own control characters move the cursor
        self.rich_proxied_file = stream

    @property
    def buffer(self) -> Any:
        return _PlainBytes(self._stream) if self._stream.isatty() else self._stream.buffer

    def write(self, text: str) -> int:
        self._stream.write(plain(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _PlainBytes:
    """The bytes of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        self._stream.write(plain(data.decode("utf-8", "backslashreplace")))
        return len(data)

    def flush(self) -> None:
        self._stream.flush()
