"""The effects of a worker's loop, as data: one :class:`Ready` for each stretch of a step, in the
manner of etcd's raft. Its fields show what must be durable before anything is sent.

- ``sends`` and ``acks`` may leave now: each names the commit that it rests on, and that commit is
  durable. (0: it rests on none. Reads can be read again, and weak productions are sent before their
  commit.)
- ``group`` is to be written, atomically. The effects that require its durability are in
  ``group.then``: the loop makes it the ``acks`` and ``sends`` of a later :class:`Ready`, once the
  journal has answered.
- ``others`` wait for nothing.

The code that performs them checks the first two points
(:mod:`millwheel.engine.workers.performing`). A shard's store is not part of this: a commit is
applied to it while the shard runs, since the next bundle reads what this one wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from millwheel.control.savepoints.orders import OrderAnswer, SavepointOrder, Standing
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.watermark import ShardReport
from millwheel.engine.queries.model import Found
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.outbox import OutputChunk, Send
from millwheel.engine.workers.ports import Savepoints, Segments, ShardWork, SnapshotQueue


class OnceDurable(Protocol):
    """A commit on its way to the journal, and the effects that require its durability: ``arrivals``
    are acked, productions (``chunk``) and ``reads`` that were judged by it leave the worker, and
    the operator publishes what it has pending up to ``number``."""

    number: int
    arrivals: list[Arrival]
    chunk: OutputChunk | None
    reads: list[OutputChunk]


class CommitGroup(NamedTuple):
    """Commits for the journal, in the order in which they were made: a commit may rest on any
    before it. ``last`` is the last number of each shard in it. ``inline``: senders or consumers
    wait for it, and no other group is in flight."""

    entries: Sequence[bytes]
    then: Sequence[OnceDurable]
    last: Mapping[ShardName, int]
    inline: bool


class Ack(NamedTuple):
    """An answer to where a delivery came from: all ``up_to`` this index is applied, in commits of
    ``target`` up to ``rests_on``."""

    reply_to: object
    channel: ChannelName
    target: ShardName
    epoch: int
    up_to: int
    rests_on: int


class DeliveryRefusal(NamedTuple):
    """A delivery cannot be taken: its lane must begin anew, after a look at the table if the shard
    has ``moved``."""

    reply_to: object
    channel: ChannelName
    target: ShardName
    epoch: int
    moved: bool


class Outgoing(NamedTuple):
    """A delivery of one of our shards to another worker, whose shard has this ``token``."""

    sender: ShardName
    address: str
    token: Token
    send: Send


@dataclass(frozen=True, slots=True)
class Recover:
    """Open the store of a shard that is ours now; answered by ShardRecovered or RecoveryFailed."""

    node: NodeName
    entry: ShardEntry


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow a shard of another worker, as its standby."""

    entry: ShardEntry


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Follow it no longer."""

    shard: ShardName


@dataclass(frozen=True, slots=True)
class PublishSnapshot:
    """Publish a checkpoint, all of whose commits are durable."""

    shard: ShardName
    token: Token
    last_commit: int
    path: str


@dataclass(frozen=True, slots=True)
class DeleteSegment:
    """Delete a segment of the journal: published snapshots hold all its commits."""

    segment: int


@dataclass(frozen=True, slots=True)
class Report:
    """Report the watermarks of shards to the watermark service."""

    by_node: Mapping[NodeName, Sequence[ShardReport]]


@dataclass(frozen=True, slots=True)
class ForgetReports:
    """A shard left this worker: report nothing about it any more."""

    shard: ShardName


@dataclass(frozen=True, slots=True)
class Release:
    """Report to the master that the last commit of a leaving shard is durable, and in a
    snapshot."""

    shard: ShardName
    token: Token
    last_commit: int


@dataclass(frozen=True, slots=True)
class ReportLoad:
    """Report the load of every shard to the master."""

    loads: Sequence[ShardWork]


@dataclass(frozen=True, slots=True)
class AnswerOrder:
    """Report how far this worker is with a savepoint."""

    answer: OrderAnswer


@dataclass(frozen=True, slots=True)
class WithdrawAnswers:
    """The order of a savepoint is over."""


@dataclass(frozen=True, slots=True)
class SaveCopy:
    """Copy a checkpoint into a savepoint; answered by ShardSaved."""

    order: SavepointOrder
    shard: ShardName
    standing: Standing
    path: str


@dataclass(frozen=True, slots=True)
class AnswerQueries:
    """Answer a batch of queries. ``rests_on``: the commits, by shard, that its durable answers
    show."""

    reply: Callable[[Sequence[Found]], None]
    outcomes: Sequence[Found]
    rests_on: Mapping[ShardName, int]


Effect = (
    Recover
    | Follow
    | Unfollow
    | PublishSnapshot
    | DeleteSegment
    | Report
    | ForgetReports
    | Release
    | ReportLoad
    | AnswerOrder
    | WithdrawAnswers
    | SaveCopy
    | AnswerQueries
)


class Ready(NamedTuple):
    """All effects of a stretch of a step, in the order in which to perform them."""

    sends: Sequence[Outgoing] = ()
    acks: Sequence[Ack] = ()
    refusals: Sequence[DeliveryRefusal] = ()
    others: Sequence[Effect] = ()
    group: CommitGroup | None = None


class Gathering:
    """Collects the effects of the parts of the loop until they are performed."""

    def __init__(self) -> None:
        self.sends: list[Outgoing] = []
        self.acks: list[Ack] = []
        self.refusals: list[DeliveryRefusal] = []
        self.others: list[Effect] = []

    def take(self, group: CommitGroup | None = None) -> Ready | None:
        """The effects gathered since the last call; None if there are none."""
        if not (group or self.sends or self.acks or self.refusals or self.others):
            return None
        ready = Ready(self.sends, self.acks, self.refusals, self.others, group)
        self.sends, self.acks, self.refusals, self.others = [], [], [], []
        return ready

    # The parts of the loop see this as the narrow ports that they need.

    def follow(self, entry: ShardEntry) -> None:
        """See :class:`Follow`."""
        self.others.append(Follow(entry))

    def drop(self, shard: ShardName) -> None:
        """See :class:`Unfollow`."""
        self.others.append(Unfollow(shard))

    def report(self, by_node: Mapping[NodeName, Sequence[ShardReport]]) -> None:
        """See :class:`Report`."""
        self.others.append(Report(by_node))

    def forget(self, shard: ShardName) -> None:
        """See :class:`ForgetReports`."""
        self.others.append(ForgetReports(shard))

    def released(self, shard: ShardName, token: Token, last_commit: int) -> None:
        """See :class:`Release`."""
        self.others.append(Release(shard, token, last_commit))

    def load(self, loads: Sequence[ShardWork]) -> None:
        """See :class:`ReportLoad`."""
        self.others.append(ReportLoad(loads))


@dataclass(frozen=True, slots=True)
class GatheredSnapshots:
    """Snapshots are gathered; the ``port`` has the path of a checkpoint."""

    out: Gathering
    port: SnapshotQueue

    def checkpoint_path(self, shard: ShardName, token: Token, number: int) -> str:
        """See the port."""
        return self.port.checkpoint_path(shard, token, number)

    def publish(self, shard: ShardName, token: Token, last_commit: int, path: str) -> None:
        """See :class:`PublishSnapshot`."""
        self.out.others.append(PublishSnapshot(shard, token, last_commit, path))


@dataclass(frozen=True, slots=True)
class GatheredDeletions:
    """Gathers deletions of segments; the ``port`` lists the existing ones. A segment whose deletion
    is gathered counts as gone, so it is not deleted twice."""

    out: Gathering
    port: Segments
    gone: set[int] = field(default_factory=set)

    def segments(self) -> Sequence[int]:
        """Existing segments, oldest first."""
        return [segment for segment in self.port.segments() if segment not in self.gone]

    def delete_segment(self, segment: int) -> None:
        """See :class:`DeleteSegment`."""
        self.gone.add(segment)
        self.out.others.append(DeleteSegment(segment))


@dataclass(frozen=True, slots=True)
class GatheredCopies:
    """Answers and copies for savepoints are gathered; the ``port`` has the path of a checkpoint."""

    out: Gathering
    port: Savepoints

    def checkpoint_path(self, order: SavepointOrder, shard: ShardName) -> str:
        """See the port."""
        return self.port.checkpoint_path(order, shard)

    def answer(self, answer: OrderAnswer) -> None:
        """See :class:`AnswerOrder`."""
        self.out.others.append(AnswerOrder(answer))

    def withdraw(self) -> None:
        """See :class:`WithdrawAnswers`."""
        self.out.others.append(WithdrawAnswers())

    def save(self, order: SavepointOrder, shard: ShardName, standing: Standing, path: str) -> None:
        """See :class:`SaveCopy`."""
        self.out.others.append(SaveCopy(order, shard, standing, path))
