"""Deliveries between simulated workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millwheel.core.formats.codec import decode_batch, encode_batch
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.delivery.outbox import Send
from tests.sim.network import Connection

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker


class Transport:
    """Deliveries over connections to peers, answers over theirs."""

    def __init__(self, worker: SimWorker) -> None:
        self._worker = worker
        self._connections: dict[str, Connection] = {}
        self._sends: list[tuple[str, int, Send]] = []
        self._answers: list[tuple[Connection, ev.Event]] = []

    def send(self, address: str, token: int, send: Send) -> None:
        self._worker.world.checkers.sent(self._worker.name, send)
        self._sends.append((address, token, send))

    def ack(self, reply_to: Any, channel: str, target: str, epoch: int, index: int) -> None:
        self._worker.world.checkers.acks.acked(self._worker.name, channel, target, epoch, index)
        self._answers.append((reply_to, ev.AckCame(channel, target, epoch, index)))

    def refuse(self, reply_to: Any, channel: str, target: str, epoch: int, moved: bool) -> None:
        self._answers.append((reply_to, ev.RefusalCame(channel, target, epoch, moved)))

    def flush(self) -> None:
        sends, self._sends = self._sends, []
        answers, self._answers = self._answers, []
        for address, token, send in sends:
            connection = self._to(address)
            if connection is not None:
                connection.to_server((send, token, encode_batch(send.batch)))
        for reply_to, event in answers:
            reply_to.to_client(event)

    def _to(self, address: str) -> Connection | None:
        worker, world = self._worker, self._worker.world
        connection = self._connections.get(address)
        if connection is None or connection.broken:
            server = world.workers[address]
            made = world.network.connect(
                worker, server, lambda message: deliver(made, server, message), worker.post
            )
            made.on_broken = lambda: worker.post(ev.PeerLost(address))
            connection = self._connections[address] = made
            if not server.alive:
                made.cut()
        return connection


def deliver(connection: Connection, server: SimWorker, message: tuple[Send, int, bytes]) -> None:
    send, token, data = message
    batch = decode_batch(data)
    event = ev.DeliveryCame(
        send.channel, send.node, send.target, token, send.epoch, send.index, batch, connection
    )
    server.post(event)
