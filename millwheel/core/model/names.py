"""Names that are stored and sent: each is built and taken apart here, and nowhere else.

| what | its name | stands in |
|---|---|---|
| a node | a computation, ``source.STREAM``, ``sink.STREAM`` | range tables, productions, reports |
| a shard | ``NODE-NUMBER``, a number of its own | range tables, commits, manifests, deliveries |
| the channel of a shard | the name of the shard | deliveries, high-water marks |
| the channel of a partition | ``NODE/PARTITION`` | deliveries, high-water marks |
| dead letters of a source | ``NODE!COMPUTATION/PARTITION`` | deliveries, high-water marks |
| the channel of replayed letters | ``replay/REQUEST`` | high-water marks |

All of these are durable: another form would be another channel, and records applied under the old
name would be applied again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NewType

NodeName = NewType("NodeName", str)
"""A node of the graph."""
ShardName = NewType("ShardName", str)
"""A shard, see :func:`shard_name`."""
WorkerName = NewType("WorkerName", str)
"""An incarnation of a worker: one process, which never comes again under this name."""
ChannelName = NewType("ChannelName", str)
"""One numbering of records: each pair of channel and number is applied once."""
Token = NewType("Token", int)
"""Distinguishes the owners of a shard, see ``lease.py``."""
_REST = "rest of "
_WITHOUT, _END = "without ", "\0"
NO_WORKER, NO_SHARD, NO_CHANNEL = WorkerName(""), ShardName(""), ChannelName("")
"""The names for none."""
NO_TOKEN, FIRST_TOKEN = Token(0), Token(1)
"""A token below that of any owner, and the token of the first owner of a shard."""


def shard_name(node: str, number: int) -> ShardName:
    """The name of a shard."""
    return ShardName(f"{node}-{number}")


def shard_parts(shard: str) -> tuple[NodeName, int] | None:
    """The node and the number of a shard; None for names that :func:`shard_name` did not make."""
    node, dash, number = shard.rpartition("-")
    return (NodeName(node), int(number)) if dash and node and number.isdecimal() else None


def shard_channel(shard: str) -> ChannelName:
    """The channel on which a shard sends its productions."""
    return ChannelName(shard)


def partition_channel(node: str, partition: str) -> ChannelName:
    """The channel on which a source sends the records of a partition."""
    return ChannelName(f"{node}/{partition}")


def letters_channel(node: str, computation: str, partition: str) -> ChannelName:
    """The channel on which a source sends dead letters of a partition that ``computation`` would
    have got."""
    return ChannelName(f"{node}!{computation}/{partition}")


def groups_of(node: str) -> str:
    """The stream of groups that are sent to a node in place of records; no stream of a pipeline has
    such a name."""
    return f"groups of {node}"


def rest_of(stream: str) -> str:
    """The name of a stream's productions for the consumers that get records, where others get
    groups of them."""
    return f"{_REST}{stream}"


def without_nodes(stream: str, nodes: Iterable[str]) -> str:
    """The name of a stream's productions for all of its consumers but these, which have taken them
    in the producer's shard."""
    return f"{_WITHOUT}{_END.join(nodes)}{_END}{_END}{stream}"


def is_rest(stream: str) -> bool:
    """Whether a name is one of :func:`rest_of`."""
    return stream.startswith(_REST)


def left_out(stream: str) -> frozenset[str]:
    """The consumers that are left out of the productions of this name."""
    names = stream.removeprefix(_REST)
    if not names.startswith(_WITHOUT):
        return frozenset()
    return frozenset(names.removeprefix(_WITHOUT).rpartition(2 * _END)[0].split(_END))


def whole_of(stream: str) -> str:
    """The stream that productions of this name belong to: itself, or one of which only some
    consumers get them."""
    return stream.removeprefix(_REST).rpartition(2 * _END)[2]


def replay_channel(request: str) -> ChannelName:
    """The channel of the letters that a request replays."""
    return ChannelName(f"replay/{request}")


def producer_of(channel: str) -> NodeName | None:
    """The node whose shard sends on this channel; None for those of partitions and letters."""
    # "/" cannot stand in the name of a shard, but a partition may well end like one:
    # "source.clicks/part-3".
    parts = shard_parts(channel) if "/" not in channel else None
    return parts[0] if parts is not None else None
