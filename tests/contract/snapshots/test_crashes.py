"""Crashes and failing disks while a snapshot is published, on the disk in memory."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import cast

import pytest

from millwheel.adapters.snapshots.manifest import decode_manifest
from millwheel.adapters.spaces.durable import read_whole
from millwheel.errors import (
    UnavailableError,
)
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores
from tests.contract.snapshots.world import SHARD, World, filled, free, memory_world
from tests.fakes.faulty_files import Call, FaultyFiles, Killed, fail_when, kill_at


def _publish_calls() -> int:
    world = memory_world()
    files = FaultyFiles(world.files)
    _third_snapshot(world, files)
    return files.calls


def _third_snapshot(world: World, files: object) -> None:
    for commit in (1, 2):
        store = filled(world, a=str(commit))
        world.publish(store, 1, commit)
    store.apply([(b"b", b"3")], [])
    path = world.path()
    store.checkpoint(path)
    snapshots = world.snapshots(files)
    snapshots.publish(SHARD, 1, 3, path, free)
    snapshots.collect(SHARD)


def _manifests_are_whole(world: World) -> None:
    folder = f"{world.root}/snapshots/{SHARD}"
    names = set(world.files.list_dir(folder))
    for name in names:
        if name.startswith("manifest-"):
            manifest = decode_manifest(read_whole(world.files, f"{folder}/{name}"))
            assert names >= {blob for blob, _, _ in manifest.files.values()}


# generators that die with the process
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_at_any_call_leaves_the_old_snapshot_or_the_new_one(power_cut: bool) -> None:
    outcomes = set()
    for number in range(_publish_calls() + 1):
        world = memory_world()
        with suppress(Killed):
            _third_snapshot(world, FaultyFiles(world.files, kill_at(number)))
        cast("MemoryDisk", world.files).crash(power_cut)
        found = world.snapshots().latest(SHARD)
        assert found is not None
        # The scratch folder is gone after a power cut, like everything that was never synced.
        restored = memory_scratch(world)
        assert restored == ({b"a": b"2"} if found.last_commit == 2 else {b"a": b"2", b"b": b"3"})
        _manifests_are_whole(world)
        outcomes.add(found.last_commit)
    assert outcomes == {2, 3}


def memory_scratch(world: World) -> dict[bytes, bytes]:
    world.stores = MemoryStores(world.files, "/root/scratch")
    return world.content()


def test_a_manifest_of_a_dead_owner_is_durable_once_somebody_relies_on_it() -> None:
    def killed_before_it_is_durable(call: Call) -> None:
        if call.name == "link" and "manifest-" in call.args[1]:
            raise Killed

    world = memory_world()
    with suppress(Killed):
        _third_snapshot(world, FaultyFiles(world.files, after=killed_before_it_is_durable))
    found = world.snapshots().latest(SHARD)
    assert found is not None
    assert found.last_commit == 3
    cast("MemoryDisk", world.files).crash()
    assert world.snapshots().latest(SHARD) == found
    assert memory_scratch(world) == {b"a": b"2", b"b": b"3"}


def test_a_publication_whose_last_sync_failed_is_durable_after_the_retry() -> None:
    world = memory_world()
    path = world.path()
    filled(world, a="1").checkpoint(path)
    files = FaultyFiles(world.files)

    def fail_after_the_manifest(call: Call) -> None:
        if call.name == "link" and "manifest-" in call.args[1]:
            files.before = fail_when("sync_dir", errno.EIO)

    files.after = fail_after_the_manifest
    snapshots = world.snapshots(files)
    with pytest.raises(UnavailableError):
        snapshots.publish(SHARD, 1, 1, path, free)
    manifest = snapshots.publish(SHARD, 1, 1, path, free)
    cast("MemoryDisk", world.files).crash()
    assert world.snapshots().latest(SHARD) == manifest


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["write_at", "sync", "sync_dir", "link", "create"])
def test_a_disk_that_fails_once_fails_the_publication_and_the_next_one_works(
    call: str, number: int
) -> None:
    world = memory_world()
    store = filled(world, a="1")
    path = world.path()
    store.checkpoint(path)
    snapshots = world.snapshots(FaultyFiles(world.files, fail_when(call, number)))
    with pytest.raises(UnavailableError, match="publish a snapshot of traffic-0"):
        snapshots.publish(SHARD, 1, 1, path, free)
    snapshots.publish(SHARD, 1, 1, path, free)
    assert world.content() == {b"a": b"1"}


def test_a_root_on_another_file_system_gets_copies() -> None:
    world = memory_world()
    store = filled(world, a="1")
    path = world.path()
    store.checkpoint(path)
    files = FaultyFiles(world.files, fail_when("link", errno.EXDEV))
    manifest = world.snapshots(files).publish(SHARD, 1, 1, path, free)
    table = next(name for name in manifest.files if name.endswith(".sst"))
    assert world.files.identity(f"{path}/{table}") != world.files.identity(
        world.blob_path(manifest, ".sst")
    )
    assert world.content() == {b"a": b"1"}


def test_an_unchanged_table_is_read_once_by_a_worker() -> None:
    world = memory_world()
    store = filled(world, a="1" * 100)
    files = FaultyFiles(world.files)
    snapshots = world.snapshots(files)
    world.publish(store, 1, 1, snapshots)
    opened: list[str] = []
    files.before = lambda call: opened.append(call.args[0]) if call.name == "open_read" else None
    store.apply([(b"b", b"2")], [])
    world.publish(store, 1, 2, snapshots)
    assert not [path for path in opened if path.endswith("000001.sst")]
    assert [path for path in opened if path.endswith("000002.sst")]


def test_no_file_stays_open(world: World) -> None:
    store = filled(world, a="1")
    world.publish(store, 1, 1)
    world.content()
    world.snapshots().collect(SHARD)
    if isinstance(world.files, MemoryDisk):
        assert world.files.open_files() == 0


def test_a_dropped_shard_has_no_snapshot_and_no_blob_and_others_keep_theirs(world: World) -> None:
    assert world.snapshots().shards() == []
    world.publish(filled(world, a="1"), 1, 1)
    world.publish(filled(world, "another", b="2"), 1, 2)
    assert world.snapshots().shards() == [SHARD]
    assert world.snapshots().drop("hits-99") == 0
    assert world.snapshots().drop(SHARD) > 0
    assert world.snapshots().latest(SHARD) is None
    assert not world.blobs()
    assert world.snapshots().drop(SHARD) == 0
