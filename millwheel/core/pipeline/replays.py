"""Dead letters on their way back: the request, and the plan that workers follow. Pure.

Three objects lie in a root for each *replay*, under its number: the **request** (letters, as
``millwheel replay`` chose them), the **order** (records for nodes, as the driver made them with the
code of the run), and a marker that all of it is **done**. Each is created once and never changed.
The records of an order are numbered, and a shard treats them as any channel: the high-water marks
of its commits skip the records that it has applied. So each record counts once, even if any process
dies at any time.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from xxhash import xxh3_128_hexdigest

from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.failures import REPLAYED
from millwheel.core.model.keys import Key
from millwheel.core.model.names import ChannelName, replay_channel
from millwheel.errors import CorruptionError

T = TypeVar("T")
RECORD, KEY, LINE = "record", "key", "line"
"""The failed parts of which a letter can be replayed."""


class Past(msgspec.Struct, frozen=True):
    """An earlier failure of a letter: the reason, the number of attempts, and the letter that
    recorded it."""

    reason: str
    attempts: int
    letter: str


class RequestedLetter(msgspec.Struct, frozen=True):
    """A letter that is to be tried again. ``what`` is the failed part (see RECORD, KEY, LINE)."""

    letter: str
    node: str
    stream: str
    what: str
    key: Any
    timestamp: int | None
    value: Any
    history: list[Past]


class Request(msgspec.Struct, frozen=True):
    """Letters that are to be tried again. ``id`` is unique among all roots."""

    id: str
    wanted: list[RequestedLetter]


class Again(msgspec.Struct, frozen=True):
    """A record for one node. With a ``problem`` it cannot be used as it is, and becomes a new
    letter, of the node or of the source to ``blame``."""

    letter: str
    node: str
    stream: str
    key: Any
    timestamp: int
    value: Any
    history: list[Past]
    problem: str = ""
    blame: str = ""


class ReplayOrder(msgspec.Struct, frozen=True):
    """The plan that was made from a request. Its records are numbered from 1."""

    id: str
    records: list[Again]

    @property
    def channel(self) -> ChannelName:
        """The channel of the records."""
        return replay_channel(self.id)

    @property
    def counter(self) -> str:
        """The name of the counter of applied records."""
        return f"{REPLAYED}{self.id}"


class _Sealed(msgspec.Struct, frozen=True):
    checksum: str
    body: bytes


def encode(replay: Request | ReplayOrder) -> bytes:
    """As bytes with a checksum."""
    body = msgspec.msgpack.encode(replay)
    return msgspec.msgpack.encode(_Sealed(xxh3_128_hexdigest(body), body))


def decode(data: bytes, kind: type[T]) -> T:
    """The inverse of :func:`encode`; CorruptionError for anything else."""
    try:
        sealed = msgspec.msgpack.decode(data, type=_Sealed)
        if xxh3_128_hexdigest(sealed.body) != sealed.checksum:
            raise CorruptionError("a replay of dead letters fails its checksum")
        return msgspec.msgpack.decode(sealed.body, type=kind)
    except DAMAGE as ex:
        raise CorruptionError(f"{len(data)} bytes are not a replay of dead letters: {ex}") from ex


def as_key(plain: Any) -> Key:
    """A key that came through plain data, where tuples are lists."""
    key: Key = tuple(as_key(each) for each in plain) if isinstance(plain, list) else plain
    return key
