"""Journals, snapshots and local stores in concert: whatever dies when, a shard recovers to what was
acked.

One shard lives through many owners on one disk. Each owner commits, snapshots, collects and deletes
segments until it is killed at some call to the disk, perhaps with the power, or is declared dead
and goes on as a zombie. What commit n writes follows from n, so the store that the next owner
recovers can be checked by its number alone.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.ports import StateStore
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.files import Files
from millwheel.core.formats.codec import Commit, encode_commit
from millwheel.core.formats.store_layout import META, Meta, decode_meta, encode_meta
from millwheel.core.model.range_table import Ancestor, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers.recovery.recovery import recover
from millwheel.errors import ConflictError, FencedError
from millwheel.tools.testing.memory.storage import MemoryStorage
from tests.fakes.faulty_files import FaultyFiles, Killed, kill_at

SHARD = "traffic-0"
_KEYS = 7


def commit_of(token: int, number: int) -> Commit:
    puts = [(b"k%d" % (number % _KEYS), b"%d" % number), (META, encode_meta(Meta(number)))]
    return Commit(SHARD, token, number, puts, [b"k%d" % ((number + 3) % _KEYS)])


def content_after(number: int) -> dict[bytes, bytes]:
    content: dict[bytes, bytes] = {}
    for one in range(1, number + 1):
        commit = commit_of(1, one)
        content.update(commit.puts)
        for key in commit.deletes:
            content.pop(key, None)
    return content


class Owner:
    """One incarnation: a worker's part in storage, in the order of the real one."""

    def __init__(self, storage: MemoryStorage, form: str, files: object, entry: ShardEntry) -> None:
        self.name, self.token = entry.owner, entry.token
        own = cast("Files", files)
        self.journals = storage.journals(form, own)
        self.snapshots = storage.snapshots(own)
        self.scratch = f"/root/scratch/{entry.owner}"
        stores = storage.stores(entry.owner, own)
        self.writer = self.journals.create(entry.owner)
        self.store: StateStore = recover(entry, stores, self.snapshots, self.journals, self.scratch)
        found = self.store.get(META)
        self.number = decode_meta(found).number if found else 0
        self.recovered = dict(self.store.scan(b""))
        self.segment_of: dict[int, int] = {}
        self.checkpoint, self.taken, self.checkpoints = "", 0, 0

    def commit(self, count: int) -> int:
        """One group of ``count`` commits; the number of the last one, now acked."""
        commits = [commit_of(self.token, self.number + n) for n in range(1, count + 1)]
        for commit in commits:
            self.store.apply(commit.puts, commit.deletes)
        segment = self.writer.commit([encode_commit(commit) for commit in commits])
        self.number += count
        self.segment_of[segment] = self.number
        return self.number

    def snapshot(self) -> None:
        self.checkpoints += 1
        self.checkpoint, self.taken = f"{self.scratch}/checkpoint-{self.checkpoints}", self.number
        self.store.checkpoint(self.checkpoint)
        self.snapshots.publish(SHARD, self.token, self.taken, self.checkpoint, lambda: None)
        self.snapshots.collect(SHARD)
        for segment in list(self.writer.segments())[:-1]:
            if self.segment_of.get(segment, 0) <= self.number:
                self.writer.delete_segment(segment)

    def haunt(self) -> None:
        """What it does when it does not know that it is dead."""
        with pytest.raises(FencedError):
            self.writer.commit([encode_commit(commit_of(self.token, self.number + 1))])
        if self.checkpoint:
            with suppress(ConflictError):
                self.snapshots.publish(SHARD, self.token, self.taken, self.checkpoint, lambda: None)
        self.snapshots.collect(SHARD)
        self.writer.close()


class History:
    """The master's side: who owns the shard, and what must be true of it."""

    def __init__(self, seed: int, form: str) -> None:
        self.random = random.Random(seed)
        self.form = form
        self.storage = MemoryStorage(segment_bytes=400)
        self.entry = ShardEntry(SHARD, tile(1)[0], "", 0)
        self.acked = self.attempted = 0
        self.zombie: Owner | None = None

    def live(self) -> None:
        self.entry = self.entry.assigned(f"w{self.entry.token + 1}")
        fate = kill_at(self.random.choice([20, 100, 400, 1 << 30]) + self.random.randrange(60))
        files = FaultyFiles(self.storage.disk, fate)
        with suppress(Killed):
            owner = Owner(self.storage, self.form, files, self.entry)
            assert self.acked <= owner.number <= self.attempted
            assert owner.recovered == content_after(owner.number)
            self.acked = self.attempted = owner.number
            self._work(owner)
        self._bury()

    def _work(self, owner: Owner) -> None:
        for _ in range(self.random.randrange(12)):
            if self.zombie is not None and self.random.random() < 0.3:
                self.zombie.haunt()
                self.zombie = None
            if self.random.random() < 0.25 and owner.number:
                owner.snapshot()
            else:
                count = self.random.randrange(1, 4)
                self.attempted = self.acked + count
                self.acked = owner.commit(count)
        self.zombie = owner

    def _bury(self) -> None:
        if self.random.random() < 0.4:
            self.storage.disk.crash(self.random.random() < 0.7, lambda n: self.random.randint(0, n))
            self.zombie = None
        end = self._seal(self.entry.owner)
        lineage = (*self.entry.lineage, Ancestor(self.entry.owner, self.entry.token, end, -1))
        newest = self._snapshots().latest(SHARD)
        needed = tuple(one for one in lineage if newest is None or one.token >= newest.token)
        for one in set(lineage) - set(needed):
            self._journals().collect(one.incarnation)
        self.entry = ShardEntry(SHARD, self.entry.range, "", self.entry.token, needed)

    def _seal(self, name: str) -> int:
        """Masters may die too; the next one seals again and must find the same end."""
        with suppress(Killed):
            self.storage.journals(self.form, cast("Files", self._mortal())).seal(name)
        return self._journals().seal(name)

    def _mortal(self) -> FaultyFiles:
        return FaultyFiles(self.storage.disk, kill_at(self.random.randrange(40)))

    def _journals(self) -> FileJournals:
        return self.storage.journals(self.form)

    def _snapshots(self) -> FileSnapshots:
        return self.storage.snapshots()


# generators that die with the process
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("form", ["append", "create"])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_shard_recovers_to_what_was_acked_whoever_dies_when(form: str, seed: int) -> None:
    history = History(seed, form)
    for _ in range(8):
        history.live()
