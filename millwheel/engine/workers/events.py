"""The events of a worker's loop. Ports and servers only enqueue them; the loop does everything
else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.adapters.ports import StateStore
from millwheel.control.savepoints.orders import SavepointOrder, Standing
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.model.failures import CallKind, Tally
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.pipeline.replays import ReplayOrder
from millwheel.engine.queries.model import AskedQueries
from millwheel.engine.workers.store_read import StoreRead


@dataclass(slots=True)
class DeliveryCame:
    """A peer sent records for one of our shards. ``reply_to`` is where answers go. Like the next
    one it is never changed, but not frozen: a step gets several of them, and setting fields of a
    frozen one takes three times as long."""

    channel: ChannelName
    node: NodeName
    target: ShardName
    target_token: Token
    epoch: int
    index: int
    batch: AnyBatch
    reply_to: object


@dataclass(slots=True)
class AckCame:
    """A consumer has applied everything of an epoch up to ``index``."""

    channel: ChannelName
    target: ShardName
    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class RefusalCame:
    """A consumer asks to restart a lane. With ``moved`` the range table must be looked up first."""

    channel: ChannelName
    target: ShardName
    epoch: int
    moved: bool


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The connection to a peer broke: messages sent over it may not have arrived."""

    address: str


@dataclass(frozen=True, slots=True)
class TableChanged:
    """A newer version of a range table."""

    table: RangeTable


@dataclass(frozen=True, slots=True)
class WorkersChanged:
    """Incarnation to address of every live worker, and its host and rack ("": unknown)."""

    addresses: Mapping[str, str]
    locations: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatermarksRose:
    """Published watermarks by node."""

    watermarks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TalliesChanged:
    """How calls of nodes went, over all of their shards, where some failed."""

    tallies: Mapping[str, Mapping[CallKind, Tally]]


@dataclass(frozen=True, slots=True)
class ReplayOrdered:
    """Dead letters are to be tried again; ``at_start``: the order is older than this worker."""

    order: ReplayOrder
    at_start: bool


@dataclass(frozen=True, slots=True)
class ReplayDone:
    """All records of an order have been applied by the owners of the shards."""

    id: str


@dataclass(frozen=True, slots=True)
class TokenKnown:
    """The injector has our token of a shard: the shard may ack deliveries and send."""

    shard: ShardName
    token: Token


@dataclass(frozen=True, slots=True)
class GroupDurable:
    """The oldest submitted group of commits is durable, in this segment of the journal."""

    segment: int


@dataclass(frozen=True, slots=True)
class JournalFailed:
    """The journal refused a commit: nothing more may be acked by this process."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ShardRecovered:
    """The store of a shard is open and holds everything its lineage committed. ``replayed``: bytes
    of commits that no snapshot had. ``opened``: the data already read from it, None for nothing."""

    entry: ShardEntry
    node: NodeName
    store: StateStore
    replayed: int = 0
    opened: StoreRead | None = None


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """A shard could not be recovered."""

    entry: ShardEntry
    node: NodeName
    error: Exception


@dataclass(frozen=True, slots=True)
class DamageFound:
    """The files from which a shard was restored, and from which it serves, differ from the
    published snapshot."""

    error: Exception


@dataclass(frozen=True, slots=True)
class SnapshotPublished:
    """A snapshot of a shard covers its commits up to ``last_commit``."""

    shard: ShardName
    token: Token
    last_commit: int


@dataclass(frozen=True, slots=True)
class WorkDone:
    """A background task of an operator is done; ``report(now)`` passes it to the operator, if the
    shard is still served under this token."""

    shard: ShardName
    token: Token
    report: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """A snapshot could not be published; it is tried again later."""

    shard: ShardName
    token: Token
    error: Exception


@dataclass(frozen=True, slots=True)
class Injected:
    """Records from outside for an injection source. ``answer`` takes (moved, accepted, duplicates,
    rejected) once they are durable."""

    stream: str
    target: ShardName
    values: Sequence[bytes]
    ids: Sequence[str]
    answer: Callable[[bool, int, int, int], None]
    traces: Sequence[str] = ()
    """The trace contexts that they came with, "" for none; empty where none has one."""


@dataclass(frozen=True, slots=True)
class MasterAttached:
    """A master has connected. Releases that were reported to an earlier one are reported to it
    again."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """Our membership is gone; the journal's seal decides, but there is no point in going on."""


@dataclass(frozen=True, slots=True)
class OrdersChanged:
    """The current orders by name, in encoded form (see
    :mod:`millwheel.control.savepoints.orders`)."""

    members: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ShardSaved:
    """The copy of a shard is in a savepoint, or ``problem`` is the reason why not."""

    order: SavepointOrder
    shard: ShardName
    standing: Standing
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FiguresAsked:
    """A request for ``/metrics`` or ``/rows``: ``answer`` is called with the shards that are served
    here and the wall clock (µs). It may read them until it returns."""

    answer: Callable[[Iterable[Any], int], None]


@dataclass(frozen=True, slots=True)
class QueriesCame:
    """Queries have arrived."""

    asked: AskedQueries


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Finish what is in flight and leave."""


Event = (
    DeliveryCame
    | AckCame
    | RefusalCame
    | PeerLost
    | TableChanged
    | WorkersChanged
    | WatermarksRose
    | TalliesChanged
    | ReplayOrdered
    | ReplayDone
    | TokenKnown
    | GroupDurable
    | JournalFailed
    | ShardRecovered
    | RecoveryFailed
    | DamageFound
    | SnapshotPublished
    | WorkDone
    | SnapshotFailed
    | Injected
    | MasterAttached
    | SessionLost
    | OrdersChanged
    | ShardSaved
    | FiguresAsked
    | QueriesCame
    | StopAsked
)
