"""The result of a run in words and as a JSON file, and its progress for other programs: the driver
writes ``progress.json`` in the root twice a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from rich.console import Console

from millwheel.adapters.rights import under_users_umask
from millwheel.control.roots.root import write_atomically
from millwheel.core.model.damage import DAMAGE
from millwheel.core.pipeline.graph import ClusterView, Graph
from millwheel.errors import SetupError
from millwheel.launch.progress.input_size import Estimate
from millwheel.launch.progress.line import Speed
from millwheel.launch.progress.summary import Summary, reason_texts, summarize

_REASONS = 3  # reasons of dead letters that the summary shows


def summary_lines(summary: Summary) -> list[str]:
    """The result for a person, one fact per line."""
    lines = [
        (
            f"{summary.records_in:,} records in, {summary.records_out:,} out;"
            f" {summary.duplicates:,} duplicates and {summary.late:,} late records dropped,"
            f" {summary.dead_letters:,} dead-lettered"
        ),
        f"{summary.seconds:.1f} s, {summary.rate:,.0f} records/s",
    ]
    if summary.latency_ms:
        quantiles = ", ".join(f"{name} {value:,.1f}" for name, value in summary.latency_ms.items())
        lines.append(f"latency from read to visible, ms: {quantiles}")
    if summary.restarts:
        lines.append(
            "restarts: " + ", ".join(f"{name} {count}" for name, count in summary.restarts.items())
        )
    width = max((len(stream) for stream in summary.outputs), default=0)
    lines += [f"  {stream:<{width}}  {address}" for stream, address in summary.outputs.items()]
    return lines + dead_lines(summary)


def dead_lines(summary: Summary) -> list[str]:
    """The last line of a run with dead letters: their number, and the most frequent causes."""
    if not summary.dead_letters:
        return []
    reasons = reason_texts(summary.reasons)
    more = f"; and {len(reasons) - _REASONS} other reasons" if len(reasons) > _REASONS else ""
    why = f": {'; '.join(reasons[:_REASONS])}{more}" if reasons else ""
    word = "letter" if summary.dead_letters == 1 else "letters"
    again = f", {summary.replayed:,} of them tried again" if summary.replayed else ""
    sentence = f"{summary.dead_letters:,} dead {word}{again}{why}"
    return [f"{sentence}. `millwheel letters` shows them, `millwheel replay` tries them again"]


def report(summary: Summary, console: Console, json_file: str) -> None:
    """Print the result, and write it to ``json_file`` unless that is "". Raises SetupError when the
    file cannot be written."""
    for line in summary_lines(summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if json_file:
        target = Path(json_file)
        try:
            with under_users_umask():
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(
                    target, msgspec.json.format(msgspec.json.encode(summary.to_json()), indent=2)
                )
        except OSError as error:
            raise SetupError(
                f"The summary cannot be written to {target}: {error.strerror or error}"
            ) from error


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
