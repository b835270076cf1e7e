"""The embedded coordinator's own machine over the simulated network, in place of ZooKeeper.

Its server is one process with a durable store: killed, it loses all sessions, members and
elections, and goes on with the tables and values that were stored. A session is a connection, so an
answer that is lost is a connection that broke.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from millwheel.control.coordinator import effects as do
from millwheel.control.coordinator import events as ev
from millwheel.control.coordinator.state import CoordinatorState
from millwheel.core.formats.coordinator_messages import (
    Answer,
    Ask,
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
    StoredTable,
    ToClient,
    WatchMembers,
    WatchTables,
    Won,
    WriteTable,
)
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import ConflictError, UnavailableError
from tests.sim.coordinator import BEAT_US, SESSION_US, Check, SimCoordination
from tests.sim.kernel import Simulation
from tests.sim.network import Network
from tests.sim.process import Process

_TICK_US = 100_000
_BY_HAND = 0
"""The session by which the simulator itself writes."""


@dataclass(slots=True)
class _Disk:
    """What was stored, and outlives the server."""

    tables: dict[str, RangeTable] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)

    def load(self) -> CoordinatorState:
        """The machine that a server begins with."""
        return CoordinatorState([_stored(table) for table in self.tables.values()], self.values)


class SimEmbedded:
    """The server. ``check_write`` sees every table before it is stored."""

    def __init__(self, sim: Simulation, network: Network, check_write: Check) -> None:
        self.sim, self.network = sim, network
        self.stored = _Disk()
        self.lose_answers = 0.0
        self._check_write = check_write
        self._state = self.stored.load()
        self._sessions: dict[int, EmbeddedSession] = {}
        self._numbers = count(_BY_HAND + 1)
        self._down_until = 0
        sim.later(_TICK_US, self._tick)

    def connect(self, process: Process) -> EmbeddedSession:
        """A new session of a process."""
        session = EmbeddedSession(self, process)
        process.on_exit.append(session.stop)
        return session

    @property
    def up(self) -> bool:
        return self.sim.now >= self._down_until

    def down(self, for_us: int) -> None:
        """The server is killed and begins again with what was stored."""
        self._down_until = self.sim.now + for_us
        broken, self._sessions = list(self._sessions.values()), {}
        self._state = self.stored.load()
        for session in broken:
            session.disconnected()

    def pause(self, for_us: int) -> None:
        """The server is stopped, and goes on: its connections stay, and its next tick comes
        late."""
        self._down_until = self.sim.now + for_us

    def expire(self, session: EmbeddedSession) -> None:
        """The server ends a session, whatever its process thinks."""
        self._perform(self._state.expire(session.number))

    def write_table(self, table: RangeTable) -> None:
        """Write from outside of the cluster, before it begins."""
        self._step(ev.SessionOpened(_BY_HAND, SESSION_US))
        self._step(
            ev.Asked(_BY_HAND, WriteTable(1, table.computation, table.encode(), table.version))
        )
        self._step(ev.SessionClosed(_BY_HAND))

    # --- what connections do, at the server

    def opened(self, session: EmbeddedSession) -> int:
        """The number of a connection that said hello."""
        number = next(self._numbers)
        self._sessions[number] = session
        self._step(ev.SessionOpened(number, SESSION_US))
        return number

    def heard(self, number: int) -> None:
        """A sign of life."""
        self._step(ev.HeartbeatArrived(number))

    def closed(self, number: int) -> None:
        """A connection ended, which a server that is stopped learns when it goes on."""
        if not self.up:
            self.sim.later(self._down_until - self.sim.now, partial(self.closed, number))
            return
        if self._sessions.pop(number, None) is not None:
            self._step(ev.SessionClosed(number))

    def asked(self, number: int, ask: Ask) -> Answer | None:
        """The answer, which is there when all that it says is durable. None for a session that has
        ended."""
        return self._step(ev.Asked(number, ask))

    def _tick(self) -> None:
        if self.up:
            self._step(ev.Ticked())
        self.sim.later(_TICK_US, self._tick)

    def _step(self, event: ev.Event) -> Answer | None:
        return self._perform(self._state.step(event, self.sim.now))

    def _perform(self, effects: Iterable[do.Effect]) -> Answer | None:
        """As :mod:`millwheel.control.coordinator.server`: what lasts first, and then what is
        told."""
        effects, answer = list(effects), None
        for effect in effects:
            match effect:
                case do.StoreTable(table):
                    written = _decoded(table)
                    self._check_write(self.stored.tables.get(table.name), written)
                    self.stored.tables[table.name] = written
                case do.StoreValue(name, data):
                    self.stored.values[name] = data
        for effect in effects:
            match effect:
                case do.SendMessage(_, Answer() as found):
                    answer = found
                case do.SendMessage(number, message) if number in self._sessions:
                    self._sessions[number].told(message)
                case do.HangUp(number) if number in self._sessions:
                    self._sessions.pop(number).disconnected()
        return answer


class EmbeddedSession(SimCoordination):
    """One connection: the Coordination port, as :mod:`millwheel.adapters.coordinator` has it."""

    def __init__(self, server: SimEmbedded, process: Process) -> None:
        self.number = -1
        self._embedded = server
        self._asks = count(1)
        self._wins: dict[tuple[str, str], Callable[[], None]] = {}
        super().__init__(server, process)  # type: ignore[arg-type]

    # --- the connection

    def _watch_over(self) -> None:
        """The server's machine judges silence by itself."""

    def _beat(self) -> None:
        if self.lost:
            return
        if self._connected():
            self._embedded.heard(self.number)
        if self.expired and self._reaches():
            self._give_up("its connection ended")
            return
        if self._sim.now > self._heard + SESSION_US:
            self._give_up("nothing was heard of the coordinator")
            return
        self._process.later(BEAT_US, self._beat)

    def _connected(self) -> bool:
        """Whether the server can be reached; the first time, say hello."""
        if self.lost or self.expired or not self._reaches():
            return False
        if self.number < 0:
            self.number = self._embedded.opened(self)
        return True

    def disconnected(self) -> None:
        """The server has closed the connection, or died. The process learns it when it reads
        next."""
        self.expired = True
        self._process.later(self._embedded.network.delay(), self._learn)

    def _learn(self) -> None:
        if not self.lost and self._embedded.network.passes("zk", self._process.name):
            self._give_up("its connection ended")

    def stop(self) -> None:
        """The process is gone, and its end of the connection with it."""
        self.lost = True
        self._sim.later(self._embedded.network.delay(), partial(self._embedded.closed, self.number))

    def close(self) -> None:
        self.lost = True
        self._embedded.closed(self.number)

    def told(self, message: ToClient) -> None:
        """The server has sent something, which comes in order."""
        self.push(partial(self._take, message))

    def _take(self, message: ToClient) -> None:
        self._heard = self._sim.now
        match message:
            case Members(role, members):
                for changed in self._watches.get(role, ()):
                    changed(dict(sorted(members.items())))
            case PushedTable(table):
                for pushed in self._table_watches:
                    pushed(_decoded(table))
            case Won(role, name):
                self._sim.trace(f"{name} is elected {role}", name)
                self._wins[role, name]()
            case Expired() | Pong():
                pass

    def _ask(self, ask: Ask) -> Any:
        answer = self._call(partial(self._at_server, ask))
        if answer.refused is not None:
            raise ConflictError(answer.refused.why)
        return answer.value

    def _at_server(self, ask: Ask) -> Answer:
        if not self._connected():
            raise UnavailableError("the coordinator does not answer")
        answer = self._embedded.asked(self.number, ask)
        if answer is None:
            raise UnavailableError("the session is over")
        if self._sim.chance(self._embedded.lose_answers):
            self._embedded.closed(self.number)
            self.disconnected()
            raise UnavailableError("the connection broke before the answer")
        return answer

    def _tell(self, ask: Ask) -> None:
        """Ask without waiting for the answer, as soon as the server is there."""
        if self.lost or self.expired:
            return
        if self._connected():
            self._embedded.asked(self.number, ask)
        else:
            self._process.later(BEAT_US, partial(self._tell, ask))

    # --- the port

    def join(self, role: str, name: str, data: bytes) -> None:
        self._ask(Join(next(self._asks), role, name, data))

    def leave(self, role: str, name: str) -> None:
        self._ask(Leave(next(self._asks), role, name))

    def watch_members(self, role: str, changed: Callable[[Mapping[str, bytes]], None]) -> None:
        self._watches.setdefault(role, []).append(changed)
        self._tell(WatchMembers(next(self._asks), role))

    def elect(self, role: str, name: str, data: bytes, won: Callable[[], None]) -> None:
        self._wins[role, name] = won
        self._ask(Elect(next(self._asks), role, name, data))

    def tables(self) -> dict[str, RangeTable]:
        return {table.name: _decoded(table) for table in self._ask(ReadTables(next(self._asks)))}

    def watch_tables(self, changed: Callable[[RangeTable], None]) -> None:
        self._table_watches.append(changed)
        self._tell(WatchTables(next(self._asks)))

    def write_table(self, table: RangeTable) -> int:
        return int(
            self._ask(
                WriteTable(next(self._asks), table.computation, table.encode(), table.version)
            )
        )

    def get(self, name: str) -> bytes | None:
        found: bytes | None = self._ask(Get(next(self._asks), name))
        return found

    def put_if_absent(self, name: str, data: bytes) -> bytes:
        return bytes(self._ask(Put(next(self._asks), name, data)))


def _stored(table: RangeTable) -> StoredTable:
    return StoredTable(table.computation, table.encode(), table.version)


def _decoded(table: StoredTable) -> RangeTable:
    return RangeTable.decode(table.data, table.version)
