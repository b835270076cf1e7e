"""A real HAProxy: the machine's own, or Debian's package, once, in a cache of this user.

Where neither can be had the tests are skipped, unless MILLWHEEL_REQUIRES names ``haproxy``.
"""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.servers.wheels import debian_command

_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
_START_S = 30.0


def command() -> list[str]:
    """How it is called; skips the test where there is none, or fails it where one must be."""
    return debian_command("haproxy", _PACKAGES, "usr/sbin/haproxy")


def balancing(settings: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """HAProxy with these settings, once it listens on ``port`` of the loopback."""
    path = folder / "haproxy.cfg"
    path.write_text(settings)
    with (folder / "haproxy.log").open("ab") as log:
        process = subprocess.Popen([*command(), "-db", "-f", str(path)], stdout=log, stderr=log)
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"it did not start: {(folder / 'haproxy.log').read_text()[-2000:]}")
