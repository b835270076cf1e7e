from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millwheel.adapters.ports import Manifest
from millwheel.core.formats.codec import Commit, encode_commit
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.core.formats.store_layout import META, Meta, decode_meta, encode_meta
from millwheel.core.model.range_table import Ancestor, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers.recovery.recovery import Effort, recover
from millwheel.errors import CorruptionError, FencedError, UnavailableError
from tests.fakes.plain_storage import CHECKPOINTS, SimJournals, SimSnapshots, SimStore, SimStores


class Storage:
    """Journals and snapshots in memory, and the commits of one shard in them."""

    def __init__(self) -> None:
        self.journals = SimJournals()
        self.snapshots = SimSnapshots()
        self.stores = SimStores()

    def commits(self, incarnation: str, token: int, *numbers: int, shard: str = "t-0") -> None:
        if incarnation not in self.journals.journals:
            self.journals.create(incarnation)
        for number in numbers:
            puts = [
                (META, encode_meta(Meta(number, counters={}))),
                (b"k%d" % number, incarnation.encode()),
            ]
            self.journals.write(
                incarnation, [encode_commit(Commit(shard, token, number, puts, [b"gone"]))]
            )

    def snapshot(self, last_commit: int, token: int, stands_at: int | None = None) -> None:
        number = last_commit if stands_at is None else stands_at
        CHECKPOINTS["made"] = {
            META: encode_meta(Meta(number, counters={})),
            b"k": b"snapshot",
            b"gone": b"x",
        }
        self.snapshots.publish("t-0", token, last_commit, "made", lambda: None)

    def recover(self, *lineage: Ancestor, token: int = 9) -> SimStore:
        entry = ShardEntry("t-0", tile(1)[0], "w9", token, lineage)
        self.effort = Effort()
        store = recover(entry, self.stores, self.snapshots, self.journals, "/scratch", self.effort)
        assert isinstance(store, SimStore)
        return store


def sealed(incarnation: str, token: int, end: int) -> Ancestor:
    return Ancestor(incarnation, token, end, -1)


def released(incarnation: str, token: int, last_commit: int) -> Ancestor:
    return Ancestor(incarnation, token, -1, last_commit)


@pytest.fixture
def storage() -> Storage:
    return Storage()


def test_a_shard_that_never_lived_starts_empty(storage: Storage) -> None:
    assert storage.recover().data == {}


def test_all_commits_of_all_ancestors_are_replayed_in_order(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2)
    storage.commits("w2", 2, 3)
    store = storage.recover(sealed("w1", 1, 2), sealed("w2", 2, 1))
    assert (store.data[b"k1"], store.data[b"k2"], store.data[b"k3"]) == (b"w1", b"w1", b"w2")


def test_what_no_snapshot_had_is_the_effort_of_a_recovery(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2, 3)
    storage.recover(sealed("w1", 1, 3))
    alone = storage.effort.replayed
    storage.snapshot(2, 1)
    storage.recover(sealed("w1", 1, 3))
    assert 0 < storage.effort.replayed == alone / 3
    storage.snapshot(3, 1)
    storage.recover(sealed("w1", 1, 3))
    assert storage.effort.replayed == 0


def test_journals_of_owners_before_the_one_who_made_the_snapshot_are_not_read(
    storage: Storage,
) -> None:
    storage.commits("w2", 2, 1, 2, 3)
    storage.snapshot(2, token=2)
    store = storage.recover(sealed("nobody has this journal", 1, 7), sealed("w2", 2, 3))
    assert store.data[b"k3"] == b"w2"


def test_commits_behind_the_sealed_end_do_not_count(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2, 3)
    assert b"k3" not in storage.recover(sealed("w1", 1, 2)).data


def test_commits_under_a_token_that_the_lineage_does_not_name_are_ignored(storage: Storage) -> None:
    storage.commits("w1", 1, 1)
    storage.commits("w1", 7, 2)
    storage.commits("w1", 1, 2, shard="other-0")
    assert set(storage.recover(sealed("w1", 1, 3)).data) == {META, b"k1"}


def test_a_shard_whose_name_begins_alike_is_another_one(storage: Storage) -> None:
    storage.commits("w1", 1, 1)
    storage.commits("w1", 1, 2, shard="t-01")
    storage.commits("w1", 12, 2)
    assert set(storage.recover(sealed("w1", 1, 3)).data) == {META, b"k1"}


def test_a_missing_commit_stops_recovery_and_is_told(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2, 5)
    with pytest.raises(
        CorruptionError, match=r"t-0: journal of w1 continues with commit 5.* 2 commits are missing"
    ):
        storage.recover(sealed("w1", 1, 3))


def test_a_commit_missing_between_two_owners_is_told_too(storage: Storage) -> None:
    storage.commits("w1", 1, 1)
    storage.commits("w2", 2, 3)
    with pytest.raises(CorruptionError, match="1 commits are missing"):
        storage.recover(sealed("w1", 1, 1), sealed("w2", 2, 1))


def test_a_released_journal_counts_up_to_the_commit_that_was_told(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2, 3)
    storage.commits("w2", 2, 3)
    store = storage.recover(released("w1", 1, 2), sealed("w2", 2, 1))
    assert store.data[b"k3"] == b"w2"


def test_a_released_journal_that_ends_too_early_stops_recovery(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2)
    with pytest.raises(
        CorruptionError, match="released it after commit 4, but its journal ends with 2"
    ):
        storage.recover(released("w1", 1, 4))


