"""From the address of a root to its kind of storage, and to the journals and snapshots there."""

from __future__ import annotations

from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.snapshots.blob_cache import cache_beside
from millwheel.adapters.snapshots.restoring import RestorePace
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.object_space import ObjectSpace
from millwheel.adapters.spaces.s3_address import is_s3, parse_s3
from millwheel.errors import SetupError

_COPIES = 8  # files that are copied side by side when a snapshot is restored


def open_space(root: str) -> ObjectSpace:
    """The space at a path, or at ``s3://bucket/prefix``; nothing is asked of it yet. Raises SetupError."""
    if not is_s3(root):
        return FolderSpace(root)
    address = parse_s3(root)
    try:
        from millwheel.adapters.spaces.s3 import S3Space
    except ImportError as ex:
        raise SetupError(f"The root {address.root} needs obstore: pip install 'millwheel-spark[s3]'") from ex
    return S3Space(address)


def open_journals(root: str) -> FileJournals:
    """The journals of a root, wherever it is."""
    return FileJournals(root, space=open_space(root))


def open_snapshots(root: str, scratch: str = "") -> FileSnapshots:
    """The snapshots of a root, wherever it is. Copied files are cached beside ``scratch`` for all workers there."""
    cache = cache_beside(scratch) if scratch else None
    return FileSnapshots(root, space=open_space(root), pace=RestorePace(_COPIES, cache))
