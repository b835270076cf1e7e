"""The sending side of a shard: productions until every consumer has applied them. Pure.

The productions of one commit are a *chunk*. A chunk is routed to the shards of every consumer as
*parts*; when all its parts are acked, the chunk is done and its entry in the store may go. Until
then the chunk holds the shard's watermark at its earliest timestamp.

Each (channel, consumer shard) pair is a *lane*: it numbers its deliveries, keeps the unacked ones,
and sends no more than a window of records ahead of the acks (its credit).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

from millwheel.core.columns.batch import AnyBatch
from millwheel.core.formats.codec import deliveries
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.delivery.lane_times import LaneTimes
from millwheel.errors import InvariantError, invariant

_COUNT_BITS = 64
"""An epoch is a pair as one number: the owner's token, and below it how many epochs this owner
began before. At a billion restarts a second the count would last for centuries, so it never runs
into the next token."""


def joined_epoch(token: Token, count: int) -> int:
    """An epoch of an owner: above all of those of owners with lower tokens."""
    # Beyond its bits, the count would make epochs of the next owner, which has others for them.
    invariant(0 <= count < 1 << _COUNT_BITS, f"{count} does not count the epochs of an owner")
    return token << _COUNT_BITS | count


def split_epoch(epoch: int) -> tuple[int, int]:
    """The owner's token, and the count below it; each fits into 64 bits."""
    return epoch >> _COUNT_BITS, epoch & ((1 << _COUNT_BITS) - 1)


Route = Callable[[NodeName, AnyBatch], list[tuple[ShardName, AnyBatch]]]
"""(consumer node, batch) -> the shards of that node that get any of it, each with its records in
order."""


@dataclass(slots=True)
class OutputChunk:
    """The records that one commit (or one read of a source partition) sends, as (consumer node, its
    records).

    ``number`` is unique within the channel and rises; for a ``stored`` (checkpointed) chunk it is
    its key in the store. ``read`` marks reads of a source, which are never stored. ``stored_form``
    is the form in which a weak production is checkpointed when a consumer takes too long.
    ``commit`` is the commit that must be durable before the chunk is sent; until then the chunk is
    ``held``.
    """

    number: int
    channel: ChannelName
    batches: list[tuple[NodeName, AnyBatch]]
    min_timestamp: int
    stored: bool = True
    read: bool = False
    finished: bool = False
    held: bool = False
    commit: int = 0
    stored_form: bytes = b""
    open_parts: int = 0
    weight: int = 0

    def __post_init__(self) -> None:
        self.weight = sum([batch.weight for _, batch in self.batches])


@dataclass(slots=True)
class _Part:
    chunk: OutputChunk
    batch: AnyBatch
    weight: int


@dataclass(slots=True)
class Send:
    """An effect: hand this delivery to the worker that owns ``target``. ``rests_on`` is the
    sender's commit without which it must not leave the worker (0: none). It is never changed, but
    not frozen: setting fields of a frozen one takes three times as long, and a step makes
    several."""

    channel: ChannelName
    node: NodeName
    target: ShardName
    epoch: int
    index: int
    batch: AnyBatch
    rests_on: int = 0


@dataclass(slots=True)
class _Lane:
    channel: ChannelName
    node: NodeName
    target: ShardName
    epoch: int
    next_index: int = 0
    waiting: deque[_Part] = field(default_factory=deque)
    unacked: deque[tuple[int, _Part]] = field(default_factory=deque)
    unacked_weight: int = 0

    def validate(self, window: int) -> None:
        """Raise InvariantError unless indices, credit and the order of records are right."""
        where = f"the lane of {self.channel} to {self.target}"
        indices = [index for index, _ in self.unacked]
        expected = list(range(self.next_index - len(indices), self.next_index))
        invariant(
            indices == expected, f"{where} waits for acks of {indices}, next is {self.next_index}"
        )
        weights = [part.weight for _, part in self.unacked]
        invariant(
            self.unacked_weight == sum(weights),
            f"{where} counts {self.unacked_weight}, sent is {sum(weights)}",
        )
        invariant(
            sum(weights[:-1]) < window, f"{where} has sent {sum(weights)} with a credit of {window}"
        )
        last = 0
        for part in (*(part for _, part in self.unacked), *self.waiting):
            first, end = (
                (int(part.batch.seqs[0]), part.batch.last_seq)
                if part.batch.last_seq
                else (last + 1, last)
            )
            invariant(first > last, f"{where} has record {first} behind {last}")
            last = end


