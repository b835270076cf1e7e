from __future__ import annotations

from dataclasses import replace
from threading import Lock

import pytest

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.store_layout import META, decode_meta
from millwheel.core.model.range_table import Ancestor, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers.loop.ranges import StandingBy
from millwheel.engine.workers.recovery.following import _REST_ROUNDS, Following, Standbys
from millwheel.errors import CorruptionError
from tests.unit.engine.workers.recovery.test_recovery import Storage, released, sealed

OWNED = ShardEntry("t-0", tile(1)[0], "w1", 1, standby="w9")


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def standbys(storage: Storage) -> Standbys:
    return Standbys(
        Following(storage.stores, storage.snapshots, storage.journals, "/scratch", Lock)
    )


def ours(*lineage: Ancestor, token: int = 2) -> ShardEntry:
    return replace(OWNED, owner="w9", token=token, lineage=lineage, standby="")


def at(store: StateStore | None) -> int:
    """The last commit of a store."""
    assert store is not None
    data = store.get(META)
    return 0 if data is None else decode_meta(data).number


def test_what_is_certain_is_followed_and_the_rest_is_read_at_the_takeover(
    storage: Storage, standbys: Standbys
) -> None:
    storage.commits("w1", 1, 1, 2)
    standbys.follow(OWNED)
    standbys.round()
    assert standbys.standing() == {"t-0": (1, 1)}
    storage.commits("w1", 1, 3, 4, 5)
    standbys.round()
    assert standbys.standing() == {"t-0": (1, 4)}
    store = standbys.take(ours(sealed("w1", 1, 5)))
    assert at(store) == 5
    assert {b"k1", b"k5"} <= {store_key for store_key, _ in store.scan(b"k")}  # type: ignore[union-attr]
    assert standbys.standing() == {}


def test_a_group_behind_the_sealed_end_is_not_in_the_store(
    storage: Storage, standbys: Standbys
) -> None:
    storage.commits("w1", 1, 1, 2)
    end = storage.journals.seal("w1")
    storage.commits("w1", 1, 3)  # a zombie
    standbys.follow(OWNED)
    standbys.round()
    assert at(standbys.take(ours(sealed("w1", 1, end)))) == 2


def test_other_shards_and_other_tokens_are_not_followed(
    storage: Storage, standbys: Standbys
) -> None:
    storage.commits("w1", 1, 1)
    storage.commits("w1", 1, 7, 8, shard="t-1")
    storage.commits("w1", 3, 2, 3)
    standbys.follow(OWNED)
    standbys.round()
    assert standbys.standing() == {"t-0": (1, 1)}


def test_a_follower_begins_with_the_snapshot_and_the_journals_of_earlier_owners(
    storage: Storage, standbys: Standbys
) -> None:
    storage.snapshot(4, 1)
    storage.commits("w0", 1, 5)
    storage.commits("w1", 2, 6, 7, 8)
    entry = replace(OWNED, token=2, lineage=(sealed("w0", 1, 1),))
    standbys.follow(entry)
    standbys.round()
    assert standbys.standing() == {"t-0": (2, 7)}
    assert at(standbys.take(ours(sealed("w0", 1, 1), sealed("w1", 2, 3), token=3))) == 8


def test_a_shard_that_comes_later_makes_the_journal_be_read_again_and_nothing_is_applied_twice(
    storage: Storage, standbys: Standbys
) -> None:
    storage.commits("w1", 1, 1, 2)
    storage.commits("w1", 1, 1, 2, shard="t-1")
    standbys.follow(OWNED)
    standbys.round()
    storage.commits("w1", 1, 3, 4)
    standbys.follow(replace(OWNED, shard="t-1"))
    standbys.round()
    assert standbys.standing() == {"t-0": (1, 3), "t-1": (1, 2)}


