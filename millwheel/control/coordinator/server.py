"""The shell of the embedded coordinator: one thread, a Unix socket, and the store below the root.

A step takes all requests that have arrived, stores durable values in one transaction, and only then
answers. So any number of simultaneous table writes costs one sync of the disk.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millwheel.adapters.coordinator import LOCAL, SOCKET
from millwheel.adapters.exchange.line import Line
from millwheel.adapters.rights import group_of
from millwheel.control.coordinator import effects as do
from millwheel.control.coordinator import events as ev
from millwheel.control.coordinator.state import CoordinatorState
from millwheel.control.coordinator.store import CoordinatorStore
from millwheel.core.formats.coordinator_messages import Hello, Ping, decode_to_server, encode
from millwheel.errors import MillwheelError, UnavailableError, invariant

log = logging.getLogger("millwheel.coordinator")

_TICK_S = 0.1  # between looks at sessions whose time may be over
_PATIENCE_S = 10.0
"""How long writes to a full disk are retried. No request is answered meanwhile."""


class CoordinatorServer:
    """Serves the processes of this machine that run as this user, and the group of the root, if it
    has one, until :meth:`stop`. ``path`` is its database, in the root, ``token`` that of the run
    ("": it has none)."""

    def __init__(self, path: Path, token: str = "") -> None:
        self._path = path
        self._token = token.encode()
        self._admitted: set[int] = set()
        # only for this user, and short enough for a socket
        self._folder = Path(tempfile.mkdtemp(prefix="millwheel-"))
        self._group = group_of(path.parent)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._wake_out, self._wake_in = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._lines: dict[int, Line] = {}
        self._last = 0
        self._stopping = threading.Event()
        self._ended_by_hand: list[int] = []
        self._error: MillwheelError | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="coordinator")

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{LOCAL}{self._folder}/{SOCKET}"

    def start(self) -> str:
        """Start serving; the address. Raises SetupError or CorruptionError when the database cannot
        be used."""
        store = CoordinatorStore(self._path)
        try:
            self._state = CoordinatorState(store.tables(), store.values())
        finally:
            store.close()  # SQLite requires that a connection is opened by the thread that uses it
        self._bind()
        self._listener.listen(256)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, 0)
        self._selector.register(self._wake_out, selectors.EVENT_READ, -1)
        self._thread.start()
        return self.address

    def _bind(self) -> None:
        """Bind with the rights of the root: users who may read it may connect."""
        path = f"{self._folder}/{SOCKET}"
        self._listener.bind(path)
        os.chmod(path, 0o600)
        if self._group is not None:
            for each, mode in ((path, 0o660), (self._folder, 0o710)):
                os.chown(each, -1, self._group)
                os.chmod(each, mode)

    def check(self) -> None:
        """Raises the error that ended the server: UnavailableError when its database cannot be
        written."""
        if self._error is not None:
            raise self._error

    def expire(self, session: int) -> None:
        """End a session as if it had been silent for too long."""
        self._ended_by_hand.append(session)
        self._wake_in.send(b"x")

    def stop(self) -> None:
        """End all sessions and the thread; stored data stays. Idempotent."""
        if not self._stopping.is_set():
            self._stopping.set()
            with contextlib.suppress(OSError):
                self._wake_in.send(b"x")
        if self._thread.is_alive():
            self._thread.join()
        for end in (self._listener, self._wake_in, self._wake_out):
            end.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- the thread

    def _serve(self) -> None:
        store = CoordinatorStore(self._path)
        try:
            while not self._stopping.is_set():
                self._step(store)
        except MillwheelError as error:
            log.error("The coordinator ends: %s", error)
            self._error = error
        finally:
            for line in self._lines.values():
                line.close()
            self._selector.close()
            store.close()

    def _step(self, store: CoordinatorStore) -> None:
        events: list[ev.Event] = []
        for key, mask in self._selector.select(_TICK_S):
            if key.data == 0:
                self._accept()
            elif key.data == -1:
                self._wake_out.recv(4096)
            else:
                events += self._serve_line(key.data, mask)
        now_us = time.monotonic_ns() // 1000
        # Messages that came while we were stopped must be handled before silence is judged.
        events.append(ev.Ticked())
        effects = [effect for event in events for effect in self._state.step(event, now_us)]
        while self._ended_by_hand:
            effects += self._state.expire(self._ended_by_hand.pop())
        self._perform(effects, store)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connected, _ = self._listener.accept()
            self._last += 1
            self._lines[self._last] = line = Line(connected)
            self._selector.register(line, selectors.EVENT_READ, self._last)

    def _serve_line(self, session: int, mask: int) -> list[ev.Event]:
        line = self._lines[session]
        try:
            if mask & selectors.EVENT_WRITE:
                line.write()
                self._listen_to(session, line)
            return self._events_of(session, line.receive()) if mask & selectors.EVENT_READ else []
        except (OSError, msgspec.MsgspecError) as error:
            if isinstance(error, msgspec.MsgspecError | ConnectionRefusedError):
                log.warning(
                    "The coordinator closes a connection that does not speak its protocol: %s",
                    error,
                )
            self._close(session)
            return [ev.SessionClosed(session)]

    def _events_of(self, session: int, frames: Sequence[bytes | memoryview]) -> list[ev.Event]:
        events: list[ev.Event] = []
        for frame in frames:
            message = decode_to_server(frame)
            if isinstance(message, Hello) and hmac.compare_digest(
                message.token.encode(), self._token
            ):
                self._admitted.add(session)
                events.append(ev.SessionOpened(session, message.timeout_us))
            elif isinstance(message, Hello) or session not in self._admitted:
                raise ConnectionRefusedError("it does not show the token of this run")
            elif isinstance(message, Ping):
                events.append(ev.HeartbeatArrived(session))
            else:
                events.append(ev.Asked(session, message))
        return events

    def _perform(self, effects: list[do.Effect], store: CoordinatorStore) -> None:
        lasting = [
            effect for effect in effects if isinstance(effect, do.StoreTable | do.StoreValue)
        ]
        if lasting:
            self._store(lasting, store)
        for effect in effects:
            if isinstance(effect, do.SendMessage):
                self._send(effect.session, encode(effect.message))
            elif isinstance(effect, do.HangUp):
                self._close(effect.session)

    def _store(self, lasting: list[do.StoreTable | do.StoreValue], store: CoordinatorStore) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                store.write(lasting)
                return
            except UnavailableError as error:
                if time.monotonic() > deadline_s or self._stopping.wait(_TICK_S):
                    raise
                log.warning("%s; trying again", error)

    def _send(self, session: int, frame: bytes) -> None:
        line = self._lines.get(session)
        if line is None:
            return
        try:
            line.send([frame])
            self._listen_to(session, line)
        except OSError:
            return  # a later step reads the end of the connection and reports it

    def _listen_to(self, session: int, line: Line) -> None:
        interests = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.waits_to_write else 0)
        self._selector.modify(line, interests, session)

    def _close(self, session: int) -> None:
        self._admitted.discard(session)
        line = self._lines.pop(session, None)
        invariant(line is not None, f"the connection of session {session} is closed twice")
        if line is not None:
            self._selector.unregister(line)
            line.close()
