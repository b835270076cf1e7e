"""Carries workers' output (the stdout sink) to the driver's standard output, wherever the workers run, and keeps their
log files small.

Workers append to ``logs/worker-<slot>.out`` on the shared root. A callback that logs or prints for each record must not
fill the disk: a process moves its own large files aside while it lives, because it alone can do so without losing a
line. First the name goes to another file, then the descriptor does. What the driver has passed on it moves out of the
way of the next one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

LIMIT_BYTES = 8_000_000
"""A larger file is moved aside. With the overshoot between two looks, two of them stay below 32 MB."""
PASSED_ON = ".passed_on"
"""A file in the folder of logs: a driver passes standard output on, and moves what it has read out of the way."""
_LOOK_S = 0.1  # between looks: a fast loop prints some megabytes meanwhile
_log = logging.getLogger(__name__)
_READ_BYTES = 1 << 20  # of what a process wrote, in one read


class OutputPump:
    """Follows the output files of a run. It passes on whole lines only, so that lines of two workers never mix."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._done: dict[int, int] = {}
        self._begun: dict[Path, bytes] = {}
        for path in self._logs.glob("worker-*.out*"):  # an earlier run has passed it on
            path.unlink()
        if self._logs.is_dir():
            (self._logs / PASSED_ON).touch()

    def take(self) -> bytes:
        """Lines that were printed since the last call, at most about 1 MB of each worker. Never blocks."""
        return b"".join(self._take(path) for path in sorted(self._logs.glob("worker-*.out")))

    def _take(self, path: Path) -> bytes:
        aside, passed = path.with_name(f"{path.name}.1"), path.with_name(f"{path.name}.0")
        data = self._begun.pop(path, b"")
        for file in (passed, aside, path):  # the oldest first: a line may begin in one and end in the next
            data += self._read(file, _READ_BYTES - len(data))
            if file == aside and len(data) < _READ_BYTES and aside.exists():
                # Renamed and not removed: the worker may still write to it, until its descriptor is another one.
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
        """The file is about to go, and its number with it."""
        if path.exists():
            self._done.pop(path.stat().st_ino, None)


def keep_small(descriptors: tuple[int, ...] = (1, 2)) -> None:
    """From now on, on a thread of its own, for those of the descriptors that are log files."""
    paths = {number: path for number in descriptors if (path := _log_file(number)) is not None}
    if paths:
        threading.Thread(target=_watch, args=(paths,), daemon=True, name="logs").start()


def _log_file(descriptor: int) -> Path | None:
    try:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:  # no Linux
        return None
    return path if path.suffix in (".log", ".out") else None


def _watch(paths: dict[int, Path]) -> None:
    while True:
        time.sleep(_LOOK_S)
        for descriptor, path in paths.items():
            try:
                rotate(descriptor, path)
            except OSError as ex:  # a full disk, say: the file grows on, and the next look tries again
                _log.debug("%s was not moved aside: %s", path, ex)


def rotate(descriptor: int, path: Path, limit: int = LIMIT_BYTES) -> bool:
    """Move the file aside if it is large. Not while a driver has not passed on what was moved before."""
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
