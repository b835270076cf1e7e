"""Deliberate mistakes in the durable store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from millwheel.adapters.journal.append import AppendForm, AppendWriter
from millwheel.adapters.journal.folder import COLLECTED
from millwheel.adapters.spaces.durable import read_whole
from millwheel.core.formats.store_layout import META, decode_meta, encode_meta
from millwheel.engine.workers.loop import snapshots
from millwheel.engine.workers.loop.runtime import WorkerRuntime
from millwheel.engine.workers.recovery import recovery
from millwheel.tools.testing.memory import stores as memory_stores
from tests.sim import worker
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=40, faults="kill kill-in-a-call slow-disk")
def snapshot_before_durable() -> Context:
    """A checkpoint is published although its last commits are not durable, and says so wrongly."""
    right = snapshots.SnapshotPolicy._take

    def wrong(self: snapshots.SnapshotPolicy, machine: Any, state: Any, now_us: int) -> None:
        right(self, machine, state, now_us)
        state.taken -= 1

    return replaced(snapshots.SnapshotPolicy, "_take", wrong)


@mistake(within=20)
def journal_replayed_twice() -> Context:
    """Replay does not skip what the snapshot holds, nor check that commits are contiguous."""

    def wrong(
        name: str, ancestor: Any, journals: Any, store: Any, have: int, since: Any = None, **_: Any
    ) -> int:
        for commit, _size in recovery._commits(name, ancestor, journals, since, -1):
            store.apply(commit.puts[: len(commit.puts) // 2], commit.deletes)
            have = commit.number
        data = store.get(META)
        if data is not None:
            meta = decode_meta(data)
            meta.number = have
            store.apply([(META, encode_meta(meta))], [])
        return have

    return replaced(recovery, "replay", wrong)


@mistake(within=40)
def segments_deleted_too_early() -> Context:
    """After any snapshot all older segments go, whoever wrote to them."""
    right = snapshots.SnapshotPolicy.published

    def wrong(self: snapshots.SnapshotPolicy, name: str, token: int, last_commit: int) -> None:
        self._contents.clear()
        right(self, name, token, last_commit)

    return replaced(snapshots.SnapshotPolicy, "published", wrong)


@mistake(within=60, faults="pause false-alarm session", first=18)
def seal_not_looked_for() -> Context:
    """A commit is acked as soon as it is synced."""

    def wrong(self: AppendWriter, entries: Any) -> int:
        right_exists = self._files.exists
        self._files.exists = lambda path: False  # type: ignore[method-assign]
        try:
            return right(self, entries)
        finally:
            self._files.exists = right_exists  # type: ignore[method-assign]

    right = AppendWriter.commit
    return replaced(AppendWriter, "commit", wrong)


@mistake(within=3, faults="flip kill", first=2127)
def damaged_tables_served() -> Context:
    """A table that was restored without reading it is believed when it is read."""

    def wrong(files: Any, path: str) -> Any:
        body = read_whole(files, path)[memory_stores._DIGEST_BYTES :]
        try:
            return memory_stores._decode(body)
        except msgspec.MsgspecError:
            return []

    return replaced(memory_stores, "_read_table", wrong)


@mistake(within=20, faults="zombie")
def seal_deleted_by_collection() -> Context:
    """Garbage collection takes the seal with the segments."""
    right = AppendForm.collect

    def wrong(self: AppendForm, folder: Any) -> None:
        right(self, folder)
        for name in folder.names():
            if name != COLLECTED:
                folder.delete(name)

    return replaced(AppendForm, "collect", wrong)


@mistake(within=20, faults="zombie", first=3)
@contextmanager
def seal_not_noticed_when_idle() -> Iterator[None]:
    """A worker that commits nothing never looks whether it was declared dead; nor does it write
    full stops, which would tell it."""
    right = worker.write_groups  # type: ignore[attr-defined]
    with (
        replaced(
            worker,
            "write_groups",
            lambda writer, groups, post: not groups or right(writer, groups, post),
        ),
        replaced(WorkerRuntime, "_is_followed", lambda self: False),
    ):
        yield


@mistake(within=40, faults="power", first=1_000)
def group_over_zeros_not_synced() -> Context:
    """A commit is synced only where the file of the journal grows."""
    right = AppendWriter._append

    def wrong(self: AppendWriter, group: bytes) -> None:
        if self._offset + len(group) > self._size:
            right(self, group)
            return
        self._files.write_at(self._fd, group, self._offset)
        self._offset += len(group)
        self._group += 1

    return replaced(AppendWriter, "_append", wrong)


@mistake(within=40, faults="power")
def group_not_synced() -> Context:
    """A commit is written and not synced."""

    def wrong(self: AppendWriter, group: bytes) -> None:
        self._files.write_at(self._fd, group, self._offset)
        self._offset += len(group)
        self._group += 1

    return replaced(AppendWriter, "_append", wrong)
