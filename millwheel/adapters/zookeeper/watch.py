"""Watches over one ZooKeeper session: a thread of their own reads each change, arms the watch again
and reports it.

A watch of ZooKeeper fires once and shows only that something changed. A subscription is therefore a
``refresh`` that reads all its data, arms the watch with the same read, and calls back if the data
differs from the last call. Refreshing too often is harmless, so a reconnect refreshes everything.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

from millwheel.adapters.zookeeper.session import ZooKeeperSession
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import UnavailableError

log = logging.getLogger("millwheel.zookeeper")
_RETRY_S = 0.2  # before a failed look is repeated


class Subscription(Protocol):
    """Something to keep up to date."""

    def refresh(self) -> None:
        """Read, arm, report. Raises UnavailableError when it must be done again."""


class WatchLoop:
    """The thread that refreshes subscriptions, one at a time, each at most once per change."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._subscriptions: list[Subscription] = []
        self._due: dict[Subscription, None] = {}
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True, name="zookeeper-watch")
        session.on_reconnect(self._poke_all)
        self._thread.start()

    def add(self, subscription: Subscription) -> None:
        """Refresh now and whenever it is poked."""
        with self._condition:
            self._subscriptions.append(subscription)
        self.poke(subscription)

    def drop(self, subscription: Subscription) -> None:
        """Forget a subscription whose subject is gone."""
        with self._condition:
            self._subscriptions.remove(subscription)
            self._due.pop(subscription, None)

    def poke(self, subscription: Subscription) -> None:
        """Refresh soon. Never blocks."""
        with self._condition:
            self._due[subscription] = None
            self._condition.notify()

    def stop(self) -> None:
        """Wake the thread, which ends once the session is over."""
        with self._condition:
            self._condition.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)

    def _poke_all(self) -> None:
        with self._condition:
            self._due.update(dict.fromkeys(self._subscriptions))
            self._condition.notify()

    def _run(self) -> None:
        while True:
            subscription = self._next()
            if subscription is None:
                return
            try:
                subscription.refresh()
            except UnavailableError:
                self._poke_later(subscription)
            except Exception:
                # A callback that fails must not end every other watch of the process.
                log.exception("A watch on ZooKeeper failed; it is tried again at its next change.")

    def _poke_later(self, subscription: Subscription) -> None:
        timer = threading.Timer(_RETRY_S, self.poke, (subscription,))
        timer.daemon = True
        timer.start()

    def _next(self) -> Subscription | None:
        with self._condition:
            while not self._due:
                if self._session.over:
                    return None
                self._condition.wait(1.0)
            if self._session.over:
                return None
            subscription = next(iter(self._due))
            del self._due[subscription]
            return subscription


class WatchedMembers:
    """All children of one folder with their data."""

    def __init__(
        self,
        session: ZooKeeperSession,
        loop: WatchLoop,
        folder: str,
        changed: Callable[[Mapping[str, bytes]], None],
    ) -> None:
        self._session = session
        self._loop = loop
        self._folder = folder
        self._changed = changed
        self._reported: dict[str, bytes] | None = None

    def refresh(self) -> None:
        """See :class:`Subscription`."""
        names = self._session.children(self._folder, self._poke) or []
        nodes = {name: self._session.read(f"{self._folder}/{name}") for name in sorted(names)}
        members = {name: node.data for name, node in nodes.items() if node is not None}
        if members != self._reported:
            self._reported = members
            self._changed(members)

    def _poke(self) -> None:
        self._loop.poke(self)


class Tables:
    """Every table in the folder; each has its own watch, so that one change is one read."""

    def __init__(
        self,
        session: ZooKeeperSession,
        loop: WatchLoop,
        folder: str,
        changed: Callable[[RangeTable], None],
    ) -> None:
        self._session = session
        self._loop = loop
        self._folder = folder
        self._changed = changed
        self._tables: dict[str, _Table] = {}

    def refresh(self) -> None:
        """See :class:`Subscription`."""
        names = set(self._session.children(self._folder, self._poke) or ())
        for name in sorted(names - self._tables.keys()):
            self._tables[name] = _Table(
                self._session, self._loop, f"{self._folder}/{name}", self._changed
            )
            self._loop.add(self._tables[name])
        for name in self._tables.keys() - names:
            self._loop.drop(self._tables.pop(name))

    def _poke(self) -> None:
        self._loop.poke(self)


class _Table:
    """One table."""

    def __init__(
        self,
        session: ZooKeeperSession,
        loop: WatchLoop,
        path: str,
        changed: Callable[[RangeTable], None],
    ) -> None:
        self._session = session
        self._loop = loop
        self._path = path
        self._changed = changed
        self._version = -1

    def refresh(self) -> None:
        node = self._session.read(self._path, self._poke)
        if node is not None and node.version > self._version:
            self._version = node.version
            self._changed(RangeTable.decode(node.data, node.version))

    def _poke(self) -> None:
        self._loop.poke(self)


class Candidate:
    """A candidate in an election: ephemeral nodes in sequence, each watching the one before it."""

    def __init__(
        self,
        session: ZooKeeperSession,
        loop: WatchLoop,
        folder: str,
        leader: tuple[str, bytes],
        won: Callable[[], None],
    ) -> None:
        self._session = session
        self._loop = loop
        self._folder = folder
        self._leader_path, self._leader_data = leader
        self._won = won
        self._mark = uuid.uuid4().hex
        self._name = ""
        self._leads = False

    def refresh(self) -> None:
        """See :class:`Subscription`."""
        if self._leads:
            return
        names = sorted(
            self._session.children(self._folder) or (), key=lambda name: name.rsplit("-", 1)[1]
        )
        if self._name not in names:
            self._name = self._session.create_in_sequence(self._folder, self._mark)
            self._poke()
        elif names[0] == self._name:
            self._lead()
        elif (
            self._session.read(f"{self._folder}/{names[names.index(self._name) - 1]}", self._poke)
            is None
        ):
            self._poke()

    def _lead(self) -> None:
        if not self._session.create(self._leader_path, self._leader_data, ephemeral=True):
            raise UnavailableError(f"{self._leader_path} still belongs to another member")
        self._leads = True
        self._won()

    def _poke(self) -> None:
        self._loop.poke(self)
