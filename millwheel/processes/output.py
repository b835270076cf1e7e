"""Carries workers' output (the stdout sink) to the driver's standard output, wherever the workers run.

Workers append to ``logs/worker-<slot>.out`` on the shared root. Blocks that were passed on are returned to the file
system, so that a pipeline that prints for ever does not fill the disk.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_READ_BYTES = 1 << 20  # of what a process wrote, in one read
_PUNCH_BYTES = 16 << 20  # that were shown are given back to the disk at once
_KEEP_SIZE_AND_PUNCH_HOLE = 0x03  # Fixed: of fallocate(2)


class OutputPump:
    """Follows the output files of a run. It passes on whole lines only, so that lines of two workers never mix."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._done: dict[Path, int] = {}
        self._punched: dict[Path, int] = {}
        for path in self._paths():  # an earlier run has passed it on
            path.unlink()

    def take(self) -> bytes:
        """Lines that were printed since the last call, at most about 1 MB of each worker. Never blocks."""
        return b"".join(self._take(path) for path in self._paths())

    def _paths(self) -> list[Path]:
        return sorted(self._logs.glob("worker-*.out"))

    def _take(self, path: Path) -> bytes:
        start = self._done.get(path, 0)
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(_READ_BYTES)
        # A line longer than one read is passed on in pieces rather than never.
        whole = data.rfind(b"\n") + 1 or (len(data) if len(data) == _READ_BYTES else 0)
        self._done[path] = start + whole
        self._give_back(path)
        return data[:whole]

    def _give_back(self, path: Path) -> None:
        """Free the blocks that have been passed on. The file cannot be truncated, because the writer still appends to
        it."""
        first, upto = self._punched.get(path, 0), self._done[path]
        if upto - first < _PUNCH_BYTES or not sys.platform.startswith("linux"):
            return
        self._punched[path] = upto
        descriptor = os.open(path, os.O_WRONLY)
        try:
            fallocate = ctypes.CDLL(None).fallocate
            fallocate(descriptor, _KEEP_SIZE_AND_PUNCH_HOLE, ctypes.c_int64(first), ctypes.c_int64(upto - first))
        finally:
            os.close(descriptor)
