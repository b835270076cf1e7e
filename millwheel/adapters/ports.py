"""The ports: the runtime's view of the outside world, one protocol per outside system.

Adapters implement them over real systems, the simulator over a seeded fake. Nothing in a port
blocks for longer than its docstring allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.core.model.names import NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import MillwheelError


class Clock(Protocol):
    """Time, read once per step and passed inward."""

    def now_us(self) -> int:
        """Wall clock, µs since 1970 UTC."""

    def monotonic_us(self) -> int:
        """A clock that never goes back, µs."""


class StoreView(Protocol):
    """A store as of one moment, for readers on any thread: later writes do not show."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys that start with ``prefix`` and are not below ``since``, in byte order."""


class StateStore(Protocol):
    """The local store of one shard: ordered bytes to bytes. Not durable by itself: the journal
    is."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def apply(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        """All of it or none of it, visible to every later read."""

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Drop every key in ``[begin, end)``."""

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys that start with ``prefix`` and are not below ``since``, in byte order, as of the
        call."""

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        """The lowest key that starts with ``prefix`` and is not below ``since``. Quick for any
        number of keys."""

    def checkpoint(self, path: str) -> None:
        """Write a consistent copy of everything applied so far to ``path``, which must not exist
        yet."""

    def size_bytes(self) -> int:
        """About how much it holds. Quick at any size."""

    def close(self) -> None: ...


class StateStores(Protocol):
    """Opens local stores below one worker's scratch directory."""

    def open(self, shard: str, checkpoint: str | None) -> StateStore:
        """A fresh store for ``shard``: empty, or a checkpoint directory, which is moved into
        place."""


