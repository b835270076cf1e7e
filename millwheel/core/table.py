"""The range table of a computation: who owns which key range, under which token, and what came before.

The master writes it by compare-and-set, workers and injector follow it. It is also what recovery obeys:
a commit in a journal counts only if the lineage of its shard names that journal and that token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from millwheel.core.ranges import KeyRange, check_tiling
from millwheel.errors import CorruptionError, InvariantError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_EDGE = re.compile(r"[0-9a-f]{1,17}")


class Ancestor(NamedTuple):
    """One former owner whose commits count: journal (by incarnation), token, and where they end.

    ``sealed_end`` is the valid length in bytes of the sealed journal, or -1 after a planned release;
    ``last_commit`` is the number of the last commit of a planned release, or -1 after a seal.
    """

    incarnation: str
    token: int
    sealed_end: int
    last_commit: int


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard. ``owner`` is an incarnation or "" while nobody serves it.

    ``next_owner`` names the worker a planned move goes to; the owner stops, commits, and says so.
    """

    shard: str
    range: KeyRange
    owner: str
    token: int
    lineage: tuple[Ancestor, ...] = ()
    next_owner: str = ""

    def assigned(self, owner: str) -> ShardEntry:
        """The entry under a new owner and the next token (a token is never used twice)."""
        return replace(self, owner=owner, token=self.token + 1, next_owner="")


@dataclass(frozen=True, slots=True)
class RangeTable:
    """All shards of one computation; ``version`` is the store's, for compare-and-set (-1: not stored yet)."""

    computation: str
    shards: tuple[ShardEntry, ...]
    version: int = -1

    def __post_init__(self) -> None:
        check_tiling((entry.range for entry in self.shards), f"range table of {self.computation}")

    def entry(self, shard: str) -> ShardEntry | None:
        """The entry of a shard, or None when the table does not know it."""
        return next((entry for entry in self.shards if entry.shard == shard), None)

    def encode(self) -> bytes:
        """JSON, so that a person can read the table in ZooKeeper. Hash edges are hex strings."""
        rows = [
            {
                "shard": e.shard,
                "lo": f"{e.range.lo:016x}",
                "hi": f"{e.range.hi:x}",
                "owner": e.owner,
                "token": e.token,
                "next_owner": e.next_owner,
                "lineage": [list(a) for a in e.lineage],
            }
            for e in self.shards
        ]
        return msgspec.json.encode({"computation": self.computation, "shards": rows})

    @staticmethod
    def decode(data: bytes, version: int) -> RangeTable:
        """The inverse of :meth:`encode`, with the version that the store reported.

        Raises CorruptionError for anything else, also for names that could lead out of the root.
        """
        try:
            form = _decode_form(data)
            shards = tuple(_entry(row) for row in form.shards)
            return RangeTable(_checked(form.computation), shards, version)
        except (msgspec.MsgspecError, ValueError, RecursionError, InvariantError) as ex:
            raise CorruptionError(
                f"{len(data)} bytes in ZooKeeper (version {version}) are no range table: {ex}. Nobody but the master "
                "may write there; restore ZooKeeper's data, or start on a new root"
            ) from ex


class _Row(msgspec.Struct):
    shard: str
    lo: str
    hi: str
    owner: str
    token: int
    next_owner: str
    lineage: list[Ancestor]


class _Form(msgspec.Struct):
    computation: str
    shards: list[_Row]


_decode_form = msgspec.json.Decoder(_Form).decode


def _entry(row: _Row) -> ShardEntry:
    for ancestor in row.lineage:
        _checked(ancestor.incarnation)
    return ShardEntry(
        shard=_checked(row.shard),
        range=KeyRange(_edge(row.lo), _edge(row.hi)),
        owner=row.owner and _checked(row.owner),
        token=row.token,
        next_owner=row.next_owner and _checked(row.next_owner),
        lineage=tuple(row.lineage),
    )


def _edge(text: str) -> int:
    """An edge of a range; at most 17 hex digits, 2**64 is one followed by sixteen."""
    if not _EDGE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no edge of a key range")
    return int(text, 16)


def _checked(name: str) -> str:
    """A name that becomes a part of paths: of journals, snapshots and local stores."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:140]!r} cannot name a shard, a node or a worker")
    return name