def test_a_snapshot_saves_the_replay_of_what_it_covers(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2, 3)
    storage.snapshot(2, 1)
    store = storage.recover(sealed("w1", 1, 3))
    assert store.data[b"k"] == b"snapshot"
    assert b"k2" not in store.data
    assert b"k3" in store.data
    assert b"gone" not in store.data


def test_the_segments_that_a_snapshot_covers_may_be_gone(storage: Storage) -> None:
    storage.commits("w1", 1, 1, 2, 3)
    storage.journals.delete_segment("w1", 1)
    storage.snapshot(1, 1)
    assert b"k3" in storage.recover(sealed("w1", 1, 3)).data


def test_a_journal_that_begins_behind_the_snapshot_stops_recovery(storage: Storage) -> None:
    storage.commits("w1", 1, 3)
    storage.snapshot(1, 1)
    with pytest.raises(CorruptionError, match="1 commits are missing"):
        storage.recover(sealed("w1", 1, 1))


def test_a_snapshot_whose_store_says_something_else_is_corrupt(storage: Storage) -> None:
    storage.snapshot(4, 1, stands_at=3)
    with pytest.raises(CorruptionError, match="says it ends with commit 4, its store with 3"):
        storage.recover()


def test_an_entry_that_is_no_commit_stops_recovery(storage: Storage) -> None:
    storage.commits("w1", 1, 1)
    good = encode_commit(Commit("t-0", 1, 2, [], []))
    storage.journals.write("w1", [good[:-1]])
    with pytest.raises(CorruptionError, match="is not a commit"):
        storage.recover(sealed("w1", 1, 2))


class Collecting(SimJournals):
    """While it is read, the former owner publishes a newer snapshot and its segments go."""

    def __init__(self, storage: Storage, error: Exception) -> None:
        super().__init__()
        self.storage = storage
        self.error = error
        self.reads = 0

    def read(
        self, incarnation: str, upto: int, since: JournalPosition | None = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        self.reads += 1
        if self.reads == 1:
            self.storage.snapshot(2, 1)
            raise self.error
        return super().read(incarnation, upto, since, prefix)


@pytest.mark.parametrize("error", [CorruptionError("segment 1 is missing"), FencedError("w1")])
def test_recovery_begins_again_when_a_newer_snapshot_made_the_journal_go(
    storage: Storage, error: Exception
) -> None:
    storage.journals = Collecting(storage, error)
    storage.commits("w1", 1, 1, 2, 3)
    store = storage.recover(sealed("w1", 1, 3))
    assert store.data[b"k"] == b"snapshot"
    assert b"k3" in store.data


def test_recovery_begins_again_when_a_newer_snapshot_made_the_older_one_go(
    storage: Storage,
) -> None:
    class Vanishing(SimSnapshots):
        def restore(self, manifest: Manifest, path: str) -> None:
            if manifest.last_commit == 1:
                storage.snapshot(2, 1)
                raise UnavailableError("collected while it was restored")
            super().restore(manifest, path)

    storage.snapshots = Vanishing()
    storage.snapshot(1, 1)
    storage.commits("w1", 1, 3)
    assert b"k3" in storage.recover(sealed("w1", 1, 1)).data


def test_recovery_begins_again_when_segments_went_and_nothing_else_tells(storage: Storage) -> None:
    class Quiet(SimJournals):
        """Before it is read, the former owner publishes its newest commit and deletes the segment
        with it."""

        def read(
            self,
            incarnation: str,
            upto: int,
            since: JournalPosition | None = None,
            prefix: bytes = b"",
        ) -> Iterator[bytes]:
            if storage.journals.segments(incarnation):
                storage.snapshot(2, 1)
                for segment in self.segments(incarnation):
                    self.delete_segment(incarnation, segment)
            return super().read(incarnation, upto, since, prefix)

    storage.journals = Quiet()
    storage.snapshot(1, 1)
    storage.commits("w1", 1, 2)
    store = storage.recover(sealed("w1", 1, 1))
    assert decode_meta(store.data[META]).number == 2


def test_damage_is_not_tried_again_and_again(storage: Storage) -> None:
    tries = 0

    class Damaged(SimJournals):
        def read(
            self,
            incarnation: str,
            upto: int,
            since: JournalPosition | None = None,
            prefix: bytes = b"",
        ) -> Iterator[bytes]:
            nonlocal tries
            tries += 1
            raise CorruptionError("bad checksum")

    storage.journals = Damaged()
    with pytest.raises(CorruptionError, match="bad checksum"):
        storage.recover(sealed("w1", 1, 3))
    assert tries == 1


def test_the_store_is_closed_when_recovery_stops(storage: Storage) -> None:
    closed: list[str] = []

    class Closing(SimStore):
        def close(self) -> None:
            closed.append("yes")

    class Stores:
        def open(self, shard: str, checkpoint: str | None) -> SimStore:
            return Closing({})

    storage.stores = Stores()  # type: ignore[assignment]
    storage.commits("w1", 1, 2)
    with pytest.raises(CorruptionError):
        storage.recover(sealed("w1", 1, 1))
    assert closed == ["yes"]


def test_the_store_has_a_name_of_its_own_under_each_token(storage: Storage) -> None:
    opened: list[tuple[str, Any]] = []

    class Stores(SimStores):
        def open(self, shard: str, checkpoint: str | None) -> SimStore:
            opened.append((shard, checkpoint))
            return super().open(shard, checkpoint)

    storage.stores = Stores()
    storage.snapshot(1, 1)
    storage.recover(token=4)
    assert opened == [("t-0-4", "/scratch/restore-t-0-4")]
