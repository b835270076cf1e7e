"""Events from any thread, for one loop that sleeps on sockets."""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from typing import Any

_BELLS = 4096  # wake-ups that are taken off the socket in one read


class Mailbox:
    """A queue whose reader may sleep in a selector on :meth:`fileno`: a byte arrives there to wake
    it.

    ``put`` is for any thread, the rest for the loop. Ringing costs a system call, so only a sleeper
    is woken.
    """

    def __init__(self) -> None:
        self._events: deque[Any] = deque()
        self._asleep = False
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)

    def put(self, event: Any) -> None:
        """Leave an event."""
        self._events.append(event)
        self.ring()

    def ring(self) -> None:
        """Wake the loop, if it sleeps."""
        if self._asleep:
            self._asleep = False
            with suppress(OSError):  # unread bells fill the buffer, or the loop has ended
                self._rope.send(b"\0")

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._bell.fileno()

    def sleep(self) -> bool:
        """Ask for the bell from now on; False when there is an event already."""
        self._asleep = True
        return not self._events

    def wake(self) -> None:
        """The loop is awake: no bell until it sleeps again."""
        self._asleep = False

    def hush(self) -> None:
        """The loop has woken up: take the bells off the socket."""
        with suppress(BlockingIOError):
            self._bell.recv(_BELLS)

    def take(self, most: int) -> list[Any]:
        """The oldest events, as they came."""
        events = self._events
        return [events.popleft() for _ in range(min(most, len(events)))]

    def close(self) -> None:
        """Reading has ended; later items are lost."""
        self._asleep = False
        self._bell.close()
        self._rope.close()
