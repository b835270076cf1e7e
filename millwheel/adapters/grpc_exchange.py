"""The sending half of the data plane: one gRPC stream per peer, deliveries out, acks and refusals in."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc

from millwheel.adapters.grpc_common import new_channel
from millwheel.adapters.grpc_security import Security
from millwheel.pb import worker_pb2 as pb
from millwheel.pb.worker_pb2_grpc import WorkerStub

FRAME_BYTES = 4 << 20
"""A frame is closed when it reaches this size; one delivery may be larger."""


@dataclass(slots=True)
class _Peer:
    """The line to one worker: frames wait here until gRPC's thread takes them."""

    address: str
    frames: queue.SimpleQueue[pb.Frame | None] = field(default_factory=queue.SimpleQueue)
    building: pb.Frame = field(default_factory=pb.Frame)
    size: int = 0
    broken: bool = False

    def requests(self) -> Iterator[pb.Frame]:
        while (frame := self.frames.get()) is not None:
            yield frame


class PeerLines:
    """Streams to peers, opened when first needed. Called by one thread; callbacks come on others.

    ``on_frame`` gets what a peer answers, ``on_lost`` its address once the stream has broken: what was sent on it
    may or may not have arrived. The next delivery to that address opens a new stream.
    """

    def __init__(
        self,
        on_frame: Callable[[pb.Frame], None],
        on_lost: Callable[[str], None],
        security: Security | None = None,
    ) -> None:
        self._security = security
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._peers: dict[str, _Peer] = {}

    def deliver(self, address: str, delivery: pb.Delivery) -> None:
        """Queue a delivery; :meth:`flush` sends it."""
        peer = self._peers.get(address)
        if peer is None or peer.broken:
            peer = self._peers[address] = self._open(address)
        peer.building.deliveries.append(delivery)
        peer.size += len(delivery.batch)
        if peer.size >= FRAME_BYTES:
            self._close_frame(peer)

    def flush(self) -> None:
        """Hand everything queued to gRPC."""
        for peer in self._peers.values():
            if peer.building.deliveries:
                self._close_frame(peer)

    def close(self) -> None:
        """End all streams."""
        for peer in self._peers.values():
            peer.frames.put(None)

    @staticmethod
    def _close_frame(peer: _Peer) -> None:
        peer.frames.put(peer.building)
        peer.building, peer.size = pb.Frame(), 0

    def _open(self, address: str) -> _Peer:
        peer = _Peer(address)
        threading.Thread(target=self._listen, args=(peer,), name=f"peer-{address}", daemon=True).start()
        return peer

    def _listen(self, peer: _Peer) -> None:
        with new_channel(peer.address, self._security) as channel:
            try:
                for frame in WorkerStub(channel).Exchange(peer.requests()):
                    self._on_frame(frame)
            except grpc.RpcError:
                pass  # told below: whatever broke, the answer is to send again
            peer.broken = True
            peer.frames.put(None)
            self._on_lost(peer.address)
