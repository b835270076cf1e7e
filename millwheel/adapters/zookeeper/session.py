"""One ZooKeeper session: bounded calls, settled writes, and an honest answer to "is it still
ours?".

The only file that calls kazoo. Everything here may be called from any thread; calls wait out short
losses of the connection and raise UnavailableError when that takes too long or the session is gone.

A session is lost when the server ends it, or after ``lost_after_s`` without an answer on our own
monotonic clock: kazoo notices a loss only after it has reconnected, which a partition prevents. A
lost session is never replaced by a new one; a new process starts instead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.security import OPEN_ACL_UNSAFE

from millwheel.adapters.zookeeper.guard import OPEN, ZooKeeperGuard
from millwheel.errors import ConflictError, SetupError, UnavailableError

log = logging.getLogger("millwheel.zookeeper")
# kazoo's warnings do not help users; this module reports in sentences what matters to them.
_kazoo_log = logging.getLogger("millwheel.zookeeper.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

_UNSETTLED = (ConnectionLoss, OperationTimeoutError, KazooTimeoutError)
_RETRY_PAUSE_S = 0.02  # between tries of a request whose connection broke
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 0.5}
"""Pauses (s) between connections, until the session is over."""
_HANDSHAKES_PER_TIMEOUT = 3  # at least: a server that is just starting may swallow one
_HEARTBEATS_PER_TIMEOUT = 5  # within one session time-out: four may be lost

Watch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Znode:
    """The result of a read. ``owner`` is the session of an ephemeral node, 0 for a persistent
    one."""

    data: bytes
    version: int
    owner: int


class ZooKeeperSession:
    """A connected session. ``hosts`` is ``host:port,host:port`` without a chroot.

    Raises SetupError when no server answers within ``connect_timeout_s``.
    """

    def __init__(
        self,
        hosts: str,
        session_timeout_s: float,
        lost_after_s: float,
        connect_timeout_s: float,
        guard: ZooKeeperGuard = OPEN,
    ) -> None:
        self._hosts = hosts
        self._lost_after_s = lost_after_s
        # A call may outlast the loss of one server, but not the session.
        self._patience_s = max(session_timeout_s, lost_after_s)
        self._client = KazooClient(
            # Kazoo waits for each handshake for a session's time-out divided by the number of
            # servers: of one server alone, until the session is over. See
            # test_a_handshake_that_a_server_swallows_is_not_waited_for_until_the_session_is_over.
            ",".join([hosts] * -(-_HANDSHAKES_PER_TIMEOUT // (hosts.count(",") + 1))),
            timeout=session_timeout_s,
            connection_retry=dict(_RECONNECT),
            logger=_kazoo_log,
            **guard.client_options(),
        )
        self._state_changed = threading.Event()
        self._connected = threading.Event()
        self._gone = False  # by the server's decision
        self._lost = False
        self._closed = False
        self._lock = threading.Lock()
        self._stopping = threading.Lock()
        self._stopped = False
        self._on_lost: list[Callable[[], None]] = []
        self._on_reconnect: list[Callable[[], None]] = []
        self._last_answer_s = time.monotonic()
        self._asked = False
        self._client.add_listener(self._listen)
        self._connect(connect_timeout_s)
        self._beat_s = session_timeout_s / _HEARTBEATS_PER_TIMEOUT
        self._heart = threading.Thread(target=self._keep_watch, daemon=True, name="zookeeper-heart")
        self._heart.start()

    def on_lost(self, lost: Callable[[], None]) -> None:
        """Call ``lost`` once the session is gone (at once if it is)."""
        with self._lock:
            if not self._lost:
                self._on_lost.append(lost)
                return
        lost()

    def on_reconnect(self, again: Callable[[], None]) -> None:
        """Call ``again`` whenever the connection is back: watches are gone then. Must not block."""
        self._on_reconnect.append(again)

    @property
    def over(self) -> bool:
        """Whether the session is lost or closed: no call can succeed any more."""
        return self._lost or self._closed

    def close(self) -> None:
        """End the session; the server removes its ephemeral nodes at once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._state_changed.set()
        self._connected.set()
        self._stop_client()

    # --- reads

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Names below ``path``, or None when it does not exist (then no watch is set)."""
        try:
            return list(
                self._settle(lambda: self._client.get_children_async(path, _one_shot(watch)))
            )
        except NoNodeError:
            return None

    def read(self, path: str, watch: Watch | None = None) -> Znode | None:
        """One node, or None when it does not exist (then no watch is set)."""
        try:
            data, stat = self._settle(lambda: self._client.get_async(path, _one_shot(watch)))
        except NoNodeError:
            return None
        return Znode(data, stat.version, stat.ephemeralOwner)

    def catch_up(self, path: str) -> None:
        """Bring our server up to date with all writes before this call."""
        self._settle(lambda: self._client.sync_async(path))

    # --- writes: one with an unknown outcome is repeated; then the current node decides

    def ensure(self, path: str, shared: str = "") -> None:
        """Create ``path`` and its parents unless they exist. ``shared`` is the part of it that
        pipelines of other users have as well: everybody may create nodes in there."""
        if shared:
            self._settle(lambda: self._client.ensure_path_async(shared, OPEN_ACL_UNSAFE))
        self._settle(lambda: self._client.ensure_path_async(path))

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> bool:
        """Create a node; False if another process created it. True if an earlier try of ours
        did."""
        repeated = False
        while True:
            try:
                self._settle_once(
                    lambda: self._client.create_async(path, data, ephemeral=ephemeral), repeated
                )
                return True
            except _Unsettled:
                repeated = True
            except NodeExistsError:
                return repeated and self._is_ours(path, data, ephemeral)

    def create_in_sequence(self, folder: str, mark: str) -> str:
        """Create an ephemeral node ``<mark>-<number>`` and return its name. ``mark`` is unique to
        the caller, so that a try whose outcome was unknown is found again instead of repeated."""
        repeated = False
        while True:
            name = self._find(folder, mark) if repeated else None
            if name is not None:
                return name
            try:
                path = self._settle_once(
                    lambda: self._client.create_async(
                        f"{folder}/{mark}-", b"", ephemeral=True, sequence=True
                    ),
                    repeated,
                )
                return str(path).rsplit("/", 1)[1]
            except _Unsettled:
                repeated = True

    def replace(self, path: str, data: bytes, version: int) -> int:
        """Compare-and-set; returns the new version. Raises ConflictError if the node has another
        version."""
        repeated = False
        while True:
            try:
                stat = self._settle_once(
                    lambda: self._client.set_async(path, data, version), repeated
                )
                return int(stat.version)
            except _Unsettled:
                repeated = True
            except (BadVersionError, NoNodeError) as error:
                node = self.read(path)
                # Our own try whose answer was lost: no other process writes these bytes as this
                # version.
                if (
                    repeated
                    and node is not None
                    and node.version == version + 1
                    and node.data == data
                ):
                    return node.version
                stands = "is gone" if node is None else f"has version {node.version}"
                raise ConflictError(f"{path} {stands}, expected version {version}") from error

    def delete(self, path: str) -> None:
        """Remove a node; one that does not exist is removed already."""
        try:
            self._settle(lambda: self._client.delete_async(path))
        except NoNodeError:
            return

    # --- how calls end

    def _settle(self, ask: Callable[[], Any]) -> Any:
        """The answer to an idempotent call, asked again while the connection is lost."""
        repeated = False
        while True:
            try:
                return self._settle_once(ask, repeated)
            except _Unsettled:
                repeated = True

    def _settle_once(self, ask: Callable[[], Any], repeated: bool) -> Any:
        """One try. Raises _Unsettled when its outcome is unknown and another try makes sense."""
        self._wait_connected(repeated)
        try:
            answer = ask().get(timeout=self._patience_s)
        except _UNSETTLED as error:
            raise _Unsettled from error
        except SessionExpiredError as error:
            raise self._unavailable() from error
        except (NoNodeError, NodeExistsError, BadVersionError):
            raise
        except NoAuthError as error:
            raise SetupError(
                f"ZooKeeper at {self._hosts} refuses our user: these nodes belong to another root,"
                " or to a run with another --security folder. Use another chroot (--zookeeper"
                " host:port/chroot), or the root and the folder that the nodes belong to"
            ) from error
        except KazooException as error:
            if self.over:
                raise self._unavailable() from error
            raise UnavailableError(
                f"ZooKeeper at {self._hosts} refused a call: {error!r}"
            ) from error
        return answer

    def _wait_connected(self, repeated: bool) -> None:
        if repeated:
            # the connection's end may reach us a moment before its state does
            time.sleep(_RETRY_PAUSE_S)
        if self.over or not self._connected.wait(self._patience_s) or self.over:
            raise self._unavailable()

    def _unavailable(self) -> UnavailableError:
        why = (
            "is closed"
            if self._closed
            else "is lost"
            if self._lost or self._gone
            else "does not answer"
        )
        return UnavailableError(f"The session with ZooKeeper at {self._hosts} {why}")

    def _is_ours(self, path: str, data: bytes, ephemeral: bool) -> bool:
        node = self.read(path)
        if node is None:
            return False
        identity = self._client.client_id
        return node.data == data and (
            not ephemeral or (identity is not None and node.owner == identity[0])
        )

    def _find(self, folder: str, mark: str) -> str | None:
        return next(
            (name for name in self.children(folder) or () if name.startswith(f"{mark}-")), None
        )

    # --- the session's life

    def _connect(self, timeout_s: float) -> None:
        try:
            self._client.start(timeout=timeout_s)
        except KazooTimeoutError as error:
            self._stop_client()
            raise SetupError(
                f"ZooKeeper at {self._hosts} did not answer within {timeout_s:.0f} s. Start it or"
                " correct --zookeeper host:port/chroot; without that option an embedded one is"
                " started."
            ) from error
        self._last_answer_s = time.monotonic()

    def _listen(self, state: str) -> None:
        """kazoo's own thread: take note, never block."""
        if state == KazooState.CONNECTED:
            self._connected.set()
            for again in self._on_reconnect:
                again()
        else:
            self._gone = self._gone or (state == KazooState.LOST and not self._closed)
            if not self._closed:
                self._connected.clear()
        self._state_changed.set()

    def _keep_watch(self) -> None:
        """Heartbeats of our own, and the decision that the session is gone."""
        silent = False
        while not self._closed:
            self._state_changed.wait(self._beat_s)
            self._state_changed.clear()
            quiet_s = time.monotonic() - self._last_answer_s
            if self._gone or quiet_s > self._lost_after_s:
                self._declare_lost(quiet_s)
                return
            self._beat()
            silent = self._log_silence(silent, quiet_s)

    def _log_silence(self, was_silent: bool, quiet_s: float) -> bool:
        """Log the loss and the return of the connection once each."""
        silent = not self._connected.is_set()
        if silent and not was_silent:
            log.warning(
                "ZooKeeper at %s is not connected; nothing stops unless this lasts.", self._hosts
            )
        if was_silent and not silent:
            log.info("ZooKeeper at %s is connected again after %.1f s.", self._hosts, quiet_s)
        return silent

    def _beat(self) -> None:
        if self._asked or not self._connected.is_set():
            return
        self._asked = True
        sent_s = time.monotonic()
        try:
            self._client.exists_async("/").rawlink(lambda answer: self._on_answer(answer, sent_s))
        except KazooException:
            self._asked = False

    def _on_answer(self, answer: Any, sent_s: float) -> None:
        """The server had our session when it answered, so at least when we asked."""
        self._asked = False
        if answer.successful():
            self._last_answer_s = sent_s

    def _declare_lost(self, quiet_s: float) -> None:
        with self._lock:
            if self._closed:
                return
            self._lost = True
            callbacks, self._on_lost = self._on_lost, []
        why = "the server ended it" if self._gone else f"there was no answer for {quiet_s:.1f} s"
        log.error("The session with ZooKeeper at %s is lost: %s.", self._hosts, why)
        for lost in callbacks:
            lost()
        self._connected.set()  # wake the waiting threads, which see that the session is lost
        self._stop_client()

    def _stop_client(self) -> None:
        """Without this kazoo would replace a lost session by a new one."""
        with self._stopping:
            if self._stopped:
                return
            self._stopped = True
            try:
                self._client.stop()
                self._client.close()
            except (KazooException, OSError) as error:
                log.debug(
                    "Closing the connection to ZooKeeper at %s failed: %r.", self._hosts, error
                )


class _Unsettled(Exception):
    """The connection broke before the answer came: the call may or may not have taken effect."""


def _one_shot(watch: Watch | None) -> Callable[[Any], None] | None:
    return None if watch is None else _Notify(watch)


@dataclass(frozen=True, slots=True)
class _Notify:
    """Equal for equal callbacks, so that kazoo keeps one watch however often it is set again."""

    watch: Watch

    def __call__(self, event: Any) -> None:
        self.watch()
