"""The ports of a worker's loop. It never waits for them: each answers with an event, or not at
all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millwheel.adapters.ports import Clock
from millwheel.control.savepoints.orders import OrderAnswer, SavepointOrder, Standing
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.watermark import ShardReport
from millwheel.engine.queries.model import Answer, Query
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.outbox import Send
from millwheel.engine.workers.tracing.tracing import Tracing

Post = Callable[[ev.Event], None]
"""Puts an event into the mailbox of the loop; any thread may."""


class BackgroundTask(Protocol):
    """Work for another thread, which may take long; its answer is an event."""

    @property
    def lane(self) -> str:
        """Tasks of one lane are carried out one after the other."""

    @property
    def shard(self) -> ShardName:
        """Whose task it is."""

    @property
    def token(self) -> Token:
        """The token of that shard's owner."""

    def carried_out(self) -> ev.WorkDone:
        """Do the work. An error is part of the answer."""


class Transport(Protocol):
    """Messages to peers. Delivery is in order per peer while its connection lives; PeerLost when it
    breaks."""

    def send(self, address: str, token: Token, send: Send) -> None:
        """Queue a delivery."""

    def ack(
        self, reply_to: object, channel: ChannelName, target: ShardName, epoch: int, index: int
    ) -> None:
        """Queue an answer to where a delivery came from."""

    def refuse(
        self, reply_to: object, channel: ChannelName, target: ShardName, epoch: int, moved: bool
    ) -> None:
        """Queue a refusal to where a delivery came from."""

    def flush(self) -> None:
        """Hand over everything queued since the last call, in as few messages as possible."""


class Segments(Protocol):
    """The segments of the journal."""

    def segments(self) -> Sequence[int]:
        """Existing segments, oldest first."""

    def delete_segment(self, segment: int) -> None: ...


class GroupCommits(Segments, Protocol):
    """The journal behind a queue: GroupDurable or JournalFailed for each group, in order."""

    def submit(self, entries: Sequence[bytes]) -> None: ...

    def write_now(self, entries: Sequence[bytes]) -> int | None:
        """Write a group while the caller waits, and return its segment; None, without writing
        anything, when waiting would take longer than handing it over. Only for a caller without
        unanswered groups. Raises the journal's errors."""


class ShardRecoveries(Protocol):
    """Opens stores in the background: ShardRecovered or RecoveryFailed."""

    def recover(self, node: NodeName, entry: ShardEntry) -> None: ...


class Followers(Protocol):
    """Stores that follow shards of other workers, in the background. A recovery takes such a store
    over."""

    def follow(self, entry: ShardEntry) -> None:
        """Follow a shard under this owner. Called again for each new entry of it."""

    def drop(self, shard: ShardName) -> None:
        """Follow it no longer."""


class Copies(Protocol):
    """Stores of other workers' shards that can be asked here."""

    def answer(self, shard: ShardName, query: Query) -> Answer | None:
        """The answer from the copy of a shard, as of a commit that is certain to count; None
        without a copy. Raises QueryError."""


class NoCopies:
    """No store of another worker is here."""

    def answer(self, shard: ShardName, query: Query) -> Answer | None:
        return None


class SnapshotQueue(Protocol):
    """Publishes checkpoints in the background: SnapshotPublished or SnapshotFailed."""

    def checkpoint_path(self, shard: ShardName, token: Token, number: int) -> str:
        """Where the loop writes the next checkpoint of a shard."""

    def publish(self, shard: ShardName, token: Token, last_commit: int, path: str) -> None: ...


class Reports(Protocol):
    """The line to the injector: WatermarksRose and TokenKnown come back."""

    def report(self, by_node: Mapping[NodeName, Sequence[ShardReport]]) -> None: ...

    def forget(self, shard: ShardName) -> None:
        """Report nothing more about a shard that left this worker."""


@dataclass(frozen=True, slots=True)
class ShardWork:
    """The load of a shard since it was opened here: records, µs spent, and the hashes of some of
    its recent keys; and the bytes of its store, about."""

    shard: ShardName
    token: Token
    records: int
    busy_us: int
    sample: tuple[int, ...] = ()
    state_bytes: int = 0


class MasterLine(Protocol):
    """The line to the master."""

    def released(self, shard: ShardName, token: Token, last_commit: int) -> None:
        """Release a shard for a planned move: our last commit of it is durable."""

    def load(self, loads: Sequence[ShardWork]) -> None:
        """Report the load of every shard here."""


class Savepoints(Protocol):
    """Copies of shards outside the root, and the answers to the process that ordered them."""

    def answer(self, answer: OrderAnswer) -> None:
        """Report how far we are with an order."""

    def withdraw(self) -> None:
        """Take back all answers: their order is over."""

    def checkpoint_path(self, order: SavepointOrder, shard: ShardName) -> str:
        """Where the loop writes the checkpoint of a shard."""

    def save(self, order: SavepointOrder, shard: ShardName, standing: Standing, path: str) -> None:
        """Copy a checkpoint to the path that the order names, in the background: ShardSaved."""


@dataclass(frozen=True, slots=True)
class WorkerPorts:
    """Everything outside the loop."""

    clock: Clock
    transport: Transport
    journal: GroupCommits
    recoveries: ShardRecoveries
    snapshots: SnapshotQueue
    reports: Reports
    master: MasterLine
    savepoints: Savepoints
    followers: Followers
    copies: Copies = field(default_factory=NoCopies)
    tracing: Tracing | None = None
