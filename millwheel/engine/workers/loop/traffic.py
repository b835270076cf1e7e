"""Deliveries and answers: between shards of this worker by a call, to and from others as effects.
Pure: a shard does nothing with its inbox before it runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millwheel.core.model.names import ChannelName, ShardName
from millwheel.core.model.records import Batch
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.replays import ReplayReply
from millwheel.engine.workers.delivery.inbox import Arrival, DeliveryOutcome, Unanswered
from millwheel.engine.workers.delivery.outbox import Send
from millwheel.engine.workers.effects import Ack, DeliveryRefusal, Gathering, Outgoing
from millwheel.engine.workers.loop.shard_handle import LIVE, InjectionReply, LocalReply, Served
from millwheel.engine.workers.loop.table_entries import TableEntries
from millwheel.engine.workers.tracing.tracing import Tracing
from millwheel.errors import InvariantError


class Traffic:
    """The deliveries of the shards in ``served``, in both directions. A lane that cannot be sent on
    is tried again after ``retry_us``."""

    def __init__(
        self,
        incarnation: str,
        served: dict[ShardName, Served],
        entries: TableEntries,
        out: Gathering,
        retry_us: int,
        tracing: Tracing | None = None,
    ) -> None:
        self._incarnation = incarnation
        self._served = served
        self._entries = entries
        self._out = out
        self._retry_us = retry_us
        self._tracing = tracing

    # --- incoming ---------------------------------------------------------------------------------

    def delivery(self, event: ev.DeliveryCame) -> None:
        """Put the records of a peer into the inbox, or refuse them."""
        served = self._served.get(event.target)
        # The sender may have a newer owner than us in its table. As a zombie, we would ack the
        # records without effect.
        if served is None or not served.works or served.lease.is_behind(event.target_token):
            self._out.refusals.append(
                DeliveryRefusal(event.reply_to, event.channel, event.target, event.epoch, True)
            )
            return
        served.mark_changed()
        verdict = served.shard.offer(
            event.channel, event.epoch, event.index, event.batch, event.reply_to
        )
        if verdict is DeliveryOutcome.RESTART:
            self._out.refusals.append(
                DeliveryRefusal(event.reply_to, event.channel, event.target, event.epoch, False)
            )

    def injected(self, event: ev.Injected, now_us: int) -> None:
        """Take records from outside."""
        served = self._served.get(event.target)
        if served is None or not served.works:
            event.answer(True, 0, 0, 0)
            return
        if self._tracing is not None:
            self._tracing.injected(event.stream, event.ids, event.traces)
        ids = list(event.ids)
        batch = Batch(
            event.stream, [], [now_us] * len(ids), ids, list(event.values), list(ids), now_us
        )
        served.mark_changed()
        served.shard.inject(batch, InjectionReply(event.answer))

    def acked(self, event: ev.AckCame, now_us: int) -> list[Served]:
        """Take an ack for our records; the shards that had sent them."""
        senders = self._senders(event.channel)
        for served in senders:
            served.mark_changed()
            served.shard.outbox.ack(event.channel, event.target, event.epoch, event.index, now_us)
        return senders

    def refused(self, event: ev.RefusalCame, now_us: int) -> None:
        """Begin a lane anew that a consumer refused, at once or when the table may have come."""
        for served in self._senders(event.channel):
            if event.moved:
                served.stalled.setdefault((event.channel, event.target), now_us + self._retry_us)
            else:
                served.shard.outbox.restart(event.channel, event.target, event.epoch)

    def peer_lost(self, event: ev.PeerLost, now_us: int) -> None:
        """Stall the lanes to a lost peer until they are tried again: messages may not have
        arrived."""
        lost = self._entries.owned_at(event.address)
        for served in self._served.values():
            for lane in served.shard.outbox.lanes_to(lost):
                served.stalled.setdefault(lane, now_us + self._retry_us)

    def _senders(self, channel: ChannelName) -> list[Served]:
        direct = self._served.get(ShardName(channel))  # a shard sends on a channel of its own name
        if direct is not None:
            return [direct]
        return [served for served in self._served.values() if served.shard.outbox.sends_on(channel)]

    # --- outgoing ---------------------------------------------------------------------------------

    def send_all(self, senders: Iterable[ShardName], now_us: int) -> dict[ShardName, None]:
        """Send the deliveries that these shards may send. Returns the shards of this worker that
        got some."""
        reached: dict[ShardName, None] = {}
        for name in senders:
            served = self._served[name]
            outbox = served.shard.outbox
            if not outbox.ready or served.life is not LIVE:
                continue
            for send in outbox.sends(self._may_have_early, now_us):
                lane = (send.channel, send.target)
                if lane in served.stalled:
                    continue
                if not self._send(name, send):
                    served.stalled[lane] = now_us + self._retry_us
                elif send.target in self._served:
                    reached[send.target] = None
        return reached

    def _may_have_early(self, target: ShardName) -> bool:
        """Whether a shard may get records that are not yet durable: those of this worker may,
        unless they send before they commit."""
        served = self._served.get(target)
        return served is not None and served.works and not served.shard.identity.weak

    def _send(self, sender: ShardName, send: Send) -> bool:
        entry = self._entries.get(send.target)
        if entry is None or not entry.owner:
            return False
        if entry.owner == self._incarnation:
            local = self._served.get(send.target)
            if local is None or not local.works:
                return False
            local.mark_changed()
            outcome = local.shard.offer(
                send.channel, send.epoch, send.index, send.batch, LocalReply(sender)
            )
            return outcome is not DeliveryOutcome.RESTART
        address = self._entries.addresses.get(entry.owner)
        if address is None:
            return False
        self._out.sends.append(Outgoing(sender, address, entry.token, send))
        return True

    def _check(self, target: ShardName, number: int) -> None:
        # Earlier, a sender in this worker would forget records whose commit a crash may take back.
        # It is the pair of the check in Performing for acks that leave the worker.
        served = self._served.get(target)
        if served is not None and number > served.shard.commits.durable:
            raise InvariantError(
                f"{target} acks before its commit {number} is durable; durable is"
                f" {served.shard.commits.durable}"
            )

    def answer(self, applied: Iterable[tuple[ShardName, int, Arrival]], now_us: int) -> None:
        """Answer the arrivals that these shards have applied, by commits of these numbers, in
        order: for each lane it is enough to name the last."""
        last: dict[tuple[Any, ChannelName, ShardName, int], tuple[int, int]] = {}
        for target, number, arrival in applied:
            if isinstance(arrival.reply_to, InjectionReply):
                arrival.reply_to()
            elif not isinstance(arrival.reply_to, ReplayReply | Unanswered):
                last[arrival.reply_to, arrival.channel, target, arrival.epoch] = (
                    arrival.index,
                    number,
                )
        for (reply_to, channel, target, epoch), (index, number) in last.items():
            if not isinstance(reply_to, LocalReply):
                self._out.acks.append(Ack(reply_to, channel, target, epoch, index, number))
            elif (sender := self._served.get(reply_to.sender)) is not None:
                self._check(target, number)
                sender.mark_changed()
                sender.shard.outbox.ack(channel, target, epoch, index, now_us)
