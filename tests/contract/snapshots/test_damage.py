"""Damaged snapshots are found."""

from __future__ import annotations

import pytest

from millwheel.errors import (
    CorruptionError,
)
from tests.contract.snapshots.world import SHARD, World, filled


@pytest.mark.parametrize("suffix", [".sst", "CURRENT"])
def test_a_flipped_bit_in_any_file_is_found(world: World, suffix: str) -> None:
    manifest = world.publish(filled(world, a="1"), 1, 1)
    path = world.blob_path(manifest, suffix)
    world.patch(path, lambda data: bytes([data[0] ^ 1]) + data[1:])
    target, snapshots = world.path(), world.snapshots()
    if suffix == ".sst" and world.space is None:  # it is shared, and read later
        snapshots.restore(manifest, target)
        with pytest.raises(CorruptionError, match=path):
            list(snapshots.unverified())
        return
    with pytest.raises(CorruptionError, match=path):
        snapshots.restore(manifest, target)
    assert not world.files.exists(target)


@pytest.mark.parametrize("suffix", [".sst", "CURRENT"])
def test_a_file_that_is_cut_or_missing_stops_the_restore(world: World, suffix: str) -> None:
    manifest = world.publish(filled(world, a="1"), 1, 1)
    path = world.blob_path(manifest, suffix)
    world.patch(path, lambda data: data[:-1])
    with pytest.raises(CorruptionError):
        world.snapshots().restore(manifest, world.path())
    world.objects().delete(path)
    with pytest.raises(CorruptionError, match="missing"):
        world.snapshots().restore(manifest, world.path())


def test_a_damaged_manifest_stops_everything_and_no_older_one_is_taken(world: World) -> None:
    store = filled(world, a="1")
    world.publish(store, 1, 1)
    world.publish(store, 1, 2)
    path = f"{world.root}/snapshots/{SHARD}/manifest-{2:010d}.json"
    data = world.objects().get(path)
    later = data.replace(b'"last_commit":2', b'"last_commit":3')
    for change in (data[:-9], b"", later, b'{"checksum":"","manifest":{}}'):
        world.patch(path, lambda _, change=change: change)  # type: ignore[misc]
        with pytest.raises(CorruptionError, match=path):
            world.snapshots().latest(SHARD)
        with pytest.raises(CorruptionError, match=path):
            world.publish(store, 1, 3)
        with pytest.raises(CorruptionError, match=path):
            world.snapshots().collect(SHARD)


def test_a_manifest_of_another_shard_is_refused(world: World) -> None:
    world.publish(filled(world, a="1"), 1, 1)
    source = f"{world.root}/snapshots/{SHARD}/manifest-{1:010d}.json"
    world.objects().prepare(f"{world.root}/snapshots/other-1")
    world.objects().create(
        f"{world.root}/snapshots/other-1/manifest-{1:010d}.json", world.objects().get(source)
    )
    with pytest.raises(CorruptionError, match="traffic-0"):
        world.snapshots().latest("other-1")
