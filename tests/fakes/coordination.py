"""Coordination in memory: one "server" with any number of sessions, deterministic to the last
callback.

Callbacks are queued and delivered, first in, first out, by :meth:`FakeZooKeeper.pump`; with
``immediate=True`` every operation pumps by itself. A session can be expired (its members vanish,
its ``on_lost`` is called) or cut off (its calls raise UnavailableError and its callbacks wait).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millwheel.core.model.range_table import RangeTable
from millwheel.errors import ConflictError, MillwheelError, UnavailableError

MembersCallback = Callable[[Mapping[str, bytes]], None]
TableCallback = Callable[[RangeTable], None]


def one_by_one(
    write: Callable[[RangeTable], int], tables: Sequence[RangeTable]
) -> list[int | MillwheelError]:
    """What each write returns or raises."""
    outcomes: list[int | MillwheelError] = []
    for table in tables:
        try:
            outcomes.append(write(table))
        except MillwheelError as error:
            outcomes.append(error)
    return outcomes


@dataclass(frozen=True)
class _Candidate:
    session: FakeCoordination
    name: str
    data: bytes
    won: Callable[[], None]


class FakeZooKeeper:
    """The server. Its state outlives every session, as ZooKeeper's does."""

    def __init__(self, immediate: bool = False) -> None:
        self.sessions: list[FakeCoordination] = []
        self.members: dict[str, dict[str, tuple[bytes, FakeCoordination]]] = {}
        self.tables: dict[str, tuple[bytes, int]] = {}
        self.values: dict[str, bytes] = {}
        self._candidates: dict[str, list[_Candidate]] = {}
        self._leaders: dict[str, _Candidate] = {}
        self._queue: deque[tuple[FakeCoordination, Callable[[], None]]] = deque()
        self._immediate = immediate
        self._pumping = False

    def connect(self) -> FakeCoordination:
        """A new session."""
        session = FakeCoordination(self)
        self.sessions.append(session)
        return session

    def pump(self, limit: int | None = None) -> int:
        """Deliver queued callbacks (at most ``limit``), including those that they cause; how many
        it was."""
        if self._pumping:
            return 0
        self._pumping = True
        delivered = 0
        held: list[tuple[FakeCoordination, Callable[[], None]]] = []
        try:
            while self._queue and (limit is None or delivered < limit):
                session, callback = self._queue.popleft()
                if session.over:
                    continue
                if session.cut_off:
                    held.append((session, callback))
                    continue
                callback()
                delivered += 1
        finally:
            self._queue.extendleft(reversed(held))
            self._pumping = False
        return delivered

    def expire(self, session: FakeCoordination) -> None:
        """The session is gone: for the server and, by its own clock, for its process."""
        if session.over:
            return
        self._end(session)
        for lost in session.lost_callbacks:
            lost()
        self.changed()

    def cut_off(self, session: FakeCoordination) -> None:
        """The session lives, but nothing passes between it and the server."""
        session.cut_off = True

    def heal(self, session: FakeCoordination) -> None:
        """End of :meth:`cut_off`."""
        session.cut_off = False
        self.changed()

    # --- what sessions do

    def enqueue(self, session: FakeCoordination, callback: Callable[[], None]) -> None:
        self._queue.append((session, callback))

    def changed(self) -> None:
        if self._immediate:
            self.pump()

    def tell_members(self, role: str) -> None:
        for session in self.sessions:
            for callback in session.member_callbacks.get(role, ()):
                self.tell_members_to(session, role, callback)

    def tell_members_to(
        self, session: FakeCoordination, role: str, callback: MembersCallback
    ) -> None:
        members = {name: data for name, (data, _) in sorted(self.members.get(role, {}).items())}
        self.enqueue(session, lambda: callback(members))

    def tell_table(self, name: str) -> None:
        for session in self.sessions:
            for callback in session.table_callbacks:
                self.tell_table_to(session, name, callback)

    def tell_table_to(self, session: FakeCoordination, name: str, callback: TableCallback) -> None:
        table = RangeTable.decode(*self.tables[name])
        self.enqueue(session, lambda: callback(table))

    def stand(self, role: str, candidate: _Candidate) -> None:
        self._candidates.setdefault(role, []).append(candidate)
        self._hold_election(role)

    def end(self, session: FakeCoordination) -> None:
        self._end(session)
        self.changed()

    def _end(self, session: FakeCoordination) -> None:
        session.over = True
        for role, members in list(self.members.items()):
            mine = [name for name, (_, owner) in members.items() if owner is session]
            for name in mine:
                del members[name]
            if mine:
                self.tell_members(role)
        for role, waiting in self._candidates.items():
            waiting[:] = [candidate for candidate in waiting if candidate.session is not session]
            leader = self._leaders.get(role)
            if leader is not None and leader.session is session:
                del self._leaders[role]
            self._hold_election(role)

    def _hold_election(self, role: str) -> None:
        waiting = self._candidates[role]
        if role in self._leaders or not waiting:
            return
        winner = self._leaders[role] = waiting[0]
        self.members.setdefault(f"{role}-leader", {})[winner.name] = (winner.data, winner.session)
        self.tell_members(f"{role}-leader")
        self.enqueue(winner.session, winner.won)


