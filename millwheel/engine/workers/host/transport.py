"""Deliveries and answers between the loops of two workers, over the exchange."""

from __future__ import annotations

from collections.abc import Callable

from millwheel.adapters.exchange.exchange import End, Exchange
from millwheel.adapters.exchange.frames import Frame
from millwheel.adapters.exchange.mailbox import Mailbox
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.core.formats.codec import batch_pieces, decode_batch
from millwheel.core.model.names import ChannelName, NodeName, ShardName, Token
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.outbox import Send, joined_epoch, split_epoch
from millwheel.engine.workers.tracing.tracing import Tracing


class ExchangeTransport:
    """The Transport port. The loop sleeps here. Loop only."""

    def __init__(
        self,
        listen: str,
        mailbox: Mailbox,
        security: Security | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        post: Callable[[ev.Event], None] = mailbox.put
        self._post = post
        self._mailbox = mailbox
        self._exchange = Exchange(
            listen, mailbox, self._on_frame, lambda at: post(ev.PeerLost(at)), security
        )
        self.address = self._exchange.address

    def take(self, wait_us: int, most: int) -> list[ev.Event]:
        """The waiting events, at most ``most``; sleeps until there is one, but not beyond
        ``wait_us``."""
        sleeps = wait_us > 0 and self._mailbox.sleep()
        self._exchange.wait(wait_us / 1e6 if sleeps else 0)
        self._mailbox.wake()
        return self._mailbox.take(most)

    def send(self, address: str, token: Token, send: Send) -> None:
        sender_token, epoch = split_epoch(send.epoch)
        delivery = pb.Delivery(
            channel=send.channel,
            node=send.node,
            target=send.target,
            target_token=token,
            sender_token=sender_token,
            epoch=epoch,
            index=send.index,
        )
        if self._tracing is not None and (contexts := self._tracing.outgoing(send)):
            delivery.traces = contexts
        self._exchange.deliver(address, delivery, batch_pieces(send.batch))

    def ack(
        self, reply_to: object, channel: ChannelName, target: ShardName, epoch: int, index: int
    ) -> None:
        assert isinstance(reply_to, End)
        sender_token, count = split_epoch(epoch)
        self._exchange.answer(reply_to).acks.add(
            channel=channel, target=target, sender_token=sender_token, epoch=count, index=index
        )

    def refuse(
        self, reply_to: object, channel: ChannelName, target: ShardName, epoch: int, moved: bool
    ) -> None:
        assert isinstance(reply_to, End)
        reason = pb.Refusal.MOVED if moved else pb.Refusal.RESTART
        sender_token, count = split_epoch(epoch)
        self._exchange.answer(reply_to).refusals.add(
            channel=channel, target=target, sender_token=sender_token, epoch=count, reason=reason
        )

    def flush(self) -> None:
        self._exchange.flush()

    def close(self) -> None:
        """End all connections to peers."""
        self._exchange.close()

    def _on_frame(self, frame: Frame, end: End) -> None:
        for d, data in frame.deliveries:
            batch, epoch = decode_batch(data), joined_epoch(Token(d.sender_token), d.epoch)
            channel, node, target = ChannelName(d.channel), NodeName(d.node), ShardName(d.target)
            if self._tracing is not None and d.traces:
                self._tracing.incoming(channel, d.traces)
            self._post(
                ev.DeliveryCame(
                    channel, node, target, Token(d.target_token), epoch, d.index, batch, end
                )
            )
        for ack in frame.acks:
            epoch = joined_epoch(Token(ack.sender_token), ack.epoch)
            self._post(
                ev.AckCame(ChannelName(ack.channel), ShardName(ack.target), epoch, ack.index)
            )
        for refusal in frame.refusals:
            moved = refusal.reason == pb.Refusal.MOVED
            epoch = joined_epoch(Token(refusal.sender_token), refusal.epoch)
            self._post(
                ev.RefusalCame(
                    ChannelName(refusal.channel), ShardName(refusal.target), epoch, moved
                )
            )
