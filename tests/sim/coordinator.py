"""ZooKeeper over the simulated network: sessions that end, watches that come late, writes whose
answer is lost.

The server is one process that keeps its state when it is killed. A client is the coordination port
of one process; its calls block the calling task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.core.model.range_table import RangeTable
from millwheel.errors import ConflictError, MillwheelError, UnavailableError
from tests.fakes.coordination import one_by_one
from tests.sim.kernel import SECOND, Simulation
from tests.sim.network import Network
from tests.sim.process import Process

SESSION_US = SECOND
BEAT_US = 250_000
_PATIENCE_US = SECOND

Check = Callable[[RangeTable | None, RangeTable], None]


@dataclass(slots=True, eq=False)
class _Candidate:
    session: SimCoordination
    name: str
    data: bytes
    won: Callable[[], None]
    told: bool = False


@dataclass(slots=True)
class _Stored:
    """What a server keeps for ever, and the members, which end with their sessions."""

    members: dict[str, dict[str, tuple[bytes, SimCoordination]]] = field(default_factory=dict)
    tables: dict[str, RangeTable] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)


class SimZooKeeper:
    """The server. ``check_write`` sees every table before it is stored."""

    def __init__(self, sim: Simulation, network: Network, check_write: Check) -> None:
        self.sim, self.network = sim, network
        self.process = Process(sim, "zk")
        self.stored = _Stored()
        self.sessions: list[SimCoordination] = []
        self.lose_answers = 0.0
        self._check_write = check_write
        self._candidates: dict[str, list[_Candidate]] = {}
        self._down_until = 0

    def connect(self, process: Process) -> SimCoordination:
        """A new session of a process."""
        session = SimCoordination(self, process)
        self.sessions.append(session)
        process.on_exit.append(session.stop)
        return session

    @property
    def up(self) -> bool:
        return self.sim.now >= self._down_until

    def down(self, for_us: int) -> None:
        """The server is killed and comes back with its data; no session ends while it is away."""
        self._down_until = self.sim.now + for_us
        for session in self.sessions:
            session.heard_by_server = max(session.heard_by_server, self._down_until)

    def expire(self, session: SimCoordination) -> None:
        """The server ends a session: its members vanish, whatever its process thinks."""
        if session.expired:
            return
        session.expired = True
        self.sessions.remove(session)
        for role, members in self.stored.members.items():
            for name in [name for name, (_, owner) in members.items() if owner is session]:
                self.sim.trace(f"{name} is not a member of {role} any more", name)
                del members[name]
                self.tell_members(role)
        for role, waiting in self._candidates.items():
            waiting[:] = [candidate for candidate in waiting if candidate.session is not session]
            self.hold_election(role)

    # --- what sessions do, at the server

    def tell_members(self, role: str) -> None:
        for session in self.sessions:
            session.members_changed(role)

    def stand(self, role: str, candidate: _Candidate) -> None:
        self._candidates.setdefault(role, []).append(candidate)
        self.hold_election(role)

    def hold_election(self, role: str) -> None:
        waiting = self._candidates[role]
        if not waiting or waiting[0].told:
            return
        winner = waiting[0]
        winner.told = True
        self.stored.members.setdefault(f"{role}-leader", {})[winner.name] = (
            winner.data,
            winner.session,
        )
        self.sim.trace(f"{winner.name} is elected {role}", winner.name)
        self.tell_members(f"{role}-leader")
        winner.session.push(winner.won)

    def write_table(self, table: RangeTable) -> int:
        stored = self.stored.tables.get(table.computation)
        found = -1 if stored is None else stored.version
        if found != table.version:
            raise ConflictError(
                f"table {table.computation} has version {found}, expected {table.version}"
            )
        self._check_write(stored, table)
        written = RangeTable.decode(table.encode(), found + 1)
        self.stored.tables[table.computation] = written
        for session in self.sessions:
            session.table_changed(table.computation)
        return found + 1


class SimCoordination:
    """One session: the Coordination port."""

    def __init__(self, server: SimZooKeeper, process: Process) -> None:
        self._server = server
        self._process = process
        self._sim = server.sim
        self.expired = False
        self.lost = False
        self.heard_by_server = self._heard = self._sim.now
        self._watches: dict[str, list[Callable[[Mapping[str, bytes]], None]]] = {}
        self._table_watches: list[Callable[[RangeTable], None]] = []
        self._on_lost: list[Callable[[], None]] = []
        self._pushed_at = 0
        self._sim.later(BEAT_US, self._watch_over)
        process.later(BEAT_US, self._beat)

    # --- the session's life

    def _reaches(self) -> bool:
        mine, passes = self._process.name, self._server.network.passes
        return self._server.up and passes(mine, "zk") and passes("zk", mine)

    def _watch_over(self) -> None:
        """The server's side: whoever is silent for too long is gone. It outlives the process."""
        process, network = self._process, self._server.network
        if self.expired:
            return
        if (
            process.alive
            and not process.paused
            and self._server.up
            and network.passes(process.name, "zk")
        ):
            if not self.lost:
                self.heard_by_server = max(self.heard_by_server, self._sim.now)
        elif self._server.up and self._sim.now > self.heard_by_server + SESSION_US:
            self._server.expire(self)
            return
        self._sim.later(BEAT_US, self._watch_over)

    def _beat(self) -> None:
        """The client's side: the server's word or our own clock ends it."""
        if self.lost:
            return
        if self._reaches():
            self._heard = self._sim.now
            if self.expired:
                self._give_up("the server ended the session")
                return
        elif self._sim.now > self._heard + SESSION_US:
            self._give_up("nothing was heard of ZooKeeper")
            return
        self._process.later(BEAT_US, self._beat)

    def _give_up(self, why: str) -> None:
        self.lost = True
        self._sim.trace(f"{self._process.name} gives its session up: {why}", self._process.name)
        for lost in self._on_lost:
            lost()

    def stop(self) -> None:
        """The process is gone; the server finds out by itself."""
        self.lost = True

    # --- messages

    def _call(self, action: Callable[[], Any]) -> Any:
        """Ask the server, blocking. UnavailableError also when it did what was asked and its answer
        was lost."""
        began = self._sim.now
        while not self._reaches() or self.lost or self.expired:
            if self.lost or self._sim.now > began + _PATIENCE_US:
                raise UnavailableError("ZooKeeper does not answer")
            self._process.sleep(20_000)
        self._process.sleep(self._server.network.delay())
        if self.lost or self.expired:
            raise UnavailableError("the session is over")
        answer = action()
        self._process.sleep(self._server.network.delay())
        if self.lost or self._sim.chance(self._server.lose_answers):
            raise UnavailableError("ZooKeeper's answer was lost")
        return answer

    def push(self, callback: Callable[[], None]) -> None:
        """A watch fires, in order, some time later; a client that is cut off reads again when it is
        back."""
        if self.lost:
            return
        self._pushed_at = max(
            self._pushed_at, self._sim.now + self._server.network.delay() + self._sim.delay(0, 3000)
        )
        self._process.at(self._pushed_at, lambda: self._hear(callback))

    def _hear(self, callback: Callable[[], None]) -> None:
        if self.lost:
            return
        if not self._reaches():
            self._pushed_at = max(self._pushed_at, self._sim.now + 50_000)
            self._process.at(self._pushed_at, lambda: self._hear(callback))
            return
        callback()

    def members_changed(self, role: str) -> None:
        for changed in self._watches.get(role, ()):
            self.push(lambda changed=changed: changed(self._members(role)))

    def table_changed(self, node: str) -> None:
        for changed in self._table_watches:
            self.push(lambda changed=changed: changed(self._server.stored.tables[node]))

    def _members(self, role: str) -> dict[str, bytes]:
        return {
            name: data
            for name, (data, _) in sorted(self._server.stored.members.get(role, {}).items())
        }

    # --- the port

    def join(self, role: str, name: str, data: bytes) -> None:
        def act() -> None:
            self._server.stored.members.setdefault(role, {})[name] = (data, self)
            self._server.tell_members(role)

        self._call(act)

    def leave(self, role: str, name: str) -> None:
        def act() -> None:
            if self._server.stored.members.get(role, {}).pop(name, None) is not None:
                self._server.tell_members(role)

        self._call(act)

    def watch_members(self, role: str, changed: Callable[[Mapping[str, bytes]], None]) -> None:
        self._watches.setdefault(role, []).append(changed)
        self.push(lambda: changed(self._members(role)))

    def elect(self, role: str, name: str, data: bytes, won: Callable[[], None]) -> None:
        self._call(lambda: self._server.stand(role, _Candidate(self, name, data, won)))

    def tables(self) -> dict[str, RangeTable]:
        return dict(self._call(lambda: dict(self._server.stored.tables)))

    def watch_tables(self, changed: Callable[[RangeTable], None]) -> None:
        self._table_watches.append(changed)
        for node in sorted(self._server.stored.tables):
            self.push(lambda node=node: changed(self._server.stored.tables[node]))

    def write_table(self, table: RangeTable) -> int:
        return int(self._call(lambda: self._server.write_table(table)))

    def write_tables(self, tables: Sequence[RangeTable]) -> Sequence[int | MillwheelError]:
        return one_by_one(self.write_table, tables)

    def get(self, name: str) -> bytes | None:
        return self._call(lambda: self._server.stored.values.get(name))  # type: ignore[no-any-return]

    def put_if_absent(self, name: str, data: bytes) -> bytes:
        return bytes(self._call(lambda: self._server.stored.values.setdefault(name, data)))

    def on_lost(self, lost: Callable[[], None]) -> None:
        self._on_lost.append(lost)

    def close(self) -> None:
        self.lost = True
        self._server.expire(self)
