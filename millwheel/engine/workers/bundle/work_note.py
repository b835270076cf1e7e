"""The note of the current work of a worker's loop, which survives the worker: a mapped file in its
scratch folder.

The process that started the worker reads it when the worker has died, before the folder goes. It is
written per bundle, and per record only while records run alone; it is never synced, since the
machine has not died with the process."""

from __future__ import annotations

import mmap
from pathlib import Path

import msgspec

from millwheel.adapters.processes.child import DOING
from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.names import NodeName, ShardName, Token

_SIZE = 1 << 14  # bytes of the mapped file: a few pages, with room for every note
_HEAD = 4  # Fixed: bytes of a note's length
_KEY_CHARS = 500  # of a key in a note, as in a dead letter


class InProgress(msgspec.Struct, frozen=True, array_like=True):
    """A bundle in progress, with a number of ``records``, of a shard with this key range
    (hexadecimal), under this token. ``mark`` identifies the record, timer or window that was alone
    in progress (b"": several were, or none); ``what`` and ``key`` describe it for people."""

    node: NodeName
    shard: ShardName
    token: Token
    lo: str
    hi: str
    records: int = 0
    mark: bytes = b""
    what: str = ""
    key: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(InProgress).decode


class DoingNote:
    """The note of one worker, written by the loop, which is the only thread that runs bundles."""

    def __init__(self, scratch: str) -> None:
        path = Path(scratch) / DOING
        path.write_bytes(bytes(_SIZE))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        self._now = b""

    def put(self, bundle: InProgress) -> bytes:
        """The bundle runs from now on. Returns what was written before, for :meth:`back`."""
        before, self._now = self._now, _encode(bundle)
        self._write()
        return before

    def back(self, before: bytes) -> None:
        """Note that the bundle ``before`` goes on; b"": nothing runs."""
        self._now = before
        self._write()

    def _write(self) -> None:
        data = self._now if len(self._now) <= _SIZE - _HEAD else b""
        # The length last, and first of all 0: the process may die between any two of these.
        self._map[:_HEAD] = bytes(_HEAD)
        if data:
            self._map[_HEAD : _HEAD + len(data)] = data
            self._map[:_HEAD] = len(data).to_bytes(_HEAD, "big")


def cut(key: object) -> str:
    """A key for people."""
    return repr(key)[:_KEY_CHARS]


def running(data: bytes) -> InProgress | None:
    """The bundle that ran when the file was left behind, if one did."""
    size = int.from_bytes(data[:_HEAD], "big")
    try:
        return _decode(data[_HEAD : _HEAD + size]) if size else None
    except DAMAGE:
        return None
