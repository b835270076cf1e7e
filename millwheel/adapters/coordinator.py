"""The coordination port over the embedded coordinator: one connection, which is the session.

Two threads: one reads, writes what the kernel did not take, and keeps the session alive; the other
calls back, so that a callback may itself ask. The session is lost when the connection ends, when
the server ends it, or after ``lost_after_s`` without a message, on our own clock.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import msgspec

from millwheel.adapters.exchange.line import Line
from millwheel.core.formats.coordinator_messages import (
    Answer,
    Ask,
    Elect,
    Expired,
    Get,
    Hello,
    Join,
    Leave,
    Members,
    Ping,
    PushedTable,
    Put,
    ReadTables,
    StoredTable,
    ToClient,
    WatchMembers,
    WatchTables,
    Won,
    WriteTable,
    decode_to_client,
    encode,
)
from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import ConflictError, MillwheelError, SetupError, UnavailableError

log = logging.getLogger("millwheel.coordinator")

LOCAL = "local:"
"""Addresses of embedded coordinators begin so; the path of a Unix socket follows."""
SOCKET = "coordinator"

_BEATS_PER_TIMEOUT = 5  # heartbeats within one session time-out: four may be lost
_RETRY_PAUSE_S = 0.02  # between tries to reach the coordinator again


class LocalCoordination:
    """See :class:`millwheel.adapters.ports.Coordination`. ``token`` is that of the run. Raises
    SetupError if there is no coordinator at ``address``."""

    def __init__(
        self,
        address: str,
        session_timeout_s: float = 3.0,
        lost_after_s: float | None = None,
        connect_timeout_s: float = 10.0,
        token: str = "",
    ) -> None:
        self._address = address
        self._lost_after_s = lost_after_s or session_timeout_s
        self._beat_s = session_timeout_s / _BEATS_PER_TIMEOUT
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: dict[int, Future[Answer]] = {}
        self._members: dict[str, list[_MembersWatch]] = {}
        self._tables: list[_TablesWatch] = []
        self._wins: dict[tuple[str, str], Callable[[], None]] = {}
        self._on_lost: list[Callable[[], None]] = []
        self._lost = False
        self._closed = False
        self._part_of_run = False
        self._last_message_s = time.monotonic()
        self._line = Line(_connect(address, connect_timeout_s))
        self._wake_out, self._wake_in = socket.socketpair()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._send(Hello(int(session_timeout_s * 1e6), token))
        self._reader = threading.Thread(target=self._read, daemon=True, name="coordinator-session")
        self._caller = threading.Thread(
            target=self._call_back, daemon=True, name="coordinator-watches"
        )
        self._reader.start()
        self._caller.start()

    # --- the port

    def join(self, role: str, name: str, data: bytes) -> None:
        """See the port. Raises ConflictError if a member of that name exists."""
        self._part_of_run = True
        self._ask(Join(next(self._numbers), role, name, data))

    def leave(self, role: str, name: str) -> None:
        """See the port."""
        self._ask(Leave(next(self._numbers), role, name))

    def watch_members(self, role: str, changed: Callable[[Mapping[str, bytes]], None]) -> None:
        """See the port."""
        with self._lock:
            self._members.setdefault(role, []).append(_MembersWatch(changed))
        self._ask(WatchMembers(next(self._numbers), role))

    def elect(self, role: str, name: str, data: bytes, won: Callable[[], None]) -> None:
        """See the port."""
        self._part_of_run = True
        with self._lock:
            self._wins[role, name] = won
        self._ask(Elect(next(self._numbers), role, name, data))

    def tables(self) -> dict[NodeName, RangeTable]:
        """See the port."""
        return {table.name: _decoded(table) for table in self._ask(ReadTables(next(self._numbers)))}

    def watch_tables(self, changed: Callable[[RangeTable], None]) -> None:
        """See the port."""
        with self._lock:
            self._tables.append(_TablesWatch(changed))
        self._ask(WatchTables(next(self._numbers)))

    def write_table(self, table: RangeTable) -> int:
        """See the port. A call whose answer is lost is lost with its session, so there is nothing
        to settle."""
        return int(self._ask(self._write(table)))

    def write_tables(self, tables: Sequence[RangeTable]) -> Sequence[int | MillwheelError]:
        """See the port. The coordinator stores all that has come while it stored the first."""
        try:
            answers = [self._asked(self._write(table)) for table in tables]
        except UnavailableError as error:
            return [error] * len(tables)
        return [self._outcome(answer) for answer in answers]

    def get(self, name: str) -> bytes | None:
        """See the port."""
        answer = self._ask(Get(next(self._numbers), name))
        return None if answer is None else bytes(answer)

    def put_if_absent(self, name: str, data: bytes) -> bytes:
        """See the port."""
        return bytes(self._ask(Put(next(self._numbers), name, data)))

    def on_lost(self, lost: Callable[[], None]) -> None:
        """See the port."""
        with self._lock:
            if not self._lost:
                self._on_lost.append(lost)
                return
        lost()

    def close(self) -> None:
        """Leave everything at once and end the session. Idempotent."""
        with self._lock:
            self._closed = True
        self._wake()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    # --- calls

    def _write(self, table: RangeTable) -> WriteTable:
        return WriteTable(next(self._numbers), table.computation, table.encode(), table.version)

    def _outcome(self, answer: Future[Answer]) -> int | MillwheelError:
        try:
            return int(self._answered(answer))
        except MillwheelError as error:
            return error

    def _ask(self, ask: Ask) -> Any:
        return self._answered(self._asked(ask))

    def _asked(self, ask: Ask) -> Future[Answer]:
        answer: Future[Answer] = Future()
        # One step with the end of the session: an answer that is noted behind it never comes.
        with self._lock:
            if self._lost or self._closed:
                raise self._unavailable()
            self._answers[ask.number] = answer
        self._send(ask)
        return answer

    def _answered(self, answer: Future[Answer]) -> Any:
        try:
            got = answer.result(self._lost_after_s)
        except FutureTimeoutError as error:
            raise UnavailableError(f"The coordinator at {self._address} does not answer") from error
        if got.refused is not None:
            raise ConflictError(got.refused.why)
        return got.value

    def _send(self, message: msgspec.Struct) -> None:
        # the reading thread notices a broken connection
        with self._lock, contextlib.suppress(OSError):
            self._line.send([encode(message)])
            if not self._line.waits_to_write:
                return
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_in.send(b"x")

    def _unavailable(self) -> UnavailableError:
        return UnavailableError(
            f"The session with the coordinator at {self._address} is"
            f" {'closed' if self._closed else 'lost'}"
        )

    # --- the thread that reads

    def _read(self) -> None:
        why = "it was closed"
        try:
            while not self._closed:
                self._wait()
                for frame in self._line.receive():
                    self._on_message(decode_to_client(frame))
                quiet_s = time.monotonic() - self._last_message_s
                if quiet_s > self._lost_after_s:
                    raise ConnectionError(f"no message came for {quiet_s:.1f} s")
        except (OSError, msgspec.MsgspecError) as error:
            why = str(error)
        self._end(why)

    def _wait(self) -> None:
        """Wait for something to read, or for the time of the next heartbeat, and send that."""
        with selectors.DefaultSelector() as selector:
            writes = selectors.EVENT_WRITE if self._line.waits_to_write else 0
            selector.register(self._line, selectors.EVENT_READ | writes)
            selector.register(self._wake_out, selectors.EVENT_READ)
            ready = selector.select(self._beat_s)
        for key, _ in ready:
            if key.fileobj is self._wake_out:
                self._wake_out.recv(4096)
        if time.monotonic() - self._beaten_s >= self._beat_s:
            self._beaten_s = time.monotonic()
            self._send(Ping())
        elif writes:
            with self._lock:
                self._line.write()

    _beaten_s = 0.0

    def _on_message(self, message: ToClient) -> None:
        self._last_message_s = time.monotonic()
        match message:
            case Answer(number):
                with self._lock:
                    answer = self._answers.pop(number, None)
                if answer is not None:
                    answer.set_result(message)
            case Members(role, members):
                for watch in self._members.get(role, ()):
                    self._calls.put(lambda watch=watch: watch.report(members))  # type: ignore[misc]
            case PushedTable(table):
                for tables in list(self._tables):
                    self._calls.put(lambda tables=tables: tables.report(table))  # type: ignore[misc]
            case Won(role, name):
                self._calls.put(self._wins[role, name])
            case Expired():
                raise ConnectionError(
                    "the coordinator ended it, because it was silent for too long"
                )

    def _end(self, why: str) -> None:
        with self._lock:
            was_open = not self._closed
            self._lost = self._lost or was_open
            lost, self._on_lost = self._on_lost, []
            answers, self._answers = self._answers, {}
            self._line.close()
        self._calls.put(None)
        for answer in answers.values():
            answer.set_exception(self._unavailable())
        if was_open:
            # For a session that only watches, it is normal that a run ends.
            level = logging.ERROR if self._part_of_run else logging.INFO
            log.log(
                level, "The session with the coordinator at %s is lost: %s.", self._address, why
            )
            for call in lost:
                call()
        self._wake_in.close()
        self._wake_out.close()

    # --- the thread that calls back

    def _call_back(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._closed or self._lost:
                return
            try:
                call()
            except UnavailableError as error:
                log.warning("A watch of the coordinator ended: %s", error)


class _MembersWatch:
    """Reports changes only: a session that watches a role twice receives all members twice."""

    def __init__(self, changed: Callable[[Mapping[str, bytes]], None]) -> None:
        self._changed = changed
        self._reported: Mapping[str, bytes] | None = None

    def report(self, members: Mapping[str, bytes]) -> None:
        if members != self._reported:
            self._reported = members
            self._changed(members)


class _TablesWatch:
    """Reports each version once, in order."""

    def __init__(self, changed: Callable[[RangeTable], None]) -> None:
        self._changed = changed
        self._reported: dict[str, int] = {}

    def report(self, table: StoredTable) -> None:
        if table.version > self._reported.get(table.name, -1):
            self._reported[table.name] = table.version
            self._changed(_decoded(table))


def _decoded(table: StoredTable) -> RangeTable:
    return RangeTable.decode(table.data, table.version)


def _connect(address: str, timeout_s: float) -> socket.socket:
    path = address.removeprefix(LOCAL)
    deadline_s = time.monotonic() + timeout_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        try:
            connection.connect(path)
            return connection
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline_s or isinstance(
                error, FileNotFoundError | ConnectionRefusedError
            ):
                raise SetupError(
                    f"No coordinator answers at {path}: {error}. It lives in the process of"
                    " `millwheel run`, on this machine and for its user"
                ) from error
            time.sleep(_RETRY_PAUSE_S)