class Outbox:
    """All lanes out of one shard. ``token`` makes the epochs of a new owner higher than all earlier
    ones."""

    def __init__(self, token: Token, window: int) -> None:
        self._epoch = joined_epoch(token, 0)
        self._window = window
        self._lanes: dict[tuple[ChannelName, ShardName], _Lane] = {}
        self._channels: set[ChannelName] = set()
        self._nodes: set[NodeName] = set()
        self.open: dict[tuple[ChannelName, int], OutputChunk] = {}
        """Chunks that some consumer has not applied yet."""
        self.done: list[OutputChunk] = []
        """Chunks that all consumers have applied, but whose end no commit has yet."""
        self.unsettled: list[OutputChunk] = []
        """Productions that keep :meth:`min_timestamp` until a bundle takes them as done."""
        self.ready: dict[tuple[ChannelName, ShardName], None] = {}
        """The lanes that :meth:`sends` has to look at."""
        self.pending_weight = 0
        self.times: LaneTimes | None = None
        """The completion times, if anything depends on them."""

    def add(self, chunk: OutputChunk) -> None:
        """Hold a chunk (and the watermark) until :meth:`release` routes it and the consumers ack
        it."""
        # The former one would hold the watermark no more, although its consumers have not got it.
        if (chunk.channel, chunk.number) in self.open:
            raise InvariantError(f"{chunk.channel}#{chunk.number} is on its way already")
        self.open[chunk.channel, chunk.number] = chunk
        self.pending_weight += chunk.weight

    def release(self, chunk: OutputChunk, route: Route) -> None:
        """Route a chunk, to be sent when it is not held. A chunk without consumers is done at
        once."""
        parts = [
            (node, target, _Part(chunk, piece, piece.weight))
            for node, batch in chunk.batches
            for target, share in route(node, batch)
            for piece in deliveries(share)
        ]
        # Its parts would be on the lanes twice, and the acks of the first half would end it.
        if chunk.open_parts or (chunk.channel, chunk.number) not in self.open:
            raise InvariantError(f"{chunk.channel}#{chunk.number} is routed already, or is done")
        chunk.open_parts = len(parts)
        for node, target, part in parts:
            self._lane(chunk.channel, node, target).waiting.append(part)
            self.ready[chunk.channel, target] = None
        if not parts:
            self._finish(chunk)

    def sends(
        self, early: Callable[[ShardName], bool] = lambda target: False, now_us: int = 0
    ) -> Iterator[Send]:
        """Deliveries that the credit of their lanes allows now. Held chunks go only to targets that
        may have them ``early``: shards whose commits come after ours in the same journal, and that
        send nothing on before these are durable."""
        ready, self.ready = self.ready, {}
        for lane_key in ready:
            lane = self._lanes.get(lane_key)
            # One goes in any case: a delivery that weighs more than the whole credit would wait for
            # ever.
            while (
                lane and lane.waiting and (not lane.unacked or lane.unacked_weight < self._window)
            ):
                if lane.waiting[0].chunk.held and not early(lane.target):
                    self.ready[lane_key] = None
                    break
                part = lane.waiting.popleft()
                lane.unacked.append((lane.next_index, part))
                lane.unacked_weight += part.weight
                if self.times is not None:
                    self.times.sent(
                        lane.channel,
                        lane.target,
                        lane.epoch,
                        lane.next_index,
                        len(part.batch),
                        now_us,
                    )
                yield Send(
                    lane.channel,
                    lane.node,
                    lane.target,
                    lane.epoch,
                    lane.next_index,
                    part.batch,
                    part.chunk.commit,
                )
                lane.next_index += 1

    def ack(
        self, channel: ChannelName, target: ShardName, epoch: int, index: int, now_us: int = 0
    ) -> None:
        """Note that everything of this epoch up to ``index`` is applied and durable at the
        consumer."""
        lane = self._lanes.get((channel, target))
        if lane is None or lane.epoch != epoch:
            return
        # Later deliveries of this epoch would count as applied, and be lost with their chunks.
        if index >= lane.next_index:
            raise InvariantError(
                f"{target} acks index {index} of {channel}; the next to be sent is"
                f" {lane.next_index}"
            )
        if self.times is not None:
            self.times.acked(channel, target, epoch, index, now_us)
        while lane.unacked and lane.unacked[0][0] <= index:
            _, part = lane.unacked.popleft()
            lane.unacked_weight -= part.weight
            part.chunk.open_parts -= 1
            # It is done at 0: below that it never is, and holds the watermark for ever.
            if part.chunk.open_parts < 0:
                raise InvariantError(f"{channel}#{part.chunk.number} has more acks than parts")
            if part.chunk.open_parts == 0:
                self._finish(part.chunk)
        # A credit that is lost never comes back: in the end the lane would send nothing.
        if not lane.unacked and lane.unacked_weight:
            raise InvariantError(
                f"the lane of {channel} to {target} waits for no ack, but counts"
                f" {lane.unacked_weight} as sent"
            )
        if lane.waiting:
            self.ready[channel, target] = None

    def restart(self, channel: ChannelName, target: ShardName, epoch: int | None = None) -> None:
        """Begin a new epoch of a lane at its first unacked part (``epoch``: only if that one is
        current)."""
        lane = self._lanes.get((channel, target))
        if lane is None or (epoch is not None and lane.epoch != epoch):
            return
        # A new epoch, since what was sent in the old one may still arrive: in the same one, an
        # index could mean two deliveries, and an ack for the one would count for the other.
        self._epoch += 1
        # An epoch that does not rise is an old one to the inbox, which would not answer.
        invariant(
            lane.epoch < self._epoch, f"epoch {self._epoch} of {channel} follows {lane.epoch}"
        )
        lane.epoch, lane.next_index, lane.unacked_weight = self._epoch, 0, 0
        lane.waiting.extendleft(part for _, part in reversed(lane.unacked))
        lane.unacked.clear()
        if lane.waiting:
            self.ready[channel, target] = None

    def restart_all(self, predicate: Callable[[ShardName], bool]) -> None:
        """Restart every lane whose target shard satisfies ``predicate`` (its owner changed or its
        connection broke)."""
        for channel, target in list(self._lanes):
            if predicate(target):
                self.restart(channel, target)

    def reroute(self, gone: Container[str], fresh: Container[str], route: Route) -> None:
        """Send the unacked records of the shards ``gone`` to those in ``fresh``, into which they
        were split or merged.

        They get the records of each chunk in their ranges, in the order of numbers. Some were
        applied before the split or merge; these are dropped by the marks that the new shards
        inherit.
        """
        # Whole chunks, in the order of their numbers, and not the unacked parts as they are: the
        # numbers of two shards that are merged alternate within a chunk, and the part that came
        # first would raise the successor's mark over the records of the other, which no shard has
        # applied (test_what_was_acked_by_one_of_two_that_are_merged_…; mutation
        # lanes_not_led_to_the_children, found within ten seeds under the faults "split reshard").
        chunks: dict[tuple[ChannelName, int], OutputChunk] = {}
        nodes: set[NodeName] = set()
        for lane_key in [lane_key for lane_key in self._lanes if lane_key[1] in gone]:
            lane = self._lanes.pop(lane_key)
            nodes.add(lane.node)
            for part in (*(part for _, part in lane.unacked), *lane.waiting):
                # Not _finish at 0: that would delete the chunk from the store, and the children
                # have none of it yet.
                part.chunk.open_parts -= 1
                chunks[part.chunk.channel, part.chunk.number] = part.chunk
        for _, chunk in sorted(chunks.items()):
            for node, batch in chunk.batches:
                for target, share in route(node, batch) if node in nodes else ():
                    # Shards that were there before have their parts already: records with neither
                    # number nor id would be applied there twice.
                    for piece in deliveries(share) if target in fresh else ():
                        chunk.open_parts += 1
                        part = _Part(chunk, piece, piece.weight)
                        self._lane(chunk.channel, node, target).waiting.append(part)
                        self.ready[chunk.channel, target] = None
            # No ack would end it: it would hold the watermark for ever, and its records are lost.
            if not chunk.open_parts:
                raise InvariantError(
                    f"no shard gets {chunk.channel}#{chunk.number} after its shards were split or"
                    " merged"
                )

    def leads_to(self, node: NodeName) -> bool:
        """Whether a lane leads to this node."""
        return node in self._nodes

    def sends_on(self, channel: ChannelName) -> bool:
        """True when this shard numbers ``channel``."""
        return channel in self._channels

    def credit_used(self) -> float:
        """The part of its credit that the fullest lane has used."""
        return (
            max((lane.unacked_weight for lane in list(self._lanes.values())), default=0)
            / self._window
        )

    def lanes_to(self, targets: Container[str]) -> list[tuple[ChannelName, ShardName]]:
        """(channel, target) of the lanes to any of these shards."""
        return [lane for lane in self._lanes if lane[1] in targets]

    def take_done(self) -> list[OutputChunk]:
        """Chunks that every consumer has applied since the last call."""
        done, self.done = self.done, []
        self.unsettled.clear()
        return done

    def min_timestamp(self) -> int:
        """The earliest production not yet applied by every consumer (MAX_TIME: none), or
        unnumbered, checkpointed and not yet taken as done: it would be sent again after a crash,
        and consumers remember the ids of such a production only while the watermark is not far
        behind it."""
        stamps = [chunk.min_timestamp for chunk in self.open.values()]
        if self.unsettled:
            stamps += [chunk.min_timestamp for chunk in self.unsettled]
        return min(stamps, default=MAX_TIME)

    def holder(self) -> str:
        """The lane that keeps the earliest production, in words."""
        if not self.open:
            return "production whose end is not committed yet" if self.unsettled else ""
        oldest = min(self.open.values(), key=lambda chunk: chunk.min_timestamp)
        for lane in self._lanes.values():
            if any(part.chunk is oldest for _, part in lane.unacked) or any(
                p.chunk is oldest for p in lane.waiting
            ):
                return (
                    f"production {oldest.channel}#{oldest.number}, not yet applied by {lane.target}"
                )
        return f"production {oldest.channel}#{oldest.number}, not yet durable"

    @property
    def unfinished(self) -> int:
        """The number of chunks that are in flight, or done but not yet deleted by a commit."""
        return len(self.open) + len(self.done)

    @property
    def stored_numbers(self) -> set[int]:
        """The numbers of the chunks that the store has to hold: in flight, or with an end that no
        commit has yet."""
        chunks = (*self.open.values(), *self.done)
        return {chunk.number for chunk in chunks if chunk.stored and not chunk.read}

    def validate(self) -> None:
        """Raise InvariantError unless every open chunk is on its way, and everything on its way
        will be sent and is counted. For tests: it looks at everything in flight."""
        parts: Counter[int] = Counter()
        for lane_key, lane in self._lanes.items():
            lane.validate(self._window)
            own = (
                split_epoch(lane.epoch)[0] == split_epoch(self._epoch)[0]
                and lane.epoch <= self._epoch
            )
            invariant(
                own,
                f"the lane {lane_key} is in epoch {split_epoch(lane.epoch)}, not in one of its"
                " owner",
            )
            credit = not lane.unacked or lane.unacked_weight < self._window
            stuck = bool(lane.waiting) and credit and lane_key not in self.ready
            invariant(
                not stuck, f"the lane {lane_key} has parts and credit, but will not be looked at"
            )
            for part in (*(part for _, part in lane.unacked), *lane.waiting):
                chunk = part.chunk
                is_open = (
                    self.open.get((chunk.channel, chunk.number)) is chunk
                    and chunk.channel == lane.channel
                )
                invariant(
                    is_open,
                    f"the lane {lane_key} has a part of {chunk.channel}#{chunk.number}, which is"
                    " done",
                )
                parts[id(chunk)] += 1
        for chunk in self.open.values():
            name = f"{chunk.channel}#{chunk.number}"
            on_way = parts[id(chunk)]
            invariant(
                chunk.open_parts == on_way,
                f"{name} waits for {chunk.open_parts} acks, {on_way} parts are open",
            )
            invariant(not chunk.finished, f"{name} is done, but holds the watermark")
        weight = sum(chunk.weight for chunk in self.open.values())
        invariant(
            self.pending_weight == weight,
            f"{weight} is in flight, but counted as {self.pending_weight}",
        )
        invariant(
            all(chunk.finished for chunk in self.done), "a chunk that is not done counts as done"
        )

    def _lane(self, channel: ChannelName, node: NodeName, target: ShardName) -> _Lane:
        lane = self._lanes.get((channel, target))
        if lane is None:
            lane = self._lanes[channel, target] = _Lane(channel, node, target, self._epoch)
            self._channels.add(channel)
            self._nodes.add(node)
        return lane

    def _finish(self, chunk: OutputChunk) -> None:
        del self.open[chunk.channel, chunk.number]
        self.pending_weight -= chunk.weight
        # Weight that stays counted is never acked: in the end the shard would take nothing more.
        if not self.open and self.pending_weight:
            raise InvariantError(
                f"nothing is in flight on {chunk.channel}, but {self.pending_weight} is counted"
            )
        chunk.finished = True
        self.done.append(chunk)
        if (
            chunk.stored
            and not chunk.read
            and not all(batch.last_seq for _, batch in chunk.batches)
        ):
            self.unsettled.append(chunk)
