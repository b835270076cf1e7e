"""A real Redis server: the machine's own, or Debian's packages, once, in a cache of this user.

Where neither can be had the tests are skipped, unless MILLWHEEL_REQUIRES names ``redis``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.servers.ports import free_port
from tests.servers.wheels import debian

_PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
_START_S = 30.0
PASSWORD = "w0rd-of-redis"


def command() -> list[str]:
    """How the server is called; skips the test where there is none, or fails it where one must
    be."""
    found = shutil.which("redis-server")
    if found is not None:
        return [found]
    try:
        folder, libraries = debian("redis", _PACKAGES)
        return ["env", f"LD_LIBRARY_PATH={libraries}", str(folder / "usr/bin/redis-server")]
    except (OSError, subprocess.SubprocessError) as ex:
        reason = f"there is no redis-server here, and Debian's package cannot be had: {ex}"
        if "redis" in os.environ.get("MILLWHEEL_REQUIRES", ""):
            pytest.fail(reason)
        pytest.skip(reason)


class RedisServer:
    """A server on a free port, which keeps its data when it is killed and started again
    (appendonly). ``password`` is asked for if it is not empty."""

    def __init__(self, folder: Path, password: str = "") -> None:
        self._folder = folder
        self._command = command()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.password = password
        self.url = f"redis://{':' + password + '@' if password else ''}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self._folder),
            "--save",
            "",
        ]
        words += ["--appendonly", "yes", "--appendfsync", "always"]
        words += ["--requirepass", self.password] if self.password else []
        log = (self._folder / "log.txt").open("ab")
        self._process = subprocess.Popen([*self._command, *words], stdout=log, stderr=log)
        log.close()
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(redis.RedisError):
                self.client().ping()
                return
            time.sleep(0.02)
        said = (self._folder / "log.txt").read_text(errors="replace")[-2000:]
        raise AssertionError(f"the server did not start: {said}")

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

    def client(self) -> Any:
        """A reader's client."""
        return redis.Redis.from_url(self.url, decode_responses=True)


def running(folder: Path, password: str = "") -> Iterator[RedisServer]:
    """A server that is killed at the end."""
    server = RedisServer(folder, password)
    server.start()
    try:
        yield server
    finally:
        server.kill()
