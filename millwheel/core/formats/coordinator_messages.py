"""The messages between the embedded coordinator and its clients: MessagePack arrays, each named by
its first element.

A client numbers its requests and gets one :class:`Answer` with the same number for each. The
coordinator pushes everything that the client watches: all members of a role after each change, each
new version of a table, and an election that the client has won.
"""

from __future__ import annotations

import msgspec

__all__ = [
    "Answer",
    "Ask",
    "Elect",
    "Expired",
    "Get",
    "Hello",
    "Join",
    "Leave",
    "Members",
    "Ping",
    "Pong",
    "PushedTable",
    "Put",
    "ReadTables",
    "Refusal",
    "StoredTable",
    "ToClient",
    "ToServer",
    "WatchMembers",
    "WatchTables",
    "Won",
    "WriteTable",
    "decode_to_client",
    "decode_to_server",
    "encode",
]


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Any of them."""


class _Numbered(_Message, frozen=True):
    number: int


# --- from a client


class Hello(_Message, frozen=True):
    """The first message of a session, which ends when nothing is received for ``timeout_us``.
    ``token`` is that of the run ("": it has none)."""

    timeout_us: int
    token: str = ""


class Ping(_Message, frozen=True):
    """The client is alive."""


class Join(_Numbered, frozen=True):
    """Be a member of a role for as long as the session lives. Refused when the name is taken."""

    role: str
    name: str
    data: bytes


class Leave(_Numbered, frozen=True):
    """Remove a member, if it is there."""

    role: str
    name: str


class WatchMembers(_Numbered, frozen=True):
    """Push the members of a role, now and after every change."""

    role: str


class Elect(_Numbered, frozen=True):
    """Stand for election in a role."""

    role: str
    name: str
    data: bytes


class ReadTables(_Numbered, frozen=True):
    """All tables, as a list of :class:`StoredTable`."""


class WatchTables(_Numbered, frozen=True):
    """Push every table, now and in each new version."""


class WriteTable(_Numbered, frozen=True):
    """Compare-and-set on ``version`` (-1 creates). The answer is the new version."""

    name: str
    data: bytes
    version: int


class Get(_Numbered, frozen=True):
    """A named value, or nil."""

    name: str


class Put(_Numbered, frozen=True):
    """Store a named value unless there is one. The answer is the one that stands."""

    name: str
    data: bytes


# --- to a client


class StoredTable(msgspec.Struct, frozen=True, array_like=True):
    """A range table as it is stored."""

    name: str
    data: bytes
    version: int


class Refusal(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The request conflicts with the present state; ``why`` is a sentence."""

    why: str


class Answer(_Numbered, frozen=True):
    """The answer to one request: a value, or the reason of a refusal."""

    value: int | bytes | list[StoredTable] | None = None
    refused: Refusal | None = None


class Pong(_Message, frozen=True):
    """The server is alive, and so is the session."""


class Members(_Message, frozen=True):
    """All members of a role with their data."""

    role: str
    members: dict[str, bytes]


class PushedTable(_Message, frozen=True):
    """A table that is watched."""

    table: StoredTable


class Won(_Message, frozen=True):
    """The election in which the session stood under this name."""

    role: str
    name: str


class Expired(_Message, frozen=True):
    """The session was ended, because it was silent for too long."""


Ask = Join | Leave | WatchMembers | Elect | ReadTables | WatchTables | WriteTable | Get | Put
ToServer = Hello | Ping | Ask
ToClient = Answer | Pong | Members | PushedTable | Won | Expired

encode = msgspec.msgpack.Encoder().encode
_to_server = msgspec.msgpack.Decoder(ToServer)
_to_client = msgspec.msgpack.Decoder(ToClient)


def decode_to_server(data: bytes | memoryview) -> ToServer:
    """Raises msgspec.DecodeError (or ValidationError) for bytes that are not a message of a
    client."""
    message: ToServer = _to_server.decode(data)
    return message


def decode_to_client(data: bytes | memoryview) -> ToClient:
    """Raises msgspec.DecodeError (or ValidationError) for bytes that are not a message of the
    server."""
    message: ToClient = _to_client.decode(data)
    return message