class JournalWriter(Protocol):
    """The journal of this incarnation, opened by it alone."""

    @property
    def quick(self) -> bool:
        """True when a small commit usually takes less than a millisecond."""

    def commit(self, entries: Sequence[bytes]) -> int:
        """Make all ``entries`` durable, in order, as one group; blocks until they are.

        Returns the number of the segment they went to. Raises FencedError when a seal exists: then
        none of them may be acked, although they may be on disk. Raises UnavailableError when the
        outcome is unknown and a retry (of the same call) did not settle it: treat as fenced.
        """

    def segments(self) -> Sequence[int]:
        """The segments that still exist, oldest first; the last one is being written."""

    def delete_segment(self, segment: int) -> None:
        """Forget a finished segment, once every shard in it has a newer snapshot. Never touches a
        seal."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Followed:
    """Groups of a journal that is being followed, each with its entries, and where to go on.
    ``whole``: these are all that are certain now."""

    groups: Sequence[Sequence[bytes]]
    position: JournalPosition | None
    whole: bool = True


class JournalsRead(Protocol):
    """The part of the journals port that recoveries and standbys need."""

    def read(
        self, incarnation: str, upto: int, since: JournalPosition | None = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        """Entries that begin with ``prefix``, in order, up to the sealed end ``upto`` (-1: up to
        the last that is durable now, for a live journal). ``since`` is a position that
        :meth:`follow` has reached, for a sealed journal.

        Raises CorruptionError for damage anywhere but in the torn tail beyond the sealed end.
        """

    def follow(self, incarnation: str, since: JournalPosition | None) -> Followed:
        """Some of the groups behind ``since`` (None: behind the oldest) of a journal that may be
        written to, sealed or collected meanwhile; none when nothing new is certain.

        Shows only groups that the sealed journal will hold, after any deaths: not the newest group.
        Raises FencedError or CorruptionError when that part was deleted or damaged: then start
        again from a snapshot.
        """


class Journals(JournalsRead, Protocol):
    """All journals of a root."""

    def create(self, incarnation: str) -> JournalWriter:
        """The writer of a new incarnation. Raises FencedError if that name was ever used or
        sealed."""

    def seal(self, incarnation: str) -> int:
        """Close a journal for ever and return its valid length (opaque to callers, comparable to
        ``upto``).

        Idempotent: every caller gets the same number. Works for a journal that was never created,
        which then can never be. Only after it returns may shards move.
        """

    def incarnations(self) -> Sequence[WorkerName]: ...

    def collect(self, incarnation: str) -> None:
        """Delete the segments of a *sealed* journal; the seal itself stays for ever."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published snapshot of a shard. ``number`` rises by one; ``parent`` is the number it
    descends from.

    It holds the shard's state after commit ``last_commit`` made under ``token`` or an earlier one.
    ``files`` maps the name inside the checkpoint to (blob name, size in bytes, xxh3-128 hex).
    """

    shard: ShardName
    number: int
    parent: int
    token: Token
    last_commit: int
    files: Mapping[str, tuple[str, int, str]]


class Snapshots(Protocol):
    """Snapshots of shards on the shared root."""

    def latest(self, shard: ShardName) -> Manifest | None:
        """The newest manifest (highest token, then commit). Raises CorruptionError on a bad
        checksum."""

    def publish(
        self,
        shard: ShardName,
        token: Token,
        last_commit: int,
        checkpoint: str,
        guard: Callable[[], None],
    ) -> Manifest:
        """Upload the new files of the checkpoint directory and publish a manifest by
        create-if-absent.

        ``guard`` is called right before the manifest is created and raises FencedError when the
        caller is a zombie. Raises ConflictError when an owner with a newer token has published.
        """

    def restore(self, manifest: Manifest, path: str) -> None:
        """Fill the (not yet existing) directory ``path`` with the checkpoint.

        Copied files are checked. Files shared with the root are not read, so that the time does
        not depend on the size of the state: see :meth:`unverified`.
        """

    def unverified(self) -> Iterator[None]:
        """Read the files that :meth:`restore` has shared with the root, a piece at a time. Raises
        CorruptionError when they differ from the published ones."""

    def collect(self, shard: ShardName) -> int:
        """Delete blobs and manifests that cannot be reached from the newest manifests; returns how
        many."""

    def shards(self) -> Sequence[ShardName]:
        """The shards that have snapshots, or had some."""

    def drop(self, shard: ShardName) -> int:
        """Delete all snapshots of a shard that no longer exists and from which none inherits;
        returns how many files went. A crash in the middle is finished by the next call."""


class Coordination(Protocol):
    """Membership, election and range tables: ZooKeeper, or its fake.

    Callbacks come on a thread of the adapter and must only enqueue.
    """

    def join(self, role: str, name: str, data: bytes) -> None:
        """Be a member of ``role`` ("workers", "injectors", "masters") until :meth:`close` or
        session loss.

        After a lost session the adapter does *not* join again by itself; it calls ``on_lost``.
        """

    def leave(self, role: str, name: str) -> None:
        """Remove a member, ours or (master only) one that is known to be dead."""

    def watch_members(self, role: str, changed: Callable[[Mapping[str, bytes]], None]) -> None:
        """Call ``changed`` now and after every change with all members of a role."""

    def elect(self, role: str, name: str, data: bytes, won: Callable[[], None]) -> None:
        """Stand for election in ``role``; ``won`` is called once, when this member leads. Until
        then, wait.

        Leaders appear as members of ``role`` + "-leader" with their data.
        """

    def tables(self) -> dict[NodeName, RangeTable]:
        """All range tables, read now."""

    def watch_tables(self, changed: Callable[[RangeTable], None]) -> None:
        """Call ``changed`` with every table now and with each new version of one."""

    def write_table(self, table: RangeTable) -> int:
        """Compare-and-set on ``table.version`` (-1 creates); the new version. Raises ConflictError.

        An ambiguous outcome is settled by reading again before this returns.
        """

    def write_tables(self, tables: Sequence[RangeTable]) -> Sequence[int | MillwheelError]:
        """Tables of different nodes, each as :meth:`write_table` does, side by side, so that all of
        them wait for the disk together. For each the new version, or the error. If this process
        dies meanwhile, any of them may be stored."""

    def get(self, name: str) -> bytes | None:
        """A small named value of the pipeline (for example its identity)."""

    def put_if_absent(self, name: str, data: bytes) -> bytes:
        """Store a small value unless there is one; returns the stored one."""

    def on_lost(self, lost: Callable[[], None]) -> None:
        """Call ``lost`` when the session is gone, by the server's decision or by our own monotonic
        clock."""

    def close(self) -> None: ...
