"""The contract of the snapshots port: what is published is restored; zombies; what is collected. On
a directory, on a disk in memory, and in an object store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millwheel.adapters.ports import Manifest
from millwheel.errors import (
    ConflictError,
    FencedError,
    InvariantError,
    SetupError,
    UnavailableError,
)
from tests.contract.snapshots.world import SHARD, World, filled


def test_a_shard_without_snapshots_has_no_latest_and_nothing_to_collect(world: World) -> None:
    assert world.snapshots().latest(SHARD) is None
    assert world.snapshots().collect(SHARD) == 0


def test_what_was_published_is_the_latest_and_restores_to_the_same_store(world: World) -> None:
    manifest = world.publish(filled(world, a="1", b="2"), 1, 7)
    assert world.snapshots().latest(SHARD) == manifest
    assert (manifest.number, manifest.parent, manifest.token, manifest.last_commit) == (1, 0, 1, 7)
    assert world.content() == {b"a": b"1", b"b": b"2"}


def test_a_snapshot_can_be_restored_again_and_over_what_an_interrupted_restore_left(
    world: World,
) -> None:
    manifest = world.publish(filled(world, a="1"), 1, 1)
    path = world.path()
    for _ in range(2):
        world.snapshots().restore(manifest, path)
    assert world.stores.open("s", path).get(b"a") == b"1"
    assert world.content() == {b"a": b"1"}


def test_a_store_that_goes_on_from_a_restored_snapshot_never_changes_the_snapshot(
    world: World,
) -> None:
    manifest = world.publish(filled(world, a="1"), 1, 1)
    path = world.path()
    world.snapshots().restore(manifest, path)
    store = world.stores.open("next", path)
    store.apply([(b"a", b"changed")] + [(b"k%d" % n, b"v" * 500) for n in range(1000)], [])
    store.checkpoint(world.path())
    store.close()
    assert world.content(manifest) == {b"a": b"1"}


def test_only_tables_are_shared_between_a_snapshot_and_a_store(world: World) -> None:
    manifest = world.publish(filled(world, a="1"), 1, 1)
    path = world.path()
    world.snapshots().restore(manifest, path)
    if world.space is not None:
        pytest.skip("an object store shares nothing with a folder")
    for name, (blob, _, _) in manifest.files.items():
        original = world.files.identity(f"{world.root}/snapshots/{SHARD}/{blob}")
        assert (world.files.identity(f"{path}/{name}") == original) == name.endswith(".sst")


def test_unchanged_tables_are_referred_to_and_not_stored_again(world: World) -> None:
    store = filled(world, a="1" * 1000)
    one = world.publish(store, 1, 1)
    store.apply([(b"b", b"2")], [])
    two = world.publish(store, 1, 2)
    old = {name: blob for name, blob in one.files.items() if name.endswith(".sst")}
    assert old
    assert {name: two.files[name] for name in old} == old
    assert len([name for name in two.files if name.endswith(".sst")]) == len(old) + 1
    assert world.content(two) == {b"a": b"1" * 1000, b"b": b"2"}


def test_the_next_owner_refers_to_tables_of_the_last_one(world: World) -> None:
    manifest = world.publish(filled(world, a="1"), 1, 1)
    path = world.path()
    world.snapshots().restore(manifest, path)
    store = world.stores.open("theirs", path)
    store.apply([(b"b", b"2")], [])
    later = world.publish(store, 2, 2)
    assert (later.number, later.parent) == (2, 1)
    assert {blob for blob, _, _ in manifest.files.values()} & {
        blob for blob, _, _ in later.files.values()
    }
    assert world.content() == {b"a": b"1", b"b": b"2"}


def test_a_table_of_the_same_name_and_size_but_other_bytes_is_stored_again(world: World) -> None:
    world.publish(filled(world, "one", a="1"), 1, 1)
    manifest = world.publish(filled(world, "two", a="2"), 2, 1)
    assert all(blob.startswith("2-1.") for blob, _, _ in manifest.files.values())
    assert world.content() == {b"a": b"2"}


def test_publishing_the_same_commit_again_answers_what_stands(world: World) -> None:
    store = filled(world, a="1")
    assert world.publish(store, 1, 1) == world.publish(store, 1, 1)
    assert world.snapshots().latest(SHARD) is not None


def test_shards_do_not_see_each_other(world: World) -> None:
    world.publish(filled(world, a="1"), 1, 1)
    assert world.snapshots().latest("traffic-1") is None


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 300])
def test_a_shard_that_could_lead_out_of_the_root_is_refused(world: World, name: str) -> None:
    with pytest.raises(SetupError):
        world.snapshots().latest(name)


def test_a_zombie_cannot_publish_after_its_successor(world: World) -> None:
    world.publish(filled(world, "new", a="new"), 2, 5)
    with pytest.raises(ConflictError, match="newer owner"):
        world.publish(filled(world, "old", a="old"), 1, 9)
    assert world.content() == {b"a": b"new"}


def test_the_guard_speaks_last_and_its_veto_publishes_nothing(world: World) -> None:
    path = world.path()
    filled(world, a="1").checkpoint(path)

    def fence() -> None:
        assert world.blobs(), "the upload comes before the guard"
        raise FencedError("you are dead")

    with pytest.raises(FencedError, match="you are dead"):
        world.snapshots().publish(SHARD, 1, 1, path, fence)
    assert world.snapshots().latest(SHARD) is None


def test_who_loses_the_race_to_a_newer_owner_gets_a_conflict(world: World) -> None:
    path = world.path()
    filled(world, "old", a="old").checkpoint(path)
    new = filled(world, "new", a="new")
    with pytest.raises(ConflictError):
        world.snapshots().publish(
            SHARD, 1, 9, path, lambda: _once(lambda: world.publish(new, 2, 3))
        )
    assert world.content() == {b"a": b"new"}


def test_who_loses_the_race_to_an_older_owner_takes_the_next_number_and_the_right_parent(
    world: World,
) -> None:
    path = world.path()
    filled(world, "new", a="new").checkpoint(path)
    old = filled(world, "old", a="old")
    rival: list[Manifest] = []

    def race() -> None:
        if not rival:
            rival.append(world.publish(old, 1, 3))

    manifest = world.snapshots().publish(SHARD, 2, 9, path, race)
    assert (rival[0].number, manifest.number, manifest.parent) == (1, 2, 1)
    assert world.content() == {b"a": b"new"}


def test_a_parent_that_a_zombie_superseded_and_collected_in_between_is_not_referred_to(
    world: World,
) -> None:
    first = world.publish(filled(world, "first", a="1"), 1, 1)
    path = world.path()
    world.snapshots().restore(first, path)
    mine = world.stores.open("mine", path)
    mine.apply([(b"b", b"2")], [])
    path = world.path()
    mine.checkpoint(path)
    acted: list[bool] = []

    def race() -> None:
        if not acted:
            acted.append(True)
            world.publish(filled(world, "other", c="3"), 1, 2)
            world.publish(filled(world, "another", c="4"), 1, 3)
            assert world.snapshots().collect(SHARD) > 0

    world.snapshots().publish(SHARD, 2, 2, path, race)
    assert world.content() == {b"a": b"1", b"b": b"2"}


def test_an_owner_whose_commits_run_backwards_is_a_bug(world: World) -> None:
    store = filled(world, a="1")
    world.publish(store, 1, 5)
    with pytest.raises(InvariantError):
        world.publish(store, 1, 4)


def _once(action: Callable[[], object]) -> None:
    action()


def test_collecting_keeps_the_newest_two_and_all_they_reach(world: World) -> None:
    store = filled(world, a="1" * 100)
    manifests = []
    for commit in range(1, 6):
        store.apply([(b"k%d" % commit, b"v")], [])
        manifests.append(world.publish(store, 1, commit))
    assert world.snapshots().collect(SHARD) > 0
    assert world.snapshots().collect(SHARD) == 0
    kept = manifests[-2:]
    assert world.blobs() == {blob for manifest in kept for blob, _, _ in manifest.files.values()}
    for number, manifest in enumerate(kept, start=4):
        assert len(world.content(manifest)) == 1 + number


def test_numbers_go_on_after_a_collection(world: World) -> None:
    store = filled(world, a="1")
    for commit in range(1, 5):
        world.publish(store, 1, commit)
        world.snapshots().collect(SHARD)
    assert world.publish(store, 2, 5).number == 5


def test_collecting_spares_an_upload_that_is_on_its_way(world: World) -> None:
    store = filled(world, a="1")
    world.publish(store, 1, 1)
    path = world.path()
    filled(world, "new", a="2").checkpoint(path)

    def collect() -> None:
        before = world.blobs()
        world.snapshots().collect(SHARD)
        assert world.blobs() == before

    world.snapshots().publish(SHARD, 2, 2, path, collect)
    assert world.content() == {b"a": b"2"}


def test_what_a_failed_upload_left_goes_with_the_next_snapshot(world: World) -> None:
    store = filled(world, a="1")
    path = world.path()
    store.checkpoint(path)
    with pytest.raises(FencedError):
        world.snapshots().publish(SHARD, 1, 1, path, _fence)
    left = world.blobs()
    store.apply([(b"b", b"2")], [])
    world.publish(store, 1, 2)
    world.snapshots().collect(SHARD)
    assert left
    assert not world.blobs() & left
    assert world.content() == {b"a": b"1", b"b": b"2"}


def _fence() -> None:
    raise FencedError("fenced")


def test_restoring_what_was_collected_says_so(world: World) -> None:
    store = filled(world, a="1")
    old = world.publish(store, 1, 1)
    for commit in (2, 3, 4):
        world.publish(store, 1, commit)
    world.snapshots().collect(SHARD)
    with pytest.raises(UnavailableError, match="newest"):
        world.snapshots().restore(old, world.path())
