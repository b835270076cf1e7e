"""Snapshots below ``root/snapshots``: one folder for each shard, with manifests and the blobs they
name.

The number of a manifest is a compare-and-set: it is created if absent, one above all others. A
publisher that loses looks again, so a manifest never has a newer one as its past, and tokens never
fall from one number to the next. Therefore a blob that the newest manifest does not reach, and that
is older than it, can never be referred to again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from millwheel.adapters.ports import Manifest
from millwheel.adapters.snapshots.blobs import IMMUTABLE, Digests
from millwheel.adapters.snapshots.manifest import (
    Rank,
    blob_prefix,
    blob_rank,
    decode_manifest,
    encode_manifest,
    manifest_name,
    manifest_number,
    rank,
)
from millwheel.adapters.snapshots.restore import Blob, RestorePace, Restoring
from millwheel.adapters.spaces.durable import make_dirs, remove_tree
from millwheel.adapters.spaces.files import Files, PosixFiles, explaining
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import ShardName, Token
from millwheel.errors import (
    ConflictError,
    CorruptionError,
    InvariantError,
    SetupError,
    UnavailableError,
    invariant,
)

KEPT_MANIFESTS = 2  # the newest, and one that may be being restored
_TRIES = 20  # attempts while others publish or collect the same shard
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class FileSnapshots:
    """The snapshots port on shared storage: a directory, or ``space``. For any thread.

    ``files`` is the file system of the checkpoints.
    """

    def __init__(
        self,
        root: str,
        files: Files | None = None,
        space: ObjectSpace | None = None,
        pace: RestorePace = RestorePace(),  # noqa: B008  (a frozen value)
    ) -> None:
        self._files = files or PosixFiles()
        self._space = space or FolderSpace(root, self._files)
        self._path = f"{self._space.root}/snapshots"
        # A checkpoint links the tables that the last one had, and those it was restored from.
        self._digests = Digests(self._files)
        self._restoring = Restoring(self._space, self._files, self._digests, pace)
        self._prepared: set[str] = set()
        self._durable: dict[str, int] = {}  # by folder, the newest durable manifest

    # --- manifests

    def latest(self, shard: ShardName) -> Manifest | None:
        """See :class:`millwheel.adapters.ports.Snapshots`."""
        folder = self._folder(shard)
        with explaining(f"read the snapshots of {shard} in {folder}"):
            manifest = max(self._manifests(folder, shard), key=rank, default=None)
            if manifest is not None:
                self._make_last(folder, manifest)
            return manifest

    def _make_last(self, folder: str, manifest: Manifest) -> None:
        """Make its name durable: its publisher may have died before, and journals are deleted
        because of it."""
        if manifest.number > self._durable.get(folder, 0):
            self._space.settle(folder)
            self._durable[folder] = manifest.number

    def _manifests(self, folder: str, shard: ShardName) -> list[Manifest]:
        for _ in range(_TRIES):
            # collected between the listing and the reading: list again
            with suppress(FileNotFoundError):
                return [
                    self._manifest(folder, name, shard)
                    for name in self._names(folder)
                    if manifest_number(name)
                ]
        raise UnavailableError(
            f"the manifests in {folder} vanish while they are read; look at the file system"
        )

    def _names(self, folder: str) -> list[str]:
        return sorted(self._space.names(folder))

    def _manifest(self, folder: str, name: str, shard: ShardName) -> Manifest:
        data = self._space.get(f"{folder}/{name}")
        try:
            manifest = decode_manifest(data)
            if (manifest.shard, manifest.number) != (shard, manifest_number(name)):
                raise CorruptionError(f"it is number {manifest.number} of {manifest.shard}")
        except CorruptionError as ex:
            raise CorruptionError(
                f"the manifest {folder}/{name} cannot be used: {ex}. Bring it back from a copy; an"
                " older snapshot would lose what was committed since, so none is taken"
            ) from ex
        return manifest

    # --- publishing

    def publish(
        self,
        shard: ShardName,
        token: Token,
        last_commit: int,
        checkpoint: str,
        guard: Callable[[], None],
    ) -> Manifest:
        """See :class:`millwheel.adapters.ports.Snapshots`. Publishing the same commit again returns
        the existing snapshot."""
        folder = self._folder(shard)
        own_rank = Rank(token, last_commit)
        prefix = blob_prefix(own_rank)
        with explaining(f"publish a snapshot of {shard} in {folder}"):
            if folder not in self._prepared:  # two syncs, for nothing new after the first time
                self._space.prepare(self._path)
                self._space.prepare(folder)
                self._prepared.add(folder)
            uploaded: dict[str, Blob] = {}
            for _ in range(_TRIES):
                manifests = self._manifests(folder, shard)
                parent = max(manifests, key=rank, default=None)
                if parent is not None and rank(parent) >= own_rank:
                    self._make_last(folder, parent)
                    return _published_already(parent, own_rank)
                files = self._upload(folder, prefix, checkpoint, parent, uploaded)
                number = max((manifest.number for manifest in manifests), default=0) + 1
                manifest = Manifest(
                    shard, number, parent.number if parent else 0, token, last_commit, files
                )
                # As late as possible: an owner that was fenced during its upload must not publish.
                guard()
                if self._create(folder, prefix, manifest):
                    return manifest
        raise UnavailableError(
            f"{_TRIES} others published snapshots of {shard} while we tried; try again"
        )

    def _create(self, folder: str, prefix: str, manifest: Manifest) -> bool:
        data = encode_manifest(manifest)
        return self._space.create(
            f"{folder}/{manifest_name(manifest.number)}", data, f"{prefix}manifest"
        )

    def _upload(
        self,
        folder: str,
        prefix: str,
        checkpoint: str,
        parent: Manifest | None,
        uploaded: dict[str, Blob],
    ) -> Mapping[str, Blob]:
        """Every file of the checkpoint as a durable blob: the parent's where it has the same, else
        one of ours.

        Only the parent's, because everything older may be collected at any time. ``uploaded`` holds
        the blobs of earlier tries.
        """
        files: dict[str, Blob] = {}
        any_new = False
        for name in sorted(self._files.list_dir(checkpoint)):
            blob = self._reusable(
                f"{checkpoint}/{name}", parent.files.get(name) if parent else None
            )
            if blob is None and name not in uploaded:
                uploaded[name] = self._uploaded(f"{checkpoint}/{name}", folder, f"{prefix}{name}")
                any_new = True
            files[name] = blob or uploaded[name]
        if any_new:
            # Before the manifest that names them: a power cut would leave a snapshot without blobs.
            self._space.settle(folder)
        return files

    def _reusable(self, path: str, blob: Blob | None) -> Blob | None:
        # RocksDB's other files keep their names when their content changes.
        if blob is None or not path.endswith(IMMUTABLE):
            return None
        identity = self._files.identity(path)
        return (
            blob
            if identity.size == blob[1] and self._digests.of(path, identity) == blob[2]
            else None
        )

    def _uploaded(self, source: str, folder: str, name: str) -> Blob:
        held = self._space.put_file(
            source, f"{folder}/{name}", immutable=source.endswith(IMMUTABLE)
        )
        identity = self._files.identity(held)
        blob = (name, identity.size, self._digests.of(held, identity))
        if held == source and source.endswith(IMMUTABLE):
            self._restoring.keep(source, blob)
        return blob

    # --- restoring

    def restore(self, manifest: Manifest, path: str) -> None:
        """See :class:`millwheel.adapters.ports.Snapshots`. Remains of an interrupted restore at
        ``path`` are removed first."""
        folder = self._folder(manifest.shard)
        with explaining(f"restore a snapshot of {manifest.shard} to {path}"):
            remove_tree(self._files, path)
            make_dirs(self._files, path, durable=False)
            try:
                self._restoring.bring(manifest, folder, path)
            except (CorruptionError, FileNotFoundError) as ex:
                # Parts of a checkpoint must not be opened as a store.
                remove_tree(self._files, path)
                self._refuse_collected(folder, manifest)
                raise CorruptionError(
                    f"snapshot {manifest.number} of {manifest.shard} cannot be used: {ex}. Bring"
                    " the file back from a copy; an older snapshot would lose what was committed"
                    " since, so none is taken"
                ) from ex

    def _refuse_collected(self, folder: str, manifest: Manifest) -> None:
        """Manifests are deleted before their blobs, so an existing manifest should have all its
        blobs."""
        if not self._space.exists(f"{folder}/{manifest_name(manifest.number)}"):
            raise UnavailableError(
                f"snapshot {manifest.number} of {manifest.shard} was collected while it was"
                " restored; take the newest one"
            )

    def unverified(self) -> Iterator[None]:
        """See :class:`millwheel.adapters.ports.Snapshots`."""
        with explaining("verify the restored files"):
            yield from self._restoring.unverified()

    # --- collecting

    def collect(self, shard: ShardName) -> int:
        """See :class:`millwheel.adapters.ports.Snapshots`. Keeps the newest manifests, their
        blobs, and every blob that is not older than the newest manifest, for that may be an upload
        on its way."""
        folder = self._folder(shard)
        with explaining(f"collect the snapshots of {shard} in {folder}"):
            names = self._names(folder)
            manifests = sorted(self._manifests(folder, shard), key=rank)
            if not manifests:
                return 0
            newest = manifests[-KEPT_MANIFESTS:]
            keep = {manifest_name(manifest.number) for manifest in newest}
            keep.update(blob for manifest in newest for blob, _, _ in manifest.files.values())
            old = [name for name in names if name not in keep and _is_older(name, newest[-1])]
            # A restore may be reading it, and a snapshot that lacks a blob is not a snapshot.
            invariant(keep.isdisjoint(old), f"{shard}: blobs of its newest snapshot would go")
            return self._delete(folder, old)

    def shards(self) -> list[ShardName]:
        """See :class:`millwheel.adapters.ports.Snapshots`."""
        with explaining(f"list {self._path}"):
            return [ShardName(name) for name in self._names(self._path) if _NAME.fullmatch(name)]

    def drop(self, shard: ShardName) -> int:
        """See :class:`millwheel.adapters.ports.Snapshots`."""
        folder = self._folder(shard)
        with explaining(f"delete the snapshots of {shard} in {folder}"):
            return self._delete(folder, self._names(folder))

    def _delete(self, folder: str, names: Sequence[str]) -> int:
        """Manifests are deleted first, so an existing one always finds its blobs."""
        for name in sorted(names, key=lambda name: not manifest_number(name)):
            self._space.delete(f"{folder}/{name}")
        return len(names)

    def _folder(self, shard: ShardName) -> str:
        if not _NAME.fullmatch(shard):
            raise SetupError(
                f"{shard!r} cannot name a shard: use letters, digits, '_', '-' and '.'"
            )
        return f"{self._path}/{shard}"


def _published_already(parent: Manifest, own_rank: Rank) -> Manifest:
    """The outcome when the newest snapshot is not older than ours."""
    if rank(parent) == own_rank:
        return parent
    # A zombie must not take its snapshot for published: it would delete segments that later
    # owners replay.
    if Lease(parent.token).admits(own_rank.token):
        raise InvariantError(
            f"shard {parent.shard}: its owner publishes commit {own_rank.last_commit} after commit"
            f" {parent.last_commit}"
        )
    raise ConflictError(
        f"shard {parent.shard}: snapshot {parent.number} was published under token {parent.token},"
        f" ours is {own_rank.token}: the shard has a newer owner"
    )


def _is_older(name: str, newest: Manifest) -> bool:
    number, made_for = manifest_number(name), blob_rank(name)
    return 0 < number < newest.number or (made_for is not None and made_for < rank(newest))
