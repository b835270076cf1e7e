"""A real Redis server: the machine's own, or Debian's packages, once, in a cache of this user.

Where neither can be had the tests are skipped, unless MILLWHEEL_REQUIRES names ``redis``.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from tests.servers.programs import ServerProcess, free_port
from tests.servers.wheels import debian_command

_PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
_START_S = 30.0
PASSWORD = "w0rd-of-redis"


def command() -> list[str]:
    """How the server is called; skips the test where there is none, or fails it where one must
    be."""
    return debian_command("redis", _PACKAGES, "usr/bin/redis-server")


class RedisServer(ServerProcess):
    """A server on a free port, which keeps its data when it is killed and started again
    (appendonly). ``password`` is asked for if it is not empty."""

    def __init__(self, folder: Path, password: str = "") -> None:
        self._folder = folder
        self._command = command()
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
