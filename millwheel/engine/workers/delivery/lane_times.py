"""Completion times of deliveries, by consumer shard: ack minus send, as the sender's clock reads
them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from millwheel.core.model.names import ShardName


class Completed(NamedTuple):
    """Sums over what was acked: records, their completion times, and their shares of their lanes'
    busy time (µs)."""

    records: int = 0
    completion_us: int = 0
    alone_us: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    epoch: int
    index: int
    records: int
    at_us: int


@dataclass(slots=True)
class _Lane:
    unacked: deque[_Sent] = field(default_factory=deque)
    last_ack_us: int = 0


class LaneTimes:
    """The completion times of the shards to which a sender's lanes lead. A lane without the records
    before it in the same lane is *alone*: from its sending, or from the ack before it where that
    came later.

    >>> times = LaneTimes()
    >>> for index in range(2):
    ...     times.sent("c", "shard", 1, index, records=10, now_us=100)
    >>> times.acked("c", "shard", 1, 0, now_us=150)
    >>> times.acked("c", "shard", 1, 1, now_us=190)
    >>> times.sums["shard"]
    Completed(records=20, completion_us=1400, alone_us=90)
    """

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, ShardName], _Lane] = {}
        self.sums: dict[ShardName, Completed] = {}

    def sent(
        self, channel: str, target: ShardName, epoch: int, index: int, records: int, now_us: int
    ) -> None:
        """Note that a delivery leaves."""
        lane = self._lanes.setdefault((channel, target), _Lane())
        if lane.unacked and lane.unacked[-1].epoch != epoch:
            lane.unacked.clear()  # sent again: its time does not depend on the shard alone
        lane.unacked.append(_Sent(epoch, index, records, now_us))

    def acked(self, channel: str, target: ShardName, epoch: int, index: int, now_us: int) -> None:
        """Note that all deliveries of an epoch up to this one are applied."""
        lane = self._lanes.get((channel, target))
        if lane is None:
            return
        records = completion_us = 0
        first_us = now_us
        while lane.unacked and lane.unacked[0].epoch == epoch and lane.unacked[0].index <= index:
            sent = lane.unacked.popleft()
            first_us = min(first_us, sent.at_us)
            records += sent.records
            completion_us += sent.records * max(now_us - sent.at_us, 0)
        if records:
            total = self.sums.get(target, Completed())
            alone_us = max(now_us - max(first_us, lane.last_ack_us), 0)
            self.sums[target] = Completed(
                total.records + records,
                total.completion_us + completion_us,
                total.alone_us + alone_us,
            )
            lane.last_ack_us = now_us
