"""The progress of a run for other programs: the driver writes ``progress.json`` in the root once a
second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.cluster_view import ClusterView
from millwheel.core.pipeline.graph import Graph
from millwheel.launch.progress.input_size import Estimate
from millwheel.launch.progress.line import Speed
from millwheel.launch.progress.summary import Summary, summarize

PROGRESS_FILE = "progress.json"
INTERVAL_S = 0.5
"""Between two writes of the file."""


class Progress(msgspec.Struct, frozen=True):
    """The summary of a run that goes on. ``text`` is the line for people."""

    driver_pid: int
    text: str
    summary: Summary


class Noting:
    """Writes the file now and then. ``before_s`` is the working time of earlier runs on the
    root."""

    def __init__(
        self,
        root: Path,
        pipeline: str,
        graph: Graph,
        restarts: Callable[[], Mapping[str, int]],
        before_s: float,
        estimate: Estimate | None = None,
    ) -> None:
        self._root = root
        self._graph = graph
        self._restarts = restarts
        self._began_s = time.monotonic() - before_s
        self._speed = Speed(pipeline, graph, estimate)
        self._due_s = 0.0

    def step(self, view: ClusterView | None, now_s: float) -> None:
        """Write the file if it is due."""
        if view is None or now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        restarts = self._restarts()
        summary = summarize(self._graph, view, now_s - self._began_s, restarts)
        note_progress(self._root, self._speed.text(view, restarts, now_s), summary)


def note_progress(root: Path, text: str, summary: Summary) -> None:
    """Replace the file. Progress is of no use after a crash, so nothing waits for the disk."""
    staged = root / f".{PROGRESS_FILE}"
    try:
        staged.write_bytes(msgspec.json.encode(Progress(os.getpid(), text, summary)))
        os.replace(staged, root / PROGRESS_FILE)
    except OSError:
        return  # a full disk stops the run where it matters


def read_progress(root: Path) -> Progress | None:
    """The progress that the driver of a root last wrote, or None."""
    try:
        return msgspec.json.decode((root / PROGRESS_FILE).read_bytes(), type=Progress)
    except (OSError, *DAMAGE):
        return None
