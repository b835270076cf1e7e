"""The range table of a computation: who owns which key range, under which token, and what came before.

The master writes it by compare-and-set, workers and injector follow it. It is also what recovery obeys:
a commit in a journal counts only if the lineage of its shard names that journal and that token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from millwheel.core.ranges import KeyRange, check_tiling


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
        """The inverse of :meth:`encode`, with the version that the store reported."""
        raw = msgspec.json.decode(data)
        shards = tuple(
            ShardEntry(
                shard=row["shard"],
                range=KeyRange(int(row["lo"], 16), int(row["hi"], 16)),
                owner=row["owner"],
                token=row["token"],
                next_owner=row["next_owner"],
                lineage=tuple(Ancestor(*a) for a in row["lineage"]),
            )
            for row in raw["shards"]
        )
        return RangeTable(raw["computation"], shards, version)
