"""A worker that is killed while unique visitors are counted, and how long nothing comes out
afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path

import psutil

from bench.contest import role_of

_LOOK_S = 0.01
_LOOKED_AFTER_S = 60.0
"""So long after the kill the longest silence is looked for."""


class Kill(threading.Thread):
    """Kills one worker below this process once ``output`` shows ``rows`` rows. ``silence_s``: the
    longest time from then on in which no new rows appeared, to the end of the run or the look; None
    when the run was over before."""

    def __init__(self, output: Path, rows: int, looked_after_s: float = _LOOKED_AFTER_S) -> None:
        super().__init__(daemon=True)
        self._looked_after_s = looked_after_s
        self._output = output
        self._rows = rows
        self._sizes: dict[str, int] = {}
        self._ended = threading.Event()
        self.silence_s: float | None = None

    def run(self) -> None:
        shown = 0
        while shown < self._rows:
            if self._ended.wait(_LOOK_S):
                return
            shown += self._new()
        at = time.monotonic()
        if not _kill_one():
            return
        self.silence_s = self._silence(at)

    def _silence(self, at: float) -> float:
        """The longest one from the kill on. The last look ends one, also where nothing came any
        more."""
        moments = [at]
        while time.monotonic() < at + self._looked_after_s and not self._ended.wait(_LOOK_S):
            if self._new():
                moments.append(time.monotonic())
        moments.append(time.monotonic())
        return max(later - earlier for earlier, later in pairwise(moments))

    def end(self) -> None:
        """The run is over."""
        self._ended.set()
        self.join()

    def _new(self) -> int:
        """The rows in files that were not there before."""
        found = 0
        for path in self._output.glob("*.jsonl"):
            if path.name not in self._sizes:
                self._sizes[path.name] = path.read_bytes().count(b"\n")
                found += self._sizes[path.name]
        return found


def _kill_one() -> bool:
    """Kill the worker with the most memory."""
    workers: list[tuple[int, int]] = []
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if role_of(child.cmdline()) == "workers":
                workers.append((child.memory_info().rss, child.pid))
        except psutil.Error:
            continue
    if workers:
        os.kill(max(workers)[1], signal.SIGKILL)
    return bool(workers)
