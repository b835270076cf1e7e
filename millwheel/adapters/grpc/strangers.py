"""Hangs up on strangers of a gRPC server, which cannot do so itself.

gRPC ends a half handshake in time. But a client that uses HTTP/2 without a token may stay, and when
there are too many connections gRPC refuses newcomers, members among them. So a thread watches the
sockets of the server's port: strangers go when their time is over, and the oldest first when there
are many. It works on the sockets themselves, beside gRPC, so members pay nothing for it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from millwheel.adapters.front.limits import FrontLimits

_log = logging.getLogger("millwheel.security")

LIMITS = FrontLimits()
"""The time that a stranger has to show a token (``head_s``), and the most strangers."""
_QUIET_S = 5.0  # between looks when there are no strangers
_BUSY_S = 0.1  # where there are many: gRPC takes some thousands of connections meanwhile
_PEER = re.compile(r"ipv[46]:(.+):(\d+)")

Peer = tuple[str, int]
"""The address and port of the other end."""


@dataclass(slots=True)
class Strangers:
    """The connected peers, and which of them have shown a token. Time is an argument."""

    limits: FrontLimits = LIMITS
    _members: set[Peer] = field(default_factory=set)
    _since_s: dict[Peer, float] = field(default_factory=dict)

    def admit(self, peer: str) -> None:
        """A call of this peer (as gRPC names it) has shown the token. From any thread."""
        if (member := peer_of(peer)) is not None:
            self._members.add(member)

    def look(self, connected: Iterable[Peer], now_s: float) -> tuple[list[Peer], float]:
        """The peers to hang up on, and when to look again (s from now). An OSError of ``connected``
        leaves everything as it was."""
        # Before the connections are listed: a peer that connects and is admitted meanwhile has not
        # gone.
        members = frozenset(self._members)
        there = set(connected)
        for former in members - there:  # one by one: members are admitted meanwhile
            self._members.discard(former)
        since_s = {
            peer: at
            for peer, at in self._since_s.items()
            if peer in there and peer not in self._members
        }
        since_s |= dict.fromkeys(there - since_s.keys() - self._members, now_s)
        limits, most = self.limits, self.limits.strangers
        spare = len(since_s) - most
        ended = [
            peer
            for number, (peer, at) in enumerate(since_s.items())
            if at + limits.head_s <= now_s or (number < spare and at + limits.grace_s <= now_s)
        ]
        for peer in ended:
            del since_s[peer]
        self._since_s = since_s
        if len(since_s) + len(ended) > most // 2:
            return ended, _BUSY_S
        return ended, min([_QUIET_S, *(at + limits.head_s - now_s for at in since_s.values())])


def peer_of(name: str) -> Peer | None:
    """``ipv4:127.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000`` as a socket names it."""
    match = _PEER.fullmatch(
        name.replace("%5B", "").replace("%5D", "").replace("[", "").replace("]", "")
    )
    return (_plain(match[1]), int(match[2])) if match else None


def watch(port: int, strangers: Strangers, ended: threading.Event) -> threading.Thread:
    """Look at the connections of this process's server at ``port`` until it has ended, on a thread
    of its own."""

    def run() -> None:
        wait_s = _BUSY_S
        while not ended.wait(wait_s):
            try:
                over, wait_s = strangers.look((peer for peer, _ in _connections(port)), monotonic())
                if over:
                    _hang_up(port, frozenset(over))
            except OSError as ex:  # no descriptor is free at the moment, to look with
                wait_s = _BUSY_S
                _log.debug("the connections of port %d could not be looked at: %s", port, ex)

    thread = threading.Thread(target=run, name="grpc-strangers", daemon=True)
    thread.start()
    return thread


def _hang_up(port: int, peers: frozenset[Peer]) -> None:
    for peer, connection in _connections(port):
        if peer in peers:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # gRPC sees the end, and closes it


def _connections(port: int) -> Iterator[tuple[Peer, socket.socket]]:
    """The connections that this process has accepted at a port; each may be used only until the
    next one comes. It is a copy of the descriptor, whose number may be another file's by then.
    Raises OSError where no descriptor is free for a copy: then the connected peers are unknown."""
    for number in map(int, os.listdir("/dev/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            copy = os.dup(number)
        except OSError as ex:
            if ex.errno in (errno.EMFILE, errno.ENFILE):
                raise
            continue  # it was closed
        with socket.socket(fileno=copy) as connection:
            if (peer := _peer_at(port, connection)) is not None:
                yield peer, connection


def _peer_at(port: int, connection: socket.socket) -> Peer | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        if connection.getsockname()[1] != port:
            return None
        address, number = connection.getpeername()[:2]
    except OSError:  # it listens, or has ended
        return None
    return _plain(address), number


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:").partition("%")[0]
