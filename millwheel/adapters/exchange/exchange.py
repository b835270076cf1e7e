"""The data plane between workers: plain connections that the loop itself reads and writes.

No thread stands between a socket and the loop. With few records in each frame, waking one up, and
getting the interpreter back from it, costs more than the frame.
"""

from __future__ import annotations

import logging
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from google.protobuf.message import DecodeError

from millwheel.adapters.exchange.frames import Building, Frame, taken_apart
from millwheel.adapters.exchange.handshake import Handshakes, RefusedError, dial
from millwheel.adapters.exchange.line import Line
from millwheel.adapters.exchange.mailbox import Mailbox
from millwheel.adapters.grpc.security import Security
from millwheel.adapters.pb import worker_pb2 as pb
from millwheel.errors import CorruptionError

log = logging.getLogger("millwheel.exchange")

FRAME_BYTES = 4 << 20
"""A frame is closed when it reaches this size; one delivery may be larger."""
_REDIAL_PAUSE_S = 0.1  # between calls to a worker that does not answer
_SHORT_S = 0.01  # below this select() waits more exactly than poll(), which counts whole ms
_SELECT_FDS = 1024
"""``select`` takes only files with numbers below this."""


@dataclass(slots=True, eq=False)
class End:
    """Our end of a connection: the frame that is being filled, and the line, once it is open.
    ``address`` is the one we dialled, or the one the caller named as its own ("": none)."""

    address: str = ""
    line: Line | None = None
    building: Building = field(default_factory=Building)
    unsent: list[list[bytes]] = field(default_factory=list)
    writing: bool = False


@dataclass(frozen=True, slots=True)
class _Opened:
    """The result of a thread that opens a connection: a socket, or an error. ``called``: the other
    worker has dialled."""

    end: End
    connected: socket.socket | None
    called: bool = False


