"""Roots with snapshots, for the tests of this folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from millwheel.adapters.ports import Manifest, StateStore, StateStores
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.files import Files
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores

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

    def publish(
        self, store: StateStore, token: int, commit: int, by: FileSnapshots | None = None
    ) -> Manifest:
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
        name = next(
            blob for file, (blob, _, _) in sorted(manifest.files.items()) if file.endswith(suffix)
        )
        return f"{self.root}/snapshots/{SHARD}/{name}"

    def patch(self, path: str, change: Callable[[bytes], bytes]) -> None:
        data = change(self.objects().get(path))
        self.objects().delete(path)
        self.objects().create(path, data)


def memory_world() -> World:
    disk = MemoryDisk()
    return World("/root", disk, MemoryStores(disk, "/root/scratch"), "/root/scratch")


def filled(world: World, name: str = "mine", **entries: str) -> StateStore:
    store = world.stores.open(name, None)
    store.apply([(key.encode(), value.encode()) for key, value in entries.items()], [])
    return store
