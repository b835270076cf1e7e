"""The committable of a sink with a layout: the whole new content of each file that a batch
changes."""

from __future__ import annotations

import msgspec

from millwheel.core.model.damage import checked


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """One file and its content from this batch on: ``size`` bytes with the xxh3-64 ``checksum``,
    either in ``data`` or under the hidden name ``temp``. ``final`` is a path below the sink's
    folder."""

    final: str
    temp: str
    rows: int
    size: int
    checksum: int
    data: bytes = b""

    def __post_init__(self) -> None:
        """Raises ValueError for names that lead elsewhere."""
        if (
            not self.final
            or "\0" in self.final
            or any(part in ("", ".", "..") for part in self.final.split("/"))
        ):
            raise ValueError(f"{self.final!r} is no path below the folder of a sink")
        if not self.temp or "/" in self.temp or "\0" in self.temp:
            raise ValueError(f"{self.temp!r} is no name of a file")


class Pieces(msgspec.Struct, frozen=True, array_like=True):
    """All pieces of batch ``number``."""

    number: int
    pieces: list[Piece]


pack = msgspec.msgpack.Encoder().encode
unpack = checked(msgspec.msgpack.Decoder(Pieces).decode, "the files of a batch")
"""Decodes :class:`Pieces`. Raises CorruptionError for any other bytes."""
