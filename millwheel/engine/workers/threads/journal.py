"""The thread that writes the journal, so that the loop need not wait for a disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from millwheel.adapters.ports import JournalWriter
from millwheel.core.metrics import WRITE_BOUNDS_S, Histogram
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.ports import Post

_AT_ONCE_BYTES = 64 << 10  # a larger group is written by the thread
_SLOW_WRITE_S, _LONGEST_COUNTED_S = 0.003, 0.02
"""If writes usually take longer, the loop does not wait for them. A single very slow write is not
decisive."""
_OF_THE_LAST = 8  # writes over which the usual duration is averaged

SEAL_CHECK_S = 5.0
"""The interval at which an idle journal is checked for its seal. A worker that was declared dead
while it joined, before it saw itself as a member, would not notice otherwise."""


def write_groups(writer: JournalWriter, groups: Sequence[Sequence[bytes]], post: Post) -> bool:
    """Group commit: one write for all ``groups``, and an answer for each. False when the journal is
    over."""
    try:
        segment = writer.commit([entry for group in groups for entry in group])
    except Exception as ex:  # the loop decides; the writing thread must not die silently
        post(ev.JournalFailed(ex))
        return False
    # One answer for each, in their order: the loop takes an answer for its oldest group.
    for _ in groups:
        post(ev.GroupDurable(segment))
    return True


@dataclass(slots=True)
class JournalFigures:
    """Figures of journal writes, for ``/metrics``."""

    seconds: Histogram = field(default_factory=lambda: Histogram(WRITE_BOUNDS_S))
    size_bytes: int = 0


class JournalThread:
    """Commits that were submitted during the last write go out as one group commit."""

    def __init__(self, writer: JournalWriter, post: Post) -> None:
        self._writer = writer
        self._post = post
        self._queue: queue.SimpleQueue[Sequence[bytes] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._usual_s = 0.0
        self.written = JournalFigures()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def submit(self, entries: Sequence[bytes]) -> None:
        self._queue.put(entries)

    def write_now(self, entries: Sequence[bytes]) -> int | None:
        """See :class:`millwheel.engine.workers.ports.GroupCommits`. A small write to a fast disk is
        faster than waking another thread and re-acquiring the GIL."""
        size_bytes = sum(map(len, entries))
        if not self._writer.quick or self._usual_s > _SLOW_WRITE_S or size_bytes > _AT_ONCE_BYTES:
            return None
        # The thread may be writing: two commits at a time would be one group number twice.
        with self._lock:
            began_s = monotonic()
            segment = self._writer.commit(entries)
            self._took(monotonic() - began_s, size_bytes)
            return segment

    def segments(self) -> Sequence[int]:
        return self._writer.segments()

    def delete_segment(self, segment: int) -> None:
        self._writer.delete_segment(segment)

    def check(self) -> None:
        """Raise FencedError when this journal has been sealed (any thread)."""
        with self._lock:
            self._writer.commit([])

    def stop(self) -> None:
        """Write the submitted commits and close the journal."""
        self._queue.put(None)
        self._thread.join()
        self._writer.close()

    def _run(self) -> None:
        going = True
        while going:
            groups, last = self._submitted()
            if groups or not last:
                with self._lock:
                    began_s = monotonic()
                    going = write_groups(self._writer, groups, self._post) and not last
                    self._took(
                        monotonic() - began_s,
                        sum(len(entry) for group in groups for entry in group),
                    )
            else:
                going = False

    def _took(self, took_s: float, size_bytes: int) -> None:
        self._usual_s += (min(took_s, _LONGEST_COUNTED_S) - self._usual_s) / _OF_THE_LAST
        if size_bytes:  # without any, it only looked for a seal
            self.written.seconds.add(took_s)
            self.written.size_bytes += size_bytes

    def _submitted(self) -> tuple[list[Sequence[bytes]], bool]:
        """The waiting commits (none after some idle time), and whether they are the last."""
        groups: list[Sequence[bytes]] = []
        try:
            while (group := self._queue.get(timeout=SEAL_CHECK_S)) is not None:
                groups.append(group)
                if self._queue.empty():
                    return groups, False
        except queue.Empty:
            return groups, False
        return groups, True
