"""Snapshots are restored without reading them, where the scratch folder can share files with the
root."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from millwheel.adapters.snapshots.blobs import BlobCache
from millwheel.adapters.snapshots.restore import RestorePace
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.adapters.stores.rocksdb import RocksStores
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.contract.snapshots.world import SHARD, World, filled, memory_world
from tests.fakes.buckets import Fault
from tests.fakes.faulty_files import FaultyFiles
from tests.fakes.s3_server import S3Server


def test_tables_that_are_shared_are_not_read_to_be_restored_nor_to_be_published_again() -> None:
    world = memory_world()
    manifest = world.publish(filled(world, a="1" * 1000), 1, 1)
    files = FaultyFiles(world.files)
    opened: list[str] = []
    files.before = lambda call: opened.append(call.args[0]) if call.name == "open_read" else None
    snapshots = world.snapshots(files)
    path = world.path()
    snapshots.restore(manifest, path)
    store = world.stores.open("next", path)
    store.apply([(b"b", b"2")], [])
    world.publish(store, 2, 2, snapshots)
    table = next(name for name in manifest.files if name.endswith(".sst"))
    assert opened
    assert not [name for name in opened if name.endswith(table)]
    assert len(list(snapshots.unverified())) == 1
    assert [name for name in opened if name.endswith(table)] == [world.blob_path(manifest, ".sst")]
    assert not list(snapshots.unverified())


def test_what_was_collected_before_it_was_verified_is_no_damage(world: World) -> None:
    store = filled(world, a="1")
    manifest, snapshots = world.publish(store, 1, 1), world.snapshots()
    snapshots.restore(manifest, world.path())
    for blob, _, _ in manifest.files.values():
        world.objects().delete(f"{world.root}/snapshots/{SHARD}/{blob}")
    assert list(snapshots.unverified()) == []


@pytest.mark.parametrize("copies", [1, 4])
def test_what_must_be_copied_is_checked_and_the_next_time_it_is_here(
    world: World, tmp_path: Path, copies: int
) -> None:
    if isinstance(world.files, MemoryDisk):
        pytest.skip("the cache is on real files")
    manifest = world.publish(filled(world, **{f"k{n}": "v" * 100 for n in range(100)}), 1, 1)
    cache = BlobCache(str(tmp_path / "blobs"))
    space = Unshared(world.objects())
    snapshots = FileSnapshots(
        world.root, world.files, cast("ObjectSpace", space), RestorePace(copies, cache)
    )
    for fetched in (1, 0):
        space.fetched.clear()
        path = world.path()
        snapshots.restore(manifest, path)
        assert len([key for key in space.fetched if key.endswith(".sst")]) == fetched
        store = world.stores.open(f"copied-{fetched}", path)
        assert len(list(store.scan(b"k"))) == 100
        store.close()


def test_what_was_uploaded_is_not_downloaded(s3: S3Server, tmp_path: Path) -> None:
    s3.fail()
    space, cache = s3.space(), BlobCache(str(tmp_path / "blobs"))
    world = World(space.root, PosixFiles(), RocksStores(str(tmp_path)), str(tmp_path), space)
    theirs = FileSnapshots(space.root, space=space, pace=RestorePace(4, cache))
    manifest = world.publish(filled(world, a="1"), 1, 1, theirs)
    s3.fail(Fault("GET", ".sst", "refuse", 1000))
    theirs.restore(manifest, world.path())
    s3.fail()
    assert world.content() == {b"a": b"1"}


class Unshared:
    """A root on another file system than the scratch folder."""

    def __init__(self, inner: ObjectSpace) -> None:
        self._inner = inner
        self.fetched: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def share_file(self, key: str, target: str) -> bool:
        return False

    def fetch_file(self, key: str, target: str) -> None:
        self.fetched.append(key)
        self._inner.fetch_file(key, target)
