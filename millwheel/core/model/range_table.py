"""The range table of a computation: the owner of each key range, its token, and its former owners.

The master writes it by compare-and-set, workers and injector follow it. It is also what recovery
obeys: a commit in a journal counts only if the lineage of its shard names that journal and that
token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import msgspec

from millwheel.core.model.damage import DAMAGE
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import (
    NO_SHARD,
    NO_WORKER,
    NodeName,
    ShardName,
    Token,
    WorkerName,
    shard_name,
    shard_parts,
)
from millwheel.core.model.ranges import KeyRange, check_tiling
from millwheel.errors import CorruptionError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_Text = TypeVar("_Text", bound=str)
_EDGE = re.compile(r"[0-9a-f]{1,17}")


class Ancestor(NamedTuple):
    """One former owner whose commits count: journal (by incarnation), token, and their end.

    ``sealed_end`` is the valid length in bytes of the sealed journal, or -1 after a planned
    release; ``last_commit`` is the number of the last commit of a planned release, or -1 after a
    seal.
    """

    incarnation: WorkerName
    token: Token
    sealed_end: int
    last_commit: int


@dataclass(frozen=True, slots=True)
class Parent:
    """A shard that no longer exists, from which another one was made by a split or a merge.

    Its owner released it after ``last_commit``, so a snapshot of it holds everything (0: it never
    committed anything). The child has the keys of both its own range and this one.
    """

    shard: ShardName
    range: KeyRange
    token: Token
    last_commit: int


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard. ``owner`` is an incarnation, or "" while there is no owner.

    ``next_owner`` names the worker a planned move goes to, ``split_at`` the lower edge of the upper
    half of a planned split (0: none), ``merges_as`` the shard that it becomes together with its
    neighbour of the same plan. For each of these plans the owner stops, commits, and releases the
    shard. ``parents`` are the shards from which it was made, until it has a snapshot of its own.
    ``standby`` is the worker that follows the owner's commits, "" when there is none.
    """

    shard: ShardName
    range: KeyRange
    owner: WorkerName
    token: Token
    lineage: tuple[Ancestor, ...] = ()
    next_owner: WorkerName = NO_WORKER
    split_at: int = 0
    merges_as: ShardName = NO_SHARD
    parents: tuple[Parent, ...] = ()
    standby: WorkerName = NO_WORKER

    @property
    def lease(self) -> Lease:
        """The lease that fences off all earlier owners."""
        return Lease(self.token)

    def ancestors_since(self, token: Token) -> tuple[Ancestor, ...]:
        """The former owners whose commits a snapshot published under ``token`` may lack.

        Its owner had replayed all commits of older owners before it opened the shard; commits under
        that very token may have followed the snapshot.
        """
        published = Lease(token)
        return tuple(
            ancestor for ancestor in self.lineage if not published.outlived(ancestor.token)
        )

    @property
    def resharded(self) -> bool:
        """Whether it is to be split or merged: its range goes to other shards once it has been
        released."""
        return bool(self.split_at or self.merges_as)

    def must_leave(self, owner: WorkerName) -> bool:
        """Whether ``owner`` is to stop the shard and release it."""
        return self.resharded or (bool(self.next_owner) and self.next_owner != owner)

    def assigned(self, owner: WorkerName) -> ShardEntry:
        """The entry under a new owner and the next token (a token is never used twice)."""
        return replace(
            self, owner=owner, token=Token(self.token + 1), next_owner=NO_WORKER, standby=NO_WORKER
        )


