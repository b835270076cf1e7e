"""When a file of a folder was first opened, by whichever process: the start of the clock, the same
for every system.

Asked of the kernel (inotify), so nothing is added to the system that is measured, and no system has
to be asked.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from pathlib import Path

_IN_OPEN, _IN_ISDIR, _IN_CLOEXEC = 0x20, 0x40000000, 0o2000000
_EVENT = struct.Struct("iIII")
_POLL_MS = 200


class FirstOpen:
    """A context manager; ``at`` is the time (s since 1970) of the first opening since it was
    entered, or None."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="first-open")
        self.at: float | None = None

    def __enter__(self) -> FirstOpen:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(_IN_CLOEXEC)
        if (
            self._fd < 0
            or libc.inotify_add_watch(self._fd, os.fsencode(self._folder), _IN_OPEN) < 0
        ):
            raise OSError(
                ctypes.get_errno(), f"the kernel does not watch {self._folder}; Linux is needed"
            )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._fd)

    def _watch(self) -> None:
        events = select.poll()
        events.register(self._fd, select.POLLIN)
        while self.at is None and not self._stop.is_set():
            if events.poll(_POLL_MS):
                now = time.time()
                if any(not mask & _IN_ISDIR for mask in _masks(os.read(self._fd, 65_536))):
                    self.at = now


def _masks(data: bytes) -> list[int]:
    found, index = [], 0
    while index < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, index)
        found.append(mask)
        index += _EVENT.size + length
    return found


def last_change(folder: Path) -> float | None:
    """When a file below ``folder`` last got a byte or a name (s since 1970); None when there is no
    file."""
    stamps = [path.stat().st_ctime_ns for path in folder.rglob("*") if path.is_file()]
    return max(stamps) / 1e9 if stamps else None
