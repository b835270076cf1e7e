"""The durable store of a simulated cluster: the real adapters over a disk in memory."""

from __future__ import annotations

from typing import Any, Protocol

from millwheel.adapters.journal.folder import SEALED_END
from millwheel.adapters.journal.journals import FileJournals
from millwheel.adapters.ports import Manifest
from millwheel.adapters.snapshots.snapshots import FileSnapshots
from millwheel.adapters.spaces.durable import read_whole, remove_tree
from millwheel.adapters.spaces.folder import FolderSpace
from millwheel.adapters.spaces.root_notes import HangNotes
from millwheel.adapters.stores.growing_store import GrowingStores
from millwheel.control.savepoints.orders import Standing
from millwheel.core.formats.journal_segment import decode_header, valid_prefix
from millwheel.errors import CorruptionError
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores
from tests.sim.disk import SimFiles, Trouble
from tests.sim.kernel import Simulation
from tests.sim.process import Process

ROOT = "/root"
_SMALL_BYTES = 700  # about half of the shards grow beyond it, at any moment of their lives
_SHARED_BYTES = 10_000  # and a few of these stay in memory


class Storage(Protocol):
    """Where everything durable is, as each process sees it."""

    trouble: Trouble

    def journals(self, process: Process) -> Any: ...

    def snapshots(self, process: Process, root: str = ROOT) -> Any: ...

    def stores(self, process: Process) -> Any: ...

    def notes(self, process: Process) -> Any:
        """Where notes about calls that did not return are."""

    def scratch(self, process: Process) -> str: ...

    def drop_checkpoint(self, path: str) -> None: ...

    def saved(self, index: str, shard: str, standing: Standing) -> dict[bytes, bytes]:
        """What a savepoint holds of a shard."""

    def install(self, shard: str, standing: Standing, content: dict[bytes, bytes]) -> None:
        """Let a new cluster find a snapshot."""

    def power_cut(self) -> None:
        """What was not synced is gone, but for as much of it as chance lets survive."""

    def flip_bit(self) -> str:
        """Damage something durable; what it was, "" when there is nothing."""

    def check_snapshot(self, shard: str) -> None:
        """Raise CorruptionError when the newest snapshot of a shard cannot be restored."""

    def latest(self, shard: str) -> Manifest | None:
        """The newest snapshot there is, whoever knows of it."""

    def kill_in_a_call(self, process: Process, calls: int) -> bool:
        """End a process at one of its next calls of the store; False where that is not
        simulated."""


class FileStorage:
    """The real journals and snapshots over one disk in memory."""

    def __init__(self, sim: Simulation, form: str, segment_bytes: int, room: int) -> None:
        self.trouble = Trouble()
        self._sim, self._form, self._segment_bytes, self._room = sim, form, segment_bytes, room
        self._disk = MemoryDisk()
        self._disk.make_dir(ROOT)
        self._files: dict[str, SimFiles] = {}

    def _of(self, process: Process) -> SimFiles:
        files = self._files.get(process.name)
        if files is None:
            files = self._files[process.name] = SimFiles(
                self._sim, process, self._disk, self.trouble
            )
        return files

    def journals(self, process: Process) -> FileJournals:
        return FileJournals(
            ROOT, self._form, self._segment_bytes, self._of(process), room_bytes=self._room
        )

    def snapshots(self, process: Process, root: str = ROOT) -> FileSnapshots:
        return FileSnapshots(root, self._of(process))

    def notes(self, process: Process) -> HangNotes:
        return HangNotes(FolderSpace(ROOT, self._of(process)))

    def stores(self, process: Process) -> GrowingStores:
        return self._stores(self.scratch(process))

    def _stores(self, folder: str) -> GrowingStores:
        return GrowingStores(
            MemoryStores(self._disk, folder), self._disk, _SMALL_BYTES, _SHARED_BYTES
        )

    def scratch(self, process: Process) -> str:
        return f"{ROOT}/scratch/{process.name}"

    def drop_checkpoint(self, path: str) -> None:
        remove_tree(self._disk, path)

    def saved(self, index: str, shard: str, standing: Standing) -> dict[bytes, bytes]:
        snapshots = FileSnapshots(index, self._disk)
        manifest = snapshots.latest(shard)
        assert manifest is not None
        assert (manifest.token, manifest.last_commit) == (standing.token, standing.commit)
        path = f"{ROOT}/scratch/saved-{shard}"
        snapshots.restore(manifest, path)
        return dict(self._stores(f"{ROOT}/scratch/opened").open(shard, path).scan(b""))

    def install(self, shard: str, standing: Standing, content: dict[bytes, bytes]) -> None:
        raise AssertionError("a second cluster has the model of a store")

    def power_cut(self) -> None:
        self._disk.crash(choose=lambda n: self._sim.delay(0, n))

    def flip_bit(self) -> str:
        paths = [
            path
            for part in ("journal", "snapshots", "hangs")
            for path in self._paths(f"{ROOT}/{part}")
        ]
        if not paths:
            return ""
        path, bit = self._sim.rng.choice(paths), self._sim.rng.randrange(1 << 20)
        if self._may_be_torn(path):
            below = self._told_from_torn(read_whole(self._disk, path))
            if not below:
                return ""
            bit %= 8 * below
        self._disk.flip_bit(path, bit)
        return path

    def _may_be_torn(self, path: str) -> bool:
        """True in a journal that may still be written to, where the end may be a write that was
        torn."""
        folder = path.rpartition("/")[0]
        return (
            path.endswith(".log")
            and self._form == "append"
            and not self._disk.exists(f"{folder}/{SEALED_END}")
        )

    @staticmethod
    def _told_from_torn(segment: bytes) -> int:
        """Damage before this byte cannot be a torn write, because a whole group comes behind it."""
        try:
            bodies = valid_prefix(segment, decode_header(segment)).bodies
        except CorruptionError:
            return 0
        return bodies[-2][1] if len(bodies) > 1 else 0

    def _paths(self, below: str) -> list[str]:
        return self._disk.paths(below) if self._disk.exists(below) else []

    def check_snapshot(self, shard: str) -> None:
        snapshots = FileSnapshots(ROOT, self._disk)
        manifest = snapshots.latest(shard)
        if manifest is not None:
            path = f"{ROOT}/scratch/check"
            snapshots.restore(manifest, path)
            for _ in snapshots.unverified():
                pass
            remove_tree(self._disk, path)

    def latest(self, shard: str) -> Manifest | None:
        return FileSnapshots(ROOT, self._disk).latest(shard)

    def kill_in_a_call(self, process: Process, calls: int) -> bool:
        self._of(process).kill_after(calls)
        return True