@dataclass(frozen=True, slots=True)
class RangeTable:
    """All shards of one computation; ``version`` is the store's, for compare-and-set (-1: not
    stored yet).

    ``named`` is the number in the name of the next shard that a split or merge makes (0: none was
    made yet). A name is never used twice, because snapshots and channels of the shard that had it
    may still be there.
    """

    computation: NodeName
    shards: tuple[ShardEntry, ...]
    version: int = -1
    named: int = 0

    def __post_init__(self) -> None:
        check_tiling((entry.range for entry in self.shards), f"range table of {self.computation}")

    def entry(self, shard: ShardName) -> ShardEntry | None:
        """The entry of a shard, or None when the table has none."""
        return next((entry for entry in self.shards if entry.shard == shard), None)

    @property
    def next_number(self) -> int:
        """The number in the name of the next shard."""
        names = (shard_parts(entry.shard) for entry in self.shards)
        return self.named or 1 + max((parts[1] for parts in names if parts is not None), default=-1)

    def name(self, number: int) -> ShardName:
        """The name of a new shard."""
        return shard_name(self.computation, number)

    def encode(self) -> bytes:
        """JSON, so that a person can read the table in ZooKeeper. Hash edges are hex strings."""
        rows = [_row(entry) for entry in self.shards]
        return msgspec.json.encode(_Form(self.computation, rows, self.named))

    @staticmethod
    def decode(data: bytes, version: int) -> RangeTable:
        """The inverse of :meth:`encode`, with the version that the store reported.

        Raises CorruptionError for anything else, also for names that could lead out of the root.
        """
        try:
            form = _decode_form(data)
            shards = tuple(_entry(row) for row in form.shards)
            return RangeTable(checked_name(form.computation), shards, version, form.named)
        except DAMAGE as ex:
            raise CorruptionError(
                f"{len(data)} bytes in ZooKeeper (version {version}) are not a range table: {ex}."
                " Only the master may write there; restore ZooKeeper's data, or start on a"
                " new root"
            ) from ex


class _ParentRow(msgspec.Struct):
    shard: ShardName
    lo: str
    hi: str
    token: Token
    last_commit: int


class _Row(msgspec.Struct, omit_defaults=True):
    shard: ShardName
    lo: str
    hi: str
    owner: WorkerName
    token: Token
    next_owner: WorkerName
    lineage: list[Ancestor]
    split_at: str = ""
    merges_as: ShardName = NO_SHARD
    parents: list[_ParentRow] = []
    standby: WorkerName = NO_WORKER


class _Form(msgspec.Struct, omit_defaults=True):
    computation: NodeName
    shards: list[_Row]
    named: int = 0


_decode_form = msgspec.json.Decoder(_Form).decode


def _row(entry: ShardEntry) -> _Row:
    return _Row(
        shard=entry.shard,
        lo=f"{entry.range.lo:016x}",
        hi=f"{entry.range.hi:x}",
        owner=entry.owner,
        token=entry.token,
        next_owner=entry.next_owner,
        lineage=list(entry.lineage),
        split_at=f"{entry.split_at:016x}" if entry.split_at else "",
        merges_as=entry.merges_as,
        parents=[
            _ParentRow(p.shard, f"{p.range.lo:016x}", f"{p.range.hi:x}", p.token, p.last_commit)
            for p in entry.parents
        ],
        standby=entry.standby,
    )


def _entry(row: _Row) -> ShardEntry:
    for ancestor in row.lineage:
        checked_name(ancestor.incarnation)
    return ShardEntry(
        shard=checked_name(row.shard),
        range=KeyRange(edge_of(row.lo), edge_of(row.hi)),
        owner=row.owner and checked_name(row.owner),
        token=row.token,
        next_owner=row.next_owner and checked_name(row.next_owner),
        lineage=tuple(row.lineage),
        split_at=_inner_edge(row),
        merges_as=row.merges_as and checked_name(row.merges_as),
        parents=tuple(
            Parent(
                checked_name(p.shard),
                KeyRange(edge_of(p.lo), edge_of(p.hi)),
                p.token,
                p.last_commit,
            )
            for p in row.parents
        ),
        standby=row.standby and checked_name(row.standby),
    )


def _inner_edge(row: _Row) -> int:
    """The edge at which a shard is to be split; 0 when it is not."""
    edge = edge_of(row.split_at) if row.split_at else 0
    if edge and not edge_of(row.lo) < edge < edge_of(row.hi):
        raise ValueError(f"{row.split_at} does not lie inside the range of {row.shard[:40]}")
    return edge


def edge_of(text: str) -> int:
    """An edge of a range; at most 17 hex digits, 2**64 is one followed by sixteen."""
    if not _EDGE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not an edge of a key range")
    return int(text, 16)


def checked_name(name: _Text) -> _Text:
    """A name that becomes a part of paths: of journals, snapshots and local stores. Raises
    ValueError for one that could lead elsewhere."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:140]!r} cannot name a shard, a node or a worker")
    return name
