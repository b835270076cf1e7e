"""The receiving side of a shard's channels. Pure.

A channel is one numbering of records: a sender shard, or one partition of a source. Its deliveries
carry an epoch (a life of the channel; higher epochs replace lower ones) and an index within it. Two
rules make the hand-over exact:

- within an epoch, only the next index is taken, so nothing is skipped when a message is lost or the
  shard was reopened; anything else asks the sender to restart;
- records whose sequence number was taken before are cut off, so nothing is applied twice, however a
  restarted sender cuts its deliveries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.model.keys import KeyHash, key_hash
from millwheel.core.model.names import ChannelName
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.delivery.high_water_marks import HighWaterMarks
from millwheel.errors import InvariantError, invariant


class DeliveryOutcome(Enum):
    """The result of offering a delivery."""

    TAKEN = "taken"
    STALE = "stale"  # an older life of the channel, or taken already: nothing to answer
    RESTART = "restart"  # a gap: the sender must begin a new epoch at its first unacked record


@dataclass(slots=True)
class Arrival:
    """A delivery waiting to be processed. ``reply_to`` is opaque: where the ack goes."""

    channel: ChannelName
    epoch: int
    index: int
    batch: AnyBatch
    reply_to: object
    min_timestamp: int
    duplicates: int = 0


class Unanswered:
    """The ``reply_to`` of a part of a delivery: the delivery is answered with its last part."""


UNANSWERED = Unanswered()


@dataclass(slots=True)
class _Channel:
    accepted: HighWaterMarks | int
    epoch: int = -1
    next_index: int = 0


def taken(
    marks: HighWaterMarks | int, batch: AnyBatch, hashed: KeyHash = key_hash
) -> tuple[AnyBatch, HighWaterMarks | int]:
    """The new records of a batch, and the high-water marks after it."""
    if isinstance(marks, int):
        batch = batch.after(marks)
        return batch, batch.last_seq or marks
    batch = marks.fresh(batch, hashed)
    last = batch.last_seq
    return batch, marks.raised(last) if last else marks


def first_of(arrival: Arrival, count: int) -> Arrival:
    """The first records of an arrival, as the part of a delivery."""
    batch = _part(arrival.batch, 0, count)
    return replace(arrival, batch=batch, reply_to=UNANSWERED, min_timestamp=batch.earliest)


def parted(arrivals: list[Arrival], count: int) -> tuple[list[Arrival], list[Arrival]]:
    """Arrivals up to the first ``count`` records of all of them, and the others. So none is
    answered, and no high-water mark rises, before those of its channel that came earlier: no record
    stays behind that its sender forgets."""
    for index, arrival in enumerate(arrivals):
        length = len(arrival.batch)
        if count < length:
            # Acked now, the records behind it would be forgotten by their sender and lost with this
            # worker (mutation a_part_answers_for_its_delivery).
            firsts = [first_of(arrival, count)] if count else []
            rest = _part(arrival.batch, count, length)
            behind = replace(arrival, batch=rest, min_timestamp=rest.earliest)
            return [*arrivals[:index], *firsts], [behind, *arrivals[index + 1 :]]
        count -= length
    return arrivals, []


def _part(batch: AnyBatch, start: int, end: int) -> AnyBatch:
    return (
        batch.part(start, end) if isinstance(batch, ColumnBatch) else batch.pick(range(start, end))
    )


class Inbox:
    """All channels into one shard. ``marks`` are the highest applied numbers, as recovered from the
    store; ``waiting`` are the arrivals that no bundle has taken."""

    def __init__(
        self, marks: Mapping[str, HighWaterMarks | int], hashed: KeyHash = key_hash
    ) -> None:
        self._hashed = hashed
        self._channels = {name: _Channel(accepted=mark) for name, mark in marks.items()}
        self.waiting = deque[Arrival]()
        self.records = 0

    def offer(
        self, channel: ChannelName, epoch: int, index: int, batch: AnyBatch, reply_to: object
    ) -> DeliveryOutcome:
        """Accept a delivery without its already accepted records, or return the reason for refusing
        it."""
        state = self._channels.get(channel)
        if state is None:
            state = self._channels[channel] = _Channel(accepted=0)
        # Taken already, or of a lane that has begun anew, which sends all again that was not acked.
        if epoch < state.epoch or (epoch == state.epoch and index < state.next_index):
            return DeliveryOutcome.STALE
        if epoch > state.epoch:
            # The lane began with index 0, which is lost: its records are sent again.
            if index != 0:
                return DeliveryOutcome.RESTART
            state.epoch, state.next_index = epoch, 0
        if index != state.next_index:
            # To take it would raise the mark over the missing one, and its records would be cut off
            # when they come (mutation gaps_accepted).
            return DeliveryOutcome.RESTART
        state.next_index += 1
        batch, state.accepted = taken(state.accepted, batch, self._hashed)
        self.waiting.append(Arrival(channel, epoch, index, batch, reply_to, batch.earliest))
        self.records += len(batch)
        return DeliveryOutcome.TAKEN

    def push(self, arrival: Arrival) -> None:
        """Take in something that belongs to no channel (an injection)."""
        self.waiting.append(arrival)
        self.records += len(arrival.batch)

    def take(
        self, max_weight: int, accepts: Callable[[ChannelName], bool] | None = None
    ) -> list[Arrival]:
        """Arrivals in order, whole, until their batches weigh ``max_weight`` (at least one); with
        ``accepts`` only those of the channels for which it holds."""
        if accepts is not None:
            return self._take_some(max_weight, accepts)
        arrivals: list[Arrival] = []
        weight = 0
        while self.waiting and (
            not arrivals or weight + self.waiting[0].batch.weight <= max_weight
        ):
            arrivals.append(self.waiting.popleft())
            weight += arrivals[-1].batch.weight
            self.records -= len(arrivals[-1].batch)
        # By too low a count a bundle takes in nothing, and waiting arrivals would wait for ever.
        if self.records < 0:
            raise InvariantError(f"{self.records} records are left to wait in an inbox")
        return arrivals

    def take_one(self, accepts: Callable[[ChannelName], bool] | None = None) -> list[Arrival]:
        """The next record as an arrival of its own, or what belongs to no channel as a whole; none
        if nothing waits."""
        next_arrival = next(
            (arrival for arrival in self.waiting if accepts is None or accepts(arrival.channel)),
            None,
        )
        if next_arrival is None:
            return []
        self.waiting.remove(next_arrival)
        if len(next_arrival.batch) > 1 and next_arrival.channel:
            (next_arrival,), rest = parted([next_arrival], 1)
            self.waiting.extendleft(rest)
        self.records -= len(next_arrival.batch)
        return [next_arrival]

    def put_back(self, arrivals: list[Arrival], count: int) -> list[Arrival]:
        """Take only the first ``count`` records of arrivals that were taken together, and return
        them; the others wait again, before all else."""
        # From a negative index on, some would wait again that the bundle has applied.
        if count < 0:
            raise InvariantError(f"a bundle has taken {count} of its records")
        firsts, rest = parted(arrivals, count)
        self.waiting.extendleft(reversed(rest))
        self.records += sum(len(arrival.batch) for arrival in rest)
        return firsts

    def _take_some(self, max_weight: int, accepts: Callable[[ChannelName], bool]) -> list[Arrival]:
        """Channels are independent of each other, so leaving some out keeps the order of the
        rest."""
        everything, self.waiting = (
            self.waiting,
            deque(a for a in self.waiting if accepts(a.channel)),
        )
        arrivals = self.take(max_weight)
        gone = set(map(id, arrivals))
        self.waiting = deque(arrival for arrival in everything if id(arrival) not in gone)
        return arrivals

    def waits_for(self, accepts: Callable[[ChannelName], bool]) -> bool:
        """True when something of such a channel waits."""
        return any(accepts(arrival.channel) for arrival in self.waiting)

    def min_timestamp(self) -> int:
        """The earliest record still waiting (MAX_TIME: none)."""
        return (
            min([arrival.min_timestamp for arrival in self.waiting]) if self.waiting else MAX_TIME
        )

    @property
    def accepted(self) -> dict[str, HighWaterMarks | int]:
        """The number up to which each channel was taken, waiting records included."""
        return {name: state.accepted for name, state in self._channels.items()}

    @property
    def waiting_channels(self) -> set[ChannelName]:
        """The channels of which something waits."""
        return {arrival.channel for arrival in self.waiting}

    def validate(self) -> None:
        """Raise InvariantError unless all that waits is counted, holds the watermark, and is in the
        order of its channels. For tests: it looks at everything that waits."""
        records = sum(len(arrival.batch) for arrival in self.waiting)
        invariant(
            self.records == records, f"{records} records wait, but are counted as {self.records}"
        )
        last: dict[ChannelName, tuple[int, int]] = {}
        for arrival in self.waiting:
            where = f"{arrival.channel} {arrival.epoch}/{arrival.index}"
            held = arrival.min_timestamp <= arrival.batch.earliest or not arrival.channel
            invariant(
                held,
                f"{where} holds the watermark at {arrival.min_timestamp}, behind its earliest"
                " record",
            )
            state = self._channels.get(arrival.channel)
            if state is None:
                continue
            position = (arrival.epoch, arrival.index)
            in_order = (
                last.get(arrival.channel, (-1, -1)) < position < (state.epoch, state.next_index)
            )
            invariant(
                in_order,
                f"{where} waits behind {last.get(arrival.channel)}; next is {state.next_index}",
            )
            last[arrival.channel] = position
            highest = state.accepted if isinstance(state.accepted, int) else state.accepted.highest
            invariant(
                arrival.batch.last_seq <= highest,
                f"{where} goes to {arrival.batch.last_seq}, above {highest}",
            )