def test_after_segments_were_deleted_a_follower_begins_with_the_newest_snapshot(
    storage: Storage, standbys: Standbys
) -> None:
    storage.commits("w1", 1, 1, 2)
    standbys.follow(OWNED)
    standbys.round()
    storage.commits("w1", 1, 3, 4, 5, 6)
    storage.snapshot(4, 1)
    for segment in (1, 2, 3, 4):
        storage.journals.delete_segment("w1", segment)
    standbys.round()
    assert standbys.standing() == {}
    for _ in range(_REST_ROUNDS):
        standbys.round()
    assert standbys.standing() == {"t-0": (1, 5)}
    assert at(standbys.take(ours(sealed("w1", 1, 6)))) == 6


def test_a_follower_that_a_snapshot_has_overtaken_is_not_used(
    storage: Storage, standbys: Standbys
) -> None:
    """The only commit that is missing was deleted with its segment, so no later one tells of it."""
    storage.commits("w1", 1, 1, 2)
    standbys.follow(OWNED)
    standbys.round()
    storage.snapshot(2, 1)
    storage.journals.journals["w1"].groups.clear()
    assert standbys.take(ours(sealed("w1", 1, 2))) is None


@pytest.mark.parametrize(
    "lineage",
    [
        # somebody had it in between, and a snapshot of theirs has shortened the lineage
        (sealed("w5", 2, 7),),
        (released("w1", 1, 9),),  # it was released with more than was followed
        (),
    ],
)
def test_a_follower_of_another_history_is_not_used(
    storage: Storage, standbys: Standbys, lineage: tuple[Ancestor, ...]
) -> None:
    storage.commits("w1", 1, 1, 2)
    standbys.follow(OWNED)
    standbys.round()
    assert standbys.take(ours(*lineage, token=3)) is None
    assert standbys.standing() == {}


def test_an_owner_in_between_is_replayed(storage: Storage, standbys: Standbys) -> None:
    storage.commits("w1", 1, 1, 2)
    standbys.follow(OWNED)
    standbys.round()
    storage.commits("w5", 2, 3, 4)
    assert at(standbys.take(ours(sealed("w1", 1, 2), sealed("w5", 2, 2), token=3))) == 4


def test_damage_makes_a_follower_begin_again_and_ends_nothing(
    storage: Storage, standbys: Standbys
) -> None:
    storage.commits("w1", 1, 1, 2)
    standbys.follow(OWNED)
    right = storage.journals.follow
    storage.journals.follow = lambda *_: (_ for _ in ()).throw(CorruptionError("bad"))  # type: ignore[assignment]
    standbys.round()
    assert standbys.standing() == {}
    storage.journals.follow = right  # type: ignore[method-assign]
    for _ in range(_REST_ROUNDS + 1):
        standbys.round()
    assert standbys.standing() == {"t-0": (1, 1)}


class Calls:
    """What a loop says to its followers."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def follow(self, entry: ShardEntry) -> None:
        self.said.append(("follow", entry.shard))

    def drop(self, shard: str) -> None:
        self.said.append(("drop", shard))

    def take(self) -> list[tuple[str, str]]:
        said, self.said = self.said, []
        return said


def test_the_table_says_what_is_followed_dropped_or_left_to_its_recovery() -> None:
    calls = Calls()
    part = StandingBy("w9", calls)
    part.look([OWNED, replace(OWNED, shard="t-1", standby="w5")], [])
    assert calls.take() == [("follow", "t-0")]
    part.look([replace(OWNED, owner="")], [])  # an orphan may become ours
    assert calls.take() == []
    part.look([ours(sealed("w1", 1, 5))], [])
    assert calls.take() == []
    part.look([replace(OWNED, token=3)], [])
    part.look([replace(OWNED, token=4, owner="w2", standby="w3")], [])
    assert calls.take() == [("follow", "t-0"), ("drop", "t-0")]
    part.look([replace(OWNED, token=5)], [])
    part.look([], [replace(OWNED, owner="")])
    assert calls.take() == [("follow", "t-0"), ("drop", "t-0")]
