"""What the servers of tests share: whether they can run, a cache of this user for what they need,
free ports, and processes that are killed."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from platformdirs import user_cache_path

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


def lacking(server: str, reason: str) -> NoReturn:
    """Skip the test, or fail it where MILLWHEEL_REQUIRES names the server."""
    if server in os.environ.get("MILLWHEEL_REQUIRES", ""):
        pytest.fail(reason)
    pytest.skip(reason)


def need(server: str, what: str, *commands: str) -> None:
    """Skip the test where a command is missing, or fail it where the server must run."""
    missing = [name for name in commands if shutil.which(name) is None]
    if missing:
        lacking(server, f"{what} needs {' and '.join(missing)}")


def filled(name: str, fill: Callable[[Path], None]) -> Path:
    """A folder of the cache, after ``fill`` has been called with it once."""
    folder = user_cache_path("millwheel-tests") / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not (folder / "complete").exists():
            fill(folder)
            (folder / "complete").touch()
    return folder


class ServerProcess:
    """A server of which a test can kill the process."""

    _process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """As by a power cut of the process."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """It hangs from now on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
