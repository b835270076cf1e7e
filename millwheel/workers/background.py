"""The threads beside the loop: each takes work from a queue, blocks in one kind of call, and enqueues the answer."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from millwheel.core.table import ShardEntry
from millwheel.ports import Journals, JournalWriter, Snapshots, StateStores
from millwheel.workers import events as ev
from millwheel.workers.recovery import recover

Post = Callable[[ev.Event], None]


class JournalThread:
    """Group commit: whatever was submitted while the last write was on its way goes out as one write."""

    def __init__(self, writer: JournalWriter, post: Post) -> None:
        self._writer = writer
        self._post = post
        self._queue: queue.SimpleQueue[Sequence[bytes] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def submit(self, entries: Sequence[bytes]) -> None:
        self._queue.put(entries)

    def segments(self) -> Sequence[int]:
        return self._writer.segments()

    def delete_segment(self, segment: int) -> None:
        self._writer.delete_segment(segment)

    def check(self) -> None:
        """Raise FencedError when this journal has been sealed (any thread)."""
        with self._lock:
            self._writer.commit([])

    def stop(self) -> None:
        """Finish what was submitted and close the journal."""
        self._queue.put(None)
        self._thread.join()
        self._writer.close()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            groups = [first]
            last = False
            while not last and not self._queue.empty():
                more = self._queue.get()
                last = more is None
                if more is not None:
                    groups.append(more)
            try:
                with self._lock:
                    segment = self._writer.commit([entry for group in groups for entry in group])
            except Exception as ex:  # the loop decides; this thread must not die in silence
                self._post(ev.JournalFailed(ex))
                return
            for _ in groups:
                self._post(ev.GroupDurable(segment))
            if last:
                return


class RecoveryThread:
    """Opens the stores of shards, one after the other."""

    def __init__(self, stores: StateStores, snapshots: Snapshots, journals: Journals, scratch: str, post: Post) -> None:
        self._parts = (stores, snapshots, journals, scratch)
        self._post = post
        self._queue: queue.SimpleQueue[tuple[str, ShardEntry]] = queue.SimpleQueue()
        for number in range(2):
            threading.Thread(target=self._run, name=f"recovery-{number}", daemon=True).start()

    def recover(self, node: str, entry: ShardEntry) -> None:
        self._queue.put((node, entry))

    def _run(self) -> None:
        while True:
            node, entry = self._queue.get()
            try:
                store = recover(entry, *self._parts)
            except Exception as ex:  # handed to the loop, which ends the process with its words
                self._post(ev.RecoveryFailed(entry, node, ex))
            else:
                self._post(ev.ShardRecovered(entry, node, store))


class SnapshotThread:
    """Uploads checkpoints and collects what they make unreachable. ``guard`` raises when we are fenced."""

    def __init__(self, snapshots: Snapshots, scratch: str, guard: Callable[[], None], post: Post) -> None:
        self._snapshots = snapshots
        self._scratch = Path(scratch)
        self._guard = guard
        self._post = post
        self._queue: queue.SimpleQueue[tuple[str, int, int, str]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="snapshots", daemon=True).start()

    def checkpoint_path(self, shard: str, token: int, number: int) -> str:
        return str(self._scratch / f"checkpoint-{shard}-{token}-{number}")

    def publish(self, shard: str, token: int, last_commit: int, path: str) -> None:
        self._queue.put((shard, token, last_commit, path))

    def _run(self) -> None:
        while True:
            shard, token, last_commit, path = self._queue.get()
            try:
                self._snapshots.publish(shard, token, last_commit, path, self._guard)
                self._snapshots.collect(shard)
            except Exception as ex:  # the loop tries again, or ends when we are fenced
                self._post(ev.SnapshotFailed(shard, token, ex))
            else:
                self._post(ev.SnapshotPublished(shard, token, last_commit))
            finally:
                shutil.rmtree(path, ignore_errors=True)
