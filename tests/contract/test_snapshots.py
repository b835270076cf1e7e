"""The contract of the snapshots port: on a real directory, on a disk in memory that can lose power, and in an object
store."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from millwheel.adapters.blob_cache import BlobCache
from millwheel.adapters.durable import read_whole
from millwheel.adapters.files import Files, PosixFiles
from millwheel.adapters.folder_space import FolderSpace
from millwheel.adapters.object_space import ObjectSpace
from millwheel.adapters.rocksdb_store import RocksStores
from millwheel.adapters.snapshot_files import FileSnapshots
from millwheel.adapters.snapshot_manifest import decode_manifest
from millwheel.adapters.snapshot_restoring import RestorePace
from millwheel.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    InvariantError,
    SetupError,
    UnavailableError,
)
from millwheel.ports import Manifest, StateStore, StateStores
from tests.fakes.faulty_files import Call, FaultyFiles, Killed, fail_when, kill_at
from tests.fakes.memory_disk import MemoryDisk
from tests.fakes.s3_server import Fault, S3Server
from tests.fakes.stores import MemoryStores

SHARD = "traffic-0"


def free() -> None:
    """A guard that lets everybody pass."""


@dataclass
class World:
    """A root on ``files`` or ``space``, and workers' stores in ``local``, which is on ``files``."""

    root: str
    files: Files
    stores: StateStores
    local: str
    space: ObjectSpace | None = None
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def snapshots(self, files: object = None) -> FileSnapshots:
        return FileSnapshots(self.root, cast("Files", files or self.files), self.space)

    def objects(self) -> ObjectSpace:
        return self.space or FolderSpace(self.root, self.files)

    def path(self) -> str:
        return f"{self.local}/{next(self.numbers)}"

    def publish(self, store: StateStore, token: int, commit: int, by: FileSnapshots | None = None) -> Manifest:
        path = self.path()
        store.checkpoint(path)
        return (by or self.snapshots()).publish(SHARD, token, commit, path, free)

    def content(self, manifest: Manifest | None = None) -> dict[bytes, bytes]:
        found = manifest or self.snapshots().latest(SHARD)
        assert found is not None
        path = self.path()
        self.snapshots().restore(found, path)
        store = self.stores.open(f"restored-{next(self.numbers)}", path)
        content = dict(store.scan(b""))
        store.close()
        return content

    def blobs(self) -> set[str]:
        names = self.objects().names(f"{self.root}/snapshots/{SHARD}")
        return {name for name in names if not name.startswith("manifest-")}

    def blob_path(self, manifest: Manifest, suffix: str) -> str:
        name = next(blob for file, (blob, _, _) in sorted(manifest.files.items()) if file.endswith(suffix))
        return f"{self.root}/snapshots/{SHARD}/{name}"

    def patch(self, path: str, change: Callable[[bytes], bytes]) -> None:
        data = change(self.objects().get(path))
        self.objects().delete(path)
        self.objects().create(path, data)


def memory_world() -> World:
    disk = MemoryDisk()
    return World("/root", disk, MemoryStores(disk, "/root/scratch"), "/root/scratch")


@pytest.fixture(params=("memory", "posix", "s3"))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "memory":
        return memory_world()
    local = str(tmp_path / "scratch")
    space = request.getfixturevalue("s3").space() if request.param == "s3" else None
    return World(space.root if space else str(tmp_path), PosixFiles(), RocksStores(local), local, space)


def filled(world: World, name: str = "mine", **entries: str) -> StateStore:
    store = world.stores.open(name, None)
    store.apply([(key.encode(), value.encode()) for key, value in entries.items()], [])
    return store


# --- publish and restore


def test_a_shard_without_snapshots_has_no_latest_and_nothing_to_collect(world: World) -> None:
    assert world.snapshots().latest(SHARD) is None
    assert world.snapshots().collect(SHARD) == 0


def test_what_was_published_is_the_latest_and_restores_to_the_same_store(world: World) -> None:
    manifest = world.publish(filled(world, a="1", b="2"), 1, 7)
    assert world.snapshots().latest(SHARD) == manifest
    assert (manifest.number, manifest.parent, manifest.token, manifest.last_commit) == (1, 0, 1, 7)
    assert world.content() == {b"a": b"1", b"b": b"2"}


def test_a_snapshot_can_be_restored_again_and_over_what_an_interrupted_restore_left(world: World) -> None:
    manifest = world.publish(filled(world, a="1"), 1, 1)
    path = world.path()
    for _ in range(2):
        world.snapshots().restore(manifest, path)
    assert world.stores.open("s", path).get(b"a") == b"1"
    assert world.content() == {b"a": b"1"}


def test_a_store_that_goes_on_from_a_restored_snapshot_never_changes_the_snapshot(world: World) -> None:
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
    assert {blob for blob, _, _ in manifest.files.values()} & {blob for blob, _, _ in later.files.values()}
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


# --- zombies


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
        world.snapshots().publish(SHARD, 1, 9, path, lambda: _once(lambda: world.publish(new, 2, 3)))
    assert world.content() == {b"a": b"new"}


def test_who_loses_the_race_to_an_older_owner_takes_the_next_number_and_the_right_parent(world: World) -> None:
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


def test_a_parent_that_a_zombie_superseded_and_collected_in_between_is_not_referred_to(world: World) -> None:
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


# --- collecting


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


# --- restoring without reading


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
def test_what_must_be_copied_is_checked_and_the_next_time_it_is_here(world: World, tmp_path: Path, copies: int) -> None:
    if isinstance(world.files, MemoryDisk):
        pytest.skip("the cache is on real files")
    manifest = world.publish(filled(world, **{f"k{n}": "v" * 100 for n in range(100)}), 1, 1)
    cache = BlobCache(str(tmp_path / "blobs"))
    space = Unshared(world.objects())
    snapshots = FileSnapshots(world.root, world.files, cast("ObjectSpace", space), RestorePace(copies, cache))
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


# --- damage


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
    world.objects().create(f"{world.root}/snapshots/other-1/manifest-{1:010d}.json", world.objects().get(source))
    with pytest.raises(CorruptionError, match="traffic-0"):
        world.snapshots().latest("other-1")


# --- crashes and failing disks, on the disk in memory


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # generators that die with the process
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
def test_a_disk_that_fails_once_fails_the_publication_and_the_next_one_works(call: str, number: int) -> None:
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
    assert world.files.identity(f"{path}/{table}") != world.files.identity(world.blob_path(manifest, ".sst"))
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
