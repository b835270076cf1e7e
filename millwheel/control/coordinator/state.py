"""The embedded coordinator as a pure machine: sessions, members, elections, range tables and named
values.

For the processes of one machine it provides :class:`millwheel.adapters.ports.Coordination`, as
ZooKeeper does elsewhere. Tables and values last; members and elections belong to sessions, and end
with them. A session is one connection: on one machine a connection ends only with one of its two
processes, so its end is the end of the session, at once. A process that is stopped keeps its
connection; its session ends when nothing was received from it for the timeout that it chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod

from millwheel.control.coordinator import effects as do
from millwheel.control.coordinator import events as ev
from millwheel.core.formats.coordinator_messages import (
    Answer,
    Elect,
    Expired,
    Get,
    Join,
    Leave,
    Members,
    Pong,
    PushedTable,
    Put,
    ReadTables,
    Refusal,
    StoredTable,
    ToClient,
    WatchMembers,
    WatchTables,
    Won,
    WriteTable,
)
from millwheel.errors import invariant

LATE_TICK_US = 500_000
"""If a tick comes later than this after the previous one, this process itself was stopped, and
silence proves nothing."""


@dataclass(slots=True)
class _Session:
    timeout_us: int
    active_us: int
    roles: set[str] = field(default_factory=set)
    tables: bool = False


@dataclass(frozen=True, slots=True)
class _Candidate:
    session: int
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Member:
    session: int
    data: bytes


class CoordinatorState:
    """``tables`` and ``values`` were stored by an earlier run."""

    def __init__(
        self, tables: Iterable[StoredTable] = (), values: Mapping[str, bytes] | None = None
    ) -> None:
        self._tables = {table.name: table for table in tables}
        self._values = dict(values or {})
        self._sessions: dict[int, _Session] = {}
        self._members: dict[str, dict[str, _Member]] = {}
        self._waiting: dict[str, list[_Candidate]] = {}
        self._ticked_us: int | None = None
        self._effects: list[do.Effect] = []

    def step(self, event: ev.Event, now_us: int) -> list[do.Effect]:
        """The effects of one event, to be performed in this order. ``now_us`` is a clock that never
        goes back, µs."""
        self._handle(event, now_us)
        effects, self._effects = self._effects, []
        return effects

    def expire(self, session: int) -> list[do.Effect]:
        """End a session as if it had been silent for too long."""
        if session in self._sessions:
            self._expire(session)
        effects, self._effects = self._effects, []
        return effects

    # --- sessions

    def _handle(self, event: ev.Event, now_us: int) -> None:
        match event:
            case ev.SessionOpened(session, timeout_us):
                self._sessions[session] = _Session(timeout_us, now_us)
            case ev.HeartbeatArrived(session):
                if self._keep_alive(session, now_us):
                    self._send(session, Pong())
            case ev.Asked(session, ask):
                if self._keep_alive(session, now_us):
                    self._answer(ask, session)
            case ev.SessionClosed(session):
                self._end(session)
            case ev.Ticked():
                self._tick(now_us)

    def _keep_alive(self, session: int, now_us: int) -> bool:
        """False for a session that has ended: messages that its client sent before it noticed are
        ignored."""
        state = self._sessions.get(session)
        if state is None:
            return False
        state.active_us = now_us
        return True

    def _tick(self, now_us: int) -> None:
        late_us = 0 if self._ticked_us is None else now_us - self._ticked_us - LATE_TICK_US
        self._ticked_us = now_us
        for number, session in list(self._sessions.items()):
            if late_us > 0:
                session.active_us += late_us
            if now_us - session.active_us > session.timeout_us:
                self._expire(number)

    def _expire(self, number: int) -> None:
        self._send(number, Expired())
        self._effects.append(do.HangUp(number))
        self._end(number)

    def _end(self, number: int) -> None:
        if self._sessions.pop(number, None) is None:
            return
        for role, members in self._members.items():
            gone = [name for name, member in members.items() if member.session == number]
            for name in gone:
                del members[name]
            if gone:
                self._push_members(role)
        for role, waiting in self._waiting.items():
            leads = bool(waiting) and waiting[0].session == number
            waiting[:] = [candidate for candidate in waiting if candidate.session != number]
            if leads:
                self._elect(role)

    # --- requests of sessions

    @singledispatchmethod
    def _answer(self, ask: object, session: int) -> None:
        raise TypeError(f"{ask!r} is not a request")

    @_answer.register
    def _(self, ask: Join, session: int) -> None:
        # Only the end of its session takes a member away.
        invariant(session in self._sessions, f"{ask.name} joins {ask.role} without a session")
        members = self._members.setdefault(ask.role, {})
        if ask.name in members:
            self._refuse(session, ask.number, f"There is a member {ask.name} in {ask.role} already")
            return
        members[ask.name] = _Member(session, ask.data)
        self._reply(session, ask.number)
        self._push_members(ask.role)

    @_answer.register
    def _(self, ask: Leave, session: int) -> None:
        gone = self._members.get(ask.role, {}).pop(ask.name, None)
        self._reply(session, ask.number)
        if gone is not None:
            self._push_members(ask.role)

    @_answer.register
    def _(self, ask: WatchMembers, session: int) -> None:
        self._sessions[session].roles.add(ask.role)
        self._reply(session, ask.number)
        self._send(session, self._members_of(ask.role))

    @_answer.register
    def _(self, ask: Elect, session: int) -> None:
        waiting = self._waiting.setdefault(ask.role, [])
        waiting.append(_Candidate(session, ask.name, ask.data))
        self._reply(session, ask.number)
        if len(waiting) == 1:
            self._elect(ask.role)

    @_answer.register
    def _(self, ask: ReadTables, session: int) -> None:
        self._send(session, Answer(ask.number, list(self._tables.values())))

    @_answer.register
    def _(self, ask: WatchTables, session: int) -> None:
        self._sessions[session].tables = True
        self._reply(session, ask.number)
        for name in sorted(self._tables):
            self._send(session, PushedTable(self._tables[name]))

    @_answer.register
    def _(self, ask: WriteTable, session: int) -> None:
        stands = self._tables.get(ask.name)
        version = -1 if stands is None else stands.version
        if version != ask.version:
            actual = "does not exist" if stands is None else f"has version {version}"
            self._refuse(
                session,
                ask.number,
                f"The range table of {ask.name} {actual}, expected version {ask.version}",
            )
            return
        table = self._tables[ask.name] = StoredTable(ask.name, ask.data, version + 1)
        self._effects.append(do.StoreTable(table))
        self._send(session, Answer(ask.number, table.version))
        for number, watcher in self._sessions.items():
            if watcher.tables:
                self._send(number, PushedTable(table))

    @_answer.register
    def _(self, ask: Get, session: int) -> None:
        self._send(session, Answer(ask.number, self._values.get(ask.name)))

    @_answer.register
    def _(self, ask: Put, session: int) -> None:
        if ask.name not in self._values:
            self._values[ask.name] = ask.data
            self._effects.append(do.StoreValue(ask.name, ask.data))
        self._send(session, Answer(ask.number, self._values[ask.name]))

    # --- messages

    def _elect(self, role: str) -> None:
        """The candidate that has waited longest leads."""
        waiting = self._waiting[role]
        if not waiting:
            return
        winner, leaders = waiting[0], f"{role}-leader"
        # No end of a session would remove such a leader: no candidate would lead ever again.
        invariant(winner.session in self._sessions, f"{winner.name} leads {role}, and is gone")
        self._members.setdefault(leaders, {})[winner.name] = _Member(winner.session, winner.data)
        self._push_members(leaders)
        self._send(winner.session, Won(role, winner.name))

    def _push_members(self, role: str) -> None:
        message = self._members_of(role)
        for number, session in self._sessions.items():
            if role in session.roles:
                self._send(number, message)

    def _members_of(self, role: str) -> Members:
        return Members(
            role, {name: member.data for name, member in self._members.get(role, {}).items()}
        )

    def _reply(self, session: int, number: int) -> None:
        self._send(session, Answer(number))

    def _refuse(self, session: int, number: int, why: str) -> None:
        self._send(session, Answer(number, refused=Refusal(why)))

    def _send(self, session: int, message: ToClient) -> None:
        self._effects.append(do.SendMessage(session, message))
