"""The whole durable store of a cluster on one disk in memory.

Journals and snapshots are the real adapters over
:class:`millwheel.tools.testing.memory.disk.MemoryDisk`, so all findings of a simulation about the
order of writes, syncs and seals hold for the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.files import Files
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores

ROOT = "/root"


@dataclass(slots=True)
class MemoryStorage:
    """One disk for all processes. ``crash`` is a power failure; a process that dies alone only
    loses its objects.

    Pass ``files`` to give one process a disk with faults of its own (a ``FaultyFiles`` over the
    same disk).
    """

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    segment_bytes: int = 4096

    def journals(self, form: str = "append", files: Files | None = None) -> FileJournals:
        return FileJournals(ROOT, form, self.segment_bytes, files or self.disk)

    def snapshots(self, files: Files | None = None) -> FileSnapshots:
        return FileSnapshots(ROOT, files or self.disk)

    def stores(self, worker: str, files: Files | None = None) -> MemoryStores:
        """Local stores below the scratch folder of one worker."""
        return MemoryStores(files or self.disk, f"{ROOT}/scratch/{worker}")

    def crash(self, lose_unsynced: bool = True) -> None:
        """The power fails; unsynced data is lost."""
        self.disk.crash(lose_unsynced)