class FakeCoordination:
    """One session: the Coordination port. Made by :meth:`FakeZooKeeper.connect`."""

    def __init__(self, server: FakeZooKeeper) -> None:
        self._server = server
        self.over = False
        self.cut_off = False
        self.member_callbacks: dict[str, list[MembersCallback]] = {}
        self.table_callbacks: list[TableCallback] = []
        self.lost_callbacks: list[Callable[[], None]] = []

    def join(self, role: str, name: str, data: bytes) -> None:
        self._check()
        members = self._server.members.setdefault(role, {})
        if name in members:
            raise ConflictError(f"There is a member {name} in {role} already")
        members[name] = (data, self)
        self._server.tell_members(role)
        self._server.changed()

    def leave(self, role: str, name: str) -> None:
        self._check()
        if self._server.members.get(role, {}).pop(name, None) is not None:
            self._server.tell_members(role)
        self._server.changed()

    def watch_members(self, role: str, changed: MembersCallback) -> None:
        self._check()
        self.member_callbacks.setdefault(role, []).append(changed)
        self._server.tell_members_to(self, role, changed)
        self._server.changed()

    def elect(self, role: str, name: str, data: bytes, won: Callable[[], None]) -> None:
        self._check()
        self._server.stand(role, _Candidate(self, name, data, won))
        self._server.changed()

    def tables(self) -> dict[str, RangeTable]:
        self._check()
        return {name: RangeTable.decode(*stored) for name, stored in self._server.tables.items()}

    def watch_tables(self, changed: TableCallback) -> None:
        self._check()
        self.table_callbacks.append(changed)
        for name in sorted(self._server.tables):
            self._server.tell_table_to(self, name, changed)
        self._server.changed()

    def write_table(self, table: RangeTable) -> int:
        self._check()
        stored = self._server.tables.get(table.computation)
        found = -1 if stored is None else stored[1]
        if found != table.version:
            raise ConflictError(
                f"table {table.computation} has version {found}, expected {table.version}"
            )
        self._server.tables[table.computation] = (table.encode(), found + 1)
        self._server.tell_table(table.computation)
        self._server.changed()
        return found + 1

    def write_tables(self, tables: Sequence[RangeTable]) -> Sequence[int | MillwheelError]:
        return one_by_one(self.write_table, tables)

    def get(self, name: str) -> bytes | None:
        self._check()
        return self._server.values.get(name)

    def put_if_absent(self, name: str, data: bytes) -> bytes:
        self._check()
        return self._server.values.setdefault(name, data)

    def on_lost(self, lost: Callable[[], None]) -> None:
        if self.over:
            lost()
        else:
            self.lost_callbacks.append(lost)

    def close(self) -> None:
        if not self.over:
            self._server.end(self)

    def _check(self) -> None:
        if self.over:
            raise UnavailableError("The session is over")
        if self.cut_off:
            raise UnavailableError("ZooKeeper does not answer")