class Exchange:
    """All connections of one worker. Everything but the opening happens on the thread that calls
    :meth:`wait`.

    ``on_frame`` gets each frame, and the end at which it arrived; ``on_lost`` the address of a peer
    whose connection broke: frames on their way to it may or may not have arrived. The next delivery
    to that address dials again, unless that peer has called: one connection serves both directions,
    so deliveries and answers to a peer share a frame.
    """

    def __init__(
        self,
        listen: str,
        mailbox: Mailbox,
        on_frame: Callable[[Frame, End], None],
        on_lost: Callable[[str], None],
        security: Security | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._security = security
        self._peers: dict[str, End] = {}
        self._callers: dict[str, End] = {}
        self._unflushed: dict[End, None] = {}
        self._opened: list[_Opened] = []
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(mailbox, selectors.EVENT_READ, None)
        self._handshakes = Handshakes(
            listen, lambda it, at: self._hand_over(_Opened(End(at), it, called=True)), security
        )
        self.address = self._handshakes.address

    # --- sending

    def deliver(self, address: str, delivery: pb.Delivery, batch: Sequence[bytes]) -> None:
        """Queue a delivery, which has no batch yet, and its batch in pieces; :meth:`flush` sends
        it."""
        end = self._peers.get(address)
        if end is None:
            end = self._peers[address] = self._callers.get(address) or self._dialling(address)
        end.building.add(delivery, batch)
        self._unflushed[end] = None
        if end.building.size >= FRAME_BYTES:
            self._close_frame(end)

    def answer(self, end: End) -> pb.Frame:
        """The frame that the next :meth:`flush` sends to that caller; messages are appended to
        it."""
        self._unflushed[end] = None
        return end.building.message

    def flush(self) -> None:
        """Send everything queued."""
        if self._unflushed:
            unflushed, self._unflushed = self._unflushed, {}
            for end in unflushed:
                self._close_frame(end)

    def _close_frame(self, end: End) -> None:
        frame = end.building.pieces()
        end.building = Building()
        if not frame:
            return
        if end.line is None:
            if self._peers.get(end.address) is end:
                end.unsent.append(frame)
            return
        self._guarded(end, lambda line: line.send(frame))

    # --- receiving

    def wait(self, timeout_s: float) -> None:
        """Read arrived data and write queued data. Sleeps until a socket or the mailbox's bell is
        ready."""
        events = self._ready(0 if self._opened else timeout_s)
        # events that this thread put there itself would wake us once more, for nothing
        self._mailbox.wake()
        for key, ready in events:
            end: End | None = key.data
            if end is None:
                self._mailbox.hush()
                continue
            if ready & selectors.EVENT_WRITE:
                self._guarded(end, Line.write)
            if ready & selectors.EVENT_READ:
                self._guarded(end, lambda line, end=end: self._receive(end, line))  # type: ignore[misc]
        if self._opened:
            self._take_opened()

    def _ready(self, timeout_s: float) -> list[tuple[selectors.SelectorKey, int]]:
        """epoll counts in whole milliseconds, rounded up: half of a short sleep, or more."""
        if 0 < timeout_s < _SHORT_S and self._selectable:
            select.select([self._selector], [], [], timeout_s)
            timeout_s = 0
        return self._selector.select(timeout_s)

    @cached_property
    def _selectable(self) -> bool:
        fileno = getattr(self._selector, "fileno", None)
        return fileno is not None and fileno() < _SELECT_FDS

    def _receive(self, end: End, line: Line) -> None:
        for data in line.receive():
            self._on_frame(taken_apart(data), end)

    def _guarded(self, end: End, do: Callable[[Line], None]) -> None:
        """Use a line. It is closed if it breaks or a frame cannot be decoded."""
        if end.line is None:
            return
        try:
            do(end.line)
        except (OSError, DecodeError, CorruptionError) as ex:
            if not isinstance(ex, ConnectionError):
                log.warning(
                    "The connection %s is closed: %s", end.address or "of a worker that called", ex
                )
            self._lose(end)
            return
        if end.line.waits_to_write != end.writing:
            end.writing = end.line.waits_to_write
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if end.writing else 0)
            self._selector.modify(end.line, events, end)

    def _lose(self, end: End) -> None:
        line, end.line = end.line, None
        end.unsent.clear()
        if line is not None:
            self._selector.unregister(line)
            line.close()
        if self._callers.get(end.address) is end:
            del self._callers[end.address]
        if self._peers.get(end.address) is end:
            del self._peers[end.address]
            self._on_lost(end.address)

    # --- opening

    def _dialling(self, address: str) -> End:
        end = End(address)
        threading.Thread(
            target=self._dial, args=(end,), name=f"dial-{address}", daemon=True
        ).start()
        return end

    def _dial(self, end: End) -> None:
        connected = None
        try:
            connected = dial(end.address, self._security, self.address)
        except OSError as ex:
            level = logging.WARNING if isinstance(ex, RefusedError) else logging.DEBUG
            log.log(level, "cannot dial %s: %s", end.address, ex)
            time.sleep(_REDIAL_PAUSE_S)  # before on_lost: the next delivery dials at once
        self._hand_over(_Opened(end, connected))

    def _hand_over(self, opened: _Opened) -> None:
        with self._lock:
            self._opened.append(opened)
        self._mailbox.ring()

    def _take_opened(self) -> None:
        with self._lock:
            news, self._opened = self._opened, []
        for opened in news:
            if opened.connected is None:
                self._lose(opened.end)
                continue
            end = opened.end
            if opened.called and end.address:
                self._called(end)
            end.line = Line(opened.connected)
            self._selector.register(end.line, selectors.EVENT_READ, end)
            unsent, end.unsent = end.unsent, []
            for frame in unsent:
                self._guarded(end, lambda line, frame=frame: line.send(frame))  # type: ignore[misc]

    def _called(self, end: End) -> None:
        """A peer dials only if it has no connection to us: if one stands here, the peer has given
        it up."""
        before = self._callers.get(end.address)
        if before is not None:
            self._lose(before)
        self._callers[end.address] = end

    def close(self) -> None:
        """End all connections, and accept no more."""
        self._handshakes.close()
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                key.data.line.close()
        self._selector.close()
