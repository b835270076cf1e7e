"""The coordination port over ZooKeeper. The layout below ``<chroot>/millwheel/<pipeline>``:

workers/<incarnation>, masters/<name>, …   members: ephemeral, JSON data
masters-leader/<name>                      the elected member of a role
elections/<role>/<mark>-<number>           the candidates, in order
tables/<node>                              range tables, JSON
values/<name>                              small values that are written once
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from millwheel.adapters.zookeeper.guard import OPEN, ZooKeeperGuard
from millwheel.adapters.zookeeper.session import ZooKeeperSession
from millwheel.adapters.zookeeper.watch import Candidate, Tables, WatchedMembers, WatchLoop
from millwheel.core.model.names import NodeName
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import ConflictError, MillwheelError, SetupError, invariant

_HOSTS = re.compile(r"([^\s/,]+:\d+)(,[^\s/,]+:\d+)*")
_CHROOT = re.compile(r"(/[A-Za-z0-9_.-]+)*/?")
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,128}")
# to the first connection; after that the error is that there is no ZooKeeper
_CONNECT_TIMEOUT_S = 10.0
_WRITES_AT_ONCE = 16
"""Writes of tables at once: a death changes all tables of the worker's shards, and each write alone
waits for ZooKeeper's disk."""


class ZooKeeperCoordination:
    """See :class:`millwheel.adapters.ports.Coordination`.

    ``hosts`` is ``host:port,host:port/chroot``. A process that is silent for ``session_timeout_s``
    (the server may bound it) loses its membership. ``lost_after_s`` is when we give the session up
    on our own clock if no server answers (default: the session time-out); a longer one rides out a
    longer outage of ZooKeeper. ``guard`` has our user, and the permissions of the nodes that we
    create.
    Raises SetupError when ``hosts`` is malformed or does not answer within ``connect_timeout_s``.
    """

    def __init__(
        self,
        hosts: str,
        pipeline: str,
        session_timeout_s: float = 3.0,
        lost_after_s: float | None = None,
        connect_timeout_s: float = _CONNECT_TIMEOUT_S,
        guard: ZooKeeperGuard = OPEN,
    ) -> None:
        servers, slash, chroot = hosts.partition("/")
        _check_hosts(hosts, servers, slash + chroot)
        self._shared = f"{(slash + chroot).rstrip('/')}/millwheel"
        self._base = f"{self._shared}/{_checked(pipeline)}"
        self._session = ZooKeeperSession(
            servers, session_timeout_s, lost_after_s or session_timeout_s, connect_timeout_s, guard
        )
        self._loop = WatchLoop(self._session)
        self._ensured: set[str] = set()
        self._lock = threading.Lock()

    def join(self, role: str, name: str, data: bytes) -> None:
        """See the port. Raises ConflictError if a member of that name exists."""
        if not self._session.create(f"{self._folder(role)}/{_checked(name)}", data, ephemeral=True):
            raise ConflictError(
                f"There is a member {name} in {role} already; names of members are never used twice"
            )

    def leave(self, role: str, name: str) -> None:
        """See the port."""
        self._session.delete(f"{self._base}/{_checked(role)}/{_checked(name)}")

    def watch_members(self, role: str, changed: Callable[[Mapping[str, bytes]], None]) -> None:
        """See the port."""
        self._loop.add(WatchedMembers(self._session, self._loop, self._folder(role), changed))

    def elect(self, role: str, name: str, data: bytes, won: Callable[[], None]) -> None:
        """See the port."""
        leader = (f"{self._folder(f'{role}-leader')}/{_checked(name)}", data)
        folder = self._folder(f"elections/{role}")
        self._loop.add(Candidate(self._session, self._loop, folder, leader, won))

    def tables(self) -> dict[NodeName, RangeTable]:
        """See the port."""
        folder = self._folder("tables")
        self._session.catch_up(folder)
        nodes = {
            name: self._session.read(f"{folder}/{name}")
            for name in self._session.children(folder) or ()
        }
        existing = {NodeName(name): node for name, node in nodes.items() if node is not None}
        return {name: RangeTable.decode(node.data, node.version) for name, node in existing.items()}

    def watch_tables(self, changed: Callable[[RangeTable], None]) -> None:
        """See the port."""
        self._loop.add(Tables(self._session, self._loop, self._folder("tables"), changed))

    def write_table(self, table: RangeTable) -> int:
        """See the port."""
        path = f"{self._folder('tables')}/{_checked(table.computation)}"
        if table.version >= 0:
            return self._session.replace(path, table.encode(), table.version)
        if not self._session.create(path, table.encode()):
            raise ConflictError(f"There is a range table of {table.computation} already")
        return 0

    def write_tables(self, tables: Sequence[RangeTable]) -> Sequence[int | MillwheelError]:
        """See the port. ZooKeeper syncs at once what comes at once; threads, because each write is
        settled by itself."""
        if len(tables) < 2:
            return [self._written(table) for table in tables]
        with ThreadPoolExecutor(min(len(tables), _WRITES_AT_ONCE), "table-writes") as threads:
            return list(threads.map(self._written, tables))

    def _written(self, table: RangeTable) -> int | MillwheelError:
        try:
            return self.write_table(table)
        except MillwheelError as error:
            return error

    def get(self, name: str) -> bytes | None:
        """See the port."""
        node = self._session.read(f"{self._base}/values/{_checked(name)}")
        return None if node is None else node.data

    def put_if_absent(self, name: str, data: bytes) -> bytes:
        """See the port."""
        path = f"{self._folder('values')}/{_checked(name)}"
        if self._session.create(path, data):
            return data
        node = self._session.read(path)
        invariant(node is not None, f"{path} was deleted, although values are never deleted")
        return node.data if node is not None else data

    def on_lost(self, lost: Callable[[], None]) -> None:
        """See the port."""
        self._session.on_lost(lost)

    def close(self) -> None:
        """Leave everything at once and end the session."""
        self._session.close()
        self._loop.stop()

    def _folder(self, name: str) -> str:
        """The path of a folder that exists."""
        path = f"{self._base}/{name}"
        with self._lock:
            exists = path in self._ensured
        if not exists:
            self._session.ensure(path, self._shared)
            with self._lock:
                self._ensured.add(path)
        return path


def _checked(name: str) -> str:
    """``name``, which becomes one part of a path."""
    invariant(_NAME.fullmatch(name) is not None, f"{name!r} cannot be a name in ZooKeeper")
    return name


def _check_hosts(hosts: str, servers: str, chroot: str) -> None:
    if _HOSTS.fullmatch(servers) is None or _CHROOT.fullmatch(chroot) is None:
        raise SetupError(f"--zookeeper {hosts!r} is not of the form host:port,host:port/chroot")
