"""One child process with its log files and its last words."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millwheel.adapters.processes.exits import memory_kills
from millwheel.adapters.processes.lifeline import child_environment

DOING = "doing"
"""The name of that file."""
_LAST_WORDS_BYTES = 8_000  # of a log that are shown when a process has failed
_LOG_LIMIT_BYTES = 16_000_000  # a larger log is begun anew


class LifeLog:
    """The log files of a process: standard error is appended to ``<log>.log``, standard output to
    ``<log>.out``."""

    def __init__(self, log: Path) -> None:
        self.err, self.out = log.with_suffix(".log"), log.with_suffix(".out")
        _rotate(self.err)
        self._started_at = self.err.stat().st_size if self.err.exists() else 0

    def last_words(self) -> str:
        """The last lines written to the log since this value was made."""
        return tail(self.err, self._started_at)


@dataclass(frozen=True, slots=True)
class Remains:
    """The remains of a process: the content of its file ``doing``, and whether the kernel has
    killed any process for lack of memory while it lived."""

    doing: bytes = b""
    lacked_memory: bool = False


class Scratch:
    """The scratch folder of one life, which goes with it. ``doing``: a small file in it that names
    the work of the process when it died; there is no other record of that."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._kills = memory_kills()
        self.remains = Remains()

    def ended(self) -> None:
        """Keep the remains of the process, which has ended, and remove the folder. Idempotent."""
        folder, self._folder = self._folder, ""
        if not folder:
            return
        with suppress(OSError):
            self.remains = Remains(Path(folder, DOING).read_bytes(), memory_kills() > self._kills)
        shutil.rmtree(folder, ignore_errors=True)


class Living(Protocol):
    """One life of a process, for a launcher."""

    @property
    def pid(self) -> int:
        """The process id; 0 until it is known."""

    def poll(self) -> int | None:
        """The exit code once it has ended (negative: a signal), None while it runs. Never
        blocks."""

    def lived_s(self) -> float:
        """Seconds since it was started."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def kill(self) -> None:
        """End it in any state (a stopped process too)."""

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it still runs after so long."""

    def last_words(self) -> str:
        """The last lines that this process (not an earlier one) wrote to its log."""

    def remains(self) -> Remains:
        """Its remains, once it has ended."""


class Child:
    """A running process that we execute. It has a session of its own, so that Ctrl-C in a terminal
    reaches only the driver, which then stops the rest in the right order. ``scratch`` is a
    directory that dies with it; ``pass_fds`` stay open in it.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        scratch: str = "",
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._log = LifeLog(log)
        self._scratch = Scratch(scratch)
        with open(self._log.err, "ab") as err, open(self._log.out, "ab") as out:
            self._process = subprocess.Popen(
                list(command), env=child_environment(env), stdin=subprocess.DEVNULL, stdout=out,
                stderr=err,
                start_new_session=True, pass_fds=tuple(pass_fds),
            )  # fmt: skip
        self._born_s = time.monotonic()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code once it has ended (negative: a signal), None while it runs. Never
        blocks."""
        code = self._process.poll()
        if code is not None:
            self._scratch.ended()
        return code

    def remains(self) -> Remains:
        """See :class:`Living`."""
        return self._scratch.remains

    def lived_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._born_s

    def terminate(self) -> None:
        """Ask it to stop."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it in any state (a stopped process too)."""
        self._signal(signal.SIGKILL)

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it still runs after so long."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None
        return self.poll()

    def last_words(self) -> str:
        """The last lines that this process (not an earlier one) wrote to its log."""
        return self._log.last_words()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)


def stop_all(children: Sequence[Living], grace_s: float) -> None:
    """Ask all of them to stop, wait up to ``grace_s`` seconds in all, then kill and reap the
    rest."""
    for child in children:
        child.terminate()
    deadline_s = time.monotonic() + grace_s
    for child in children:
        if child.wait(deadline_s - time.monotonic()) is None:
            child.kill()
            child.wait(10.0)


def tail(path: Path, start: int = 0) -> str:
    """The last lines of a file from ``start`` on, at most 8 kB; "" when it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start if start <= size else 0, size - _LAST_WORDS_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def fresh_scratch(base: str, slot: int) -> str:
    """A new, empty directory for one life of a worker; below the machine's temporary folder when
    ``base`` is ""."""
    if base:
        os.makedirs(base, exist_ok=True)
    return tempfile.mkdtemp(prefix=f"slot-{slot}-", dir=base or None)


def _rotate(log: Path) -> None:
    """Rotate a large log and keep one older file, so that the root does not grow without bound."""
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        os.replace(log, log.with_suffix(".log.1"))
