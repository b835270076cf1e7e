"""Events of the master."""

from __future__ import annotations

from dataclasses import dataclass

from millwheel.control.master.tables.resharding import Resharding
from millwheel.core.model.names import NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A worker as its membership describes it. ``leaving``: the worker is about to give its shards
    away and stop. ``weight``: its share of shards, relative to a worker of weight 1."""

    incarnation: WorkerName
    address: str
    host: str = ""
    leaving: bool = False
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoad:
    """The work of a shard since its owner opened it, the size of its state, and the hashes of some
    recent keys."""

    shard: ShardName
    token: Token
    records: int
    state_bytes: int
    busy_us: int
    sample: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesLoaded:
    """All range tables as stored. This event must come before the first members: if the members
    were older than the tables, an owner that joined in between would be missing among them and
    count as dead."""

    tables: tuple[RangeTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSeen:
    """A table in some version: our own write, another master's write, or an outdated one."""

    table: RangeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConflicted:
    """Another write of the table came before ours. ``stored`` is the stored table (None: there is
    none)."""

    node: NodeName
    stored: RangeTable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFailed:
    """Our write of a table had no effect; the next tick decides it anew."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersChanged:
    """All workers that ZooKeeper counts as members."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatsChanged:
    """The requested number of serving workers, without spares; None: the number that the run began
    with."""

    seats: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUnreachable:
    """The process of a worker is gone, even if its ZooKeeper session has not expired yet."""

    incarnation: WorkerName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSealed:
    """The journal of a dead worker is closed for ever at ``end``."""

    incarnation: WorkerName
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SealFailed:
    """A journal could not be sealed; the next tick tries again."""

    incarnation: WorkerName


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReleased:
    """The owner of a shard has stopped it for good under this token; ``last_commit`` is durable."""

    incarnation: WorkerName
    shard: ShardName
    token: Token
    last_commit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReported:
    """Loads of some shards of one worker. ``memory``: the used share of the memory that it may use
    (0 to 1)."""

    incarnation: WorkerName
    loads: tuple[ShardLoad, ...]
    memory: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSeen:
    """The newest snapshot of a shard holds everything that was committed before ``token``."""

    shard: ShardName
    token: Token
    last_commit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalsFound:
    """The journals that exist on the root, of the living and the dead."""

    incarnations: tuple[WorkerName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequested:
    """A planned move is requested. ``ticket`` relates the answer to the request."""

    ticket: int
    node: NodeName
    shard: ShardName
    worker: WorkerName


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardRequested:
    """A split or a merge is requested. ``ticket`` relates the answer to the request."""

    ticket: int
    resharding: Resharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passes; ``now_us`` is monotonic."""

    now_us: int


Event = (
    TablesLoaded
    | TableSeen
    | WriteConflicted
    | WriteFailed
    | MembersChanged
    | SeatsChanged
    | WorkerUnreachable
    | JournalSealed
    | SealFailed
    | ShardReleased
    | LoadReported
    | ManifestSeen
    | JournalsFound
    | MoveRequested
    | ReshardRequested
    | Tick
)
