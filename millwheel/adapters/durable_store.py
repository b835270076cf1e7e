"""The storage, journals and snapshots of a root, by its address."""

from __future__ import annotations

from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.snapshots.blobs import cache_beside
from millwheel.adapters.snapshots.restore import RestorePace
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.bucket import BucketSpace
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.adapters.spaces.root_address import in_bucket, parse_root

_COPIES = 8  # files that are copied side by side when a snapshot is restored


def open_space(root: str) -> ObjectSpace:
    """The space at a path, or in a bucket (``s3://bucket/prefix``); nothing is asked of it yet.
    Raises SetupError."""
    return BucketSpace(parse_root(root)) if in_bucket(root) else FolderSpace(root)


def open_journals(root: str) -> FileJournals:
    """The journals of a root, wherever it is."""
    return FileJournals(root, space=open_space(root))


def open_snapshots(root: str, scratch: str = "") -> FileSnapshots:
    """The snapshots of a root, wherever it is. Copied files are cached beside ``scratch`` for all
    workers there."""
    cache = cache_beside(scratch) if scratch else None
    return FileSnapshots(root, space=open_space(root), pace=RestorePace(_COPIES, cache))
