"""Carries workers' output (the stdout sink) to the driver's standard output, wherever the workers
run, and keeps their log files small.

Workers append to ``logs/worker-<slot>.out`` on the shared root. A callback that logs or prints for
each record must not fill the disk: a process moves its own large files aside while it lives,
because it alone can do so without losing a line. First the name goes to another file, then the
descriptor does. A moved file that the driver has passed on makes way for the next one.

C code writes to descriptors, past the streams of Python. Once a process has seen a secret, its
descriptors are pipes whose bytes are masked on their way into the files; Python's own output goes
there directly, so that last words are not lost.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LIMIT_BYTES = 8_000_000
"""A larger file is moved aside. With the overshoot between two looks, two of them stay below 32
MB."""
PASSED_ON = ".passed_on"
"""A file in the folder of logs: a driver passes standard output on, and moves files that it has
read out of the way."""
_F_SETPIPE_SZ = 1031  # Fixed: by Linux
_PIPE_BYTES = 1 << 20  # so much C code may write while it holds Python's lock
# at the end, for the last bytes: a child of the process may hold the pipe open for ever
_DRAIN_S = 0.5
_LOOK_S = 0.1  # between looks: a fast loop prints some megabytes meanwhile
_log = logging.getLogger(__name__)
_READ_BYTES = 1 << 20  # of a process's output, in one read


class OutputPump:
    """Follows the output files of a run. It passes on whole lines only, so that lines of two
    workers never mix."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._done: dict[int, int] = {}
        self._begun: dict[Path, bytes] = {}
        for path in self._logs.glob("worker-*.out*"):  # an earlier run has passed it on
            path.unlink()
        if self._logs.is_dir():
            (self._logs / PASSED_ON).touch()

    def take(self) -> bytes:
        """Lines that were printed since the last call, at most about 1 MB of each worker. Never
        blocks."""
        return b"".join(self._take(path) for path in sorted(self._logs.glob("worker-*.out")))

    def _take(self, path: Path) -> bytes:
        aside, passed = path.with_name(f"{path.name}.1"), path.with_name(f"{path.name}.0")
        data = self._begun.pop(path, b"")
        # the oldest first: a line may begin in one and end in the next
        for file in (passed, aside, path):
            data += self._read(file, _READ_BYTES - len(data))
            if file == aside and len(data) < _READ_BYTES and aside.exists():
                # Renamed and not removed: the worker may still write to it, until it has its new
                # descriptor.
                self._forget(passed)
                os.replace(aside, passed)
        # A line longer than one read is passed on in pieces rather than never.
        whole = data.rfind(b"\n") + 1 or (len(data) if len(data) >= _READ_BYTES else 0)
        if data[whole:]:
            self._begun[path] = data[whole:]
        return data[:whole]

    def _read(self, path: Path, most: int) -> bytes:
        if most <= 0:
            return b""
        try:
            with open(path, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                file.seek(self._done.get(inode, 0))
                data = file.read(most)
        except FileNotFoundError:
            return b""
        self._done[inode] = self._done.get(inode, 0) + len(data)
        return data

    def _forget(self, path: Path) -> None:
        """Forget the offset of a file that is about to go: its number may be used again."""
        if path.exists():
            self._done.pop(path.stat().st_ino, None)


class LogFiles:
    """The log files of this process, by the descriptors that write to them. They are kept small by
    a thread."""

    def __init__(self, descriptors: tuple[int, ...] = (1, 2)) -> None:
        self._paths = {
            number: path for number in descriptors if (path := _log_file(number)) is not None
        }
        self._lock = threading.Lock()
        self._pipes: list[tuple[int, int, threading.Thread]] = []
        if self._paths:
            threading.Thread(target=self._watch, daemon=True, name="logs").start()

    def behind_a_mask(self, descriptor: int, mask: Callable[[bytes], bytes]) -> int:
        """Pass all output to the descriptor from now on through ``mask``, line by line.
        Returns another descriptor of the same file, which writes directly."""
        with self._lock:
            direct, (reads, writes) = os.dup(descriptor), os.pipe()
            with suppress(OSError):  # not on every system
                fcntl.fcntl(writes, _F_SETPIPE_SZ, _PIPE_BYTES)
            os.dup2(writes, descriptor)
            os.close(writes)
            if descriptor in self._paths:
                self._paths[direct] = self._paths.pop(descriptor)
        passing = threading.Thread(
            target=_pass_masked, args=(reads, direct, mask), daemon=True, name="masked"
        )
        passing.start()
        self._pipes.append((descriptor, direct, passing))
        return direct

    def drained(self) -> None:
        """Let the bytes in the pipes reach the files, before the process ends."""
        for descriptor, direct, passing in self._pipes:
            os.dup2(direct, descriptor)
            passing.join(_DRAIN_S)

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            with self._lock:
                for descriptor, path in self._paths.items():
                    try:
                        rotate(descriptor, path)
                    # a full disk, for example: the file grows on, and the next look tries again
                    except OSError as ex:
                        _log.debug("%s was not moved aside: %s", path, ex)


def _readable(descriptor: int, timeout_s: float) -> bool:
    """Whether it has bytes. With ``poll``: ``select`` takes no descriptor above 1,023, and a run
    may have more files open."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def _pass_masked(reads: int, direct: int, mask: Callable[[bytes], bytes]) -> None:
    """A line that is not ended within a second is passed on as it is: it may be a prompt."""
    line, more = b"", True
    while more:
        data = os.read(reads, _PIPE_BYTES) if not line or _readable(reads, 1.0) else None
        more = data != b""
        line += data or b""
        whole = line.rfind(b"\n") + 1
        if not data or len(line) > _PIPE_BYTES:
            whole = len(line)
        _write(direct, mask(line[:whole]))
        line = line[whole:]


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError:  # a full disk must not hold up the writer
            return


def _log_file(descriptor: int) -> Path | None:
    try:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:  # no Linux
        return None
    return path if path.suffix in (".log", ".out") else None


def rotate(descriptor: int, path: Path, limit: int = LIMIT_BYTES) -> bool:
    """Move the file aside if it is large, unless a driver has yet to pass on the one moved
    before."""
    if os.fstat(descriptor).st_size <= limit:
        return False
    aside = path.with_name(f"{path.name}.1")
    if path.suffix == ".out" and aside.exists() and (path.parent / PASSED_ON).exists():
        return False
    os.replace(path, aside)
    fresh = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        os.dup2(fresh, descriptor)
    finally:
        os.close(fresh)
    return True
