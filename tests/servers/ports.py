"""Ports for servers that are told theirs, and may be killed and started again on it."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST, _TRIES = 15_000, 200


def free_port() -> int:
    """A port of the loopback that nobody has now. Not one of those that the system gives to whoever
    asks for any port: such a one may have gone to another test before the server binds it, or while
    it is down."""
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    for _ in range(_TRIES):
        # drawn apart in each process
        port = random.SystemRandom().randrange(_LEAST, max(end, _LEAST + 1_000))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port from {_LEAST} on is free")
