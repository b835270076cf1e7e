"""The durable store of a simulated cluster: the real adapters over a disk in memory, or a model of them that is
quicker and has the same order of steps: a group is written first, and looks for the seal afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millwheel.adapters.durable import remove_tree
from millwheel.adapters.journal_files import FileJournals
from millwheel.adapters.snapshot_files import FileSnapshots
from millwheel.core.orders import Standing
from millwheel.errors import ConflictError, FencedError, UnavailableError
from millwheel.ports import Manifest
from tests.fakes.memory_disk import MemoryDisk
from tests.fakes.stores import MemoryStores
from tests.sim.disk import SimFiles, Trouble
from tests.sim.kernel import Simulation
from tests.sim.process import Process

ROOT = "/root"


class Storage(Protocol):
    """Where everything durable is, as each process sees it."""

    trouble: Trouble

    def journals(self, process: Process) -> Any: ...

    def snapshots(self, process: Process, root: str = ROOT) -> Any: ...

    def stores(self, process: Process) -> Any: ...

    def scratch(self, process: Process) -> str: ...

    def drop_checkpoint(self, path: str) -> None: ...

    def saved(self, place: str, shard: str, standing: Standing) -> dict[bytes, bytes]:
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
        """End a process at one of its next calls of the store; False where that is not simulated."""


class FileStorage:
    """The real journals and snapshots over one disk in memory."""

    def __init__(self, sim: Simulation, form: str, segment_bytes: int) -> None:
        self.trouble = Trouble()
        self._sim, self._form, self._segment_bytes = sim, form, segment_bytes
        self._disk = MemoryDisk()
        self._disk.make_dir(ROOT)
        self._files: dict[str, SimFiles] = {}

    def _of(self, process: Process) -> SimFiles:
        files = self._files.get(process.name)
        if files is None:
            files = self._files[process.name] = SimFiles(self._sim, process, self._disk, self.trouble)
        return files

    def journals(self, process: Process) -> FileJournals:
        return FileJournals(ROOT, self._form, self._segment_bytes, self._of(process))

    def snapshots(self, process: Process, root: str = ROOT) -> FileSnapshots:
        return FileSnapshots(root, self._of(process))

    def stores(self, process: Process) -> MemoryStores:
        return MemoryStores(self._disk, self.scratch(process))

    def scratch(self, process: Process) -> str:
        return f"{ROOT}/scratch/{process.name}"

    def drop_checkpoint(self, path: str) -> None:
        remove_tree(self._disk, path)

    def saved(self, place: str, shard: str, standing: Standing) -> dict[bytes, bytes]:
        snapshots = FileSnapshots(place, self._disk)
        manifest = snapshots.latest(shard)
        assert manifest is not None
        assert (manifest.token, manifest.last_commit) == (standing.token, standing.commit)
        path = f"{ROOT}/scratch/saved-{shard}"
        snapshots.restore(manifest, path)
        return dict(MemoryStores(self._disk, f"{ROOT}/scratch/opened").open(shard, path).scan(b""))

    def install(self, shard: str, standing: Standing, content: dict[bytes, bytes]) -> None:
        raise AssertionError("a second cluster has the model of a store")

    def power_cut(self) -> None:
        self._disk.crash(choose=lambda n: self._sim.delay(0, n))

    def flip_bit(self) -> str:
        paths = [path for part in ("journal", "snapshots") for path in self._paths(f"{ROOT}/{part}")]
        if not paths:
            return ""
        path = self._sim.rng.choice(paths)
        self._disk.flip_bit(path, self._sim.rng.randrange(1 << 20))
        return path

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


# --- the model


class ModelStore:
    """A local store: a dict that dies with its worker."""

    def __init__(self, data: dict[bytes, bytes], checkpoints: dict[str, dict[bytes, bytes]]) -> None:
        self.data = data
        self._checkpoints = checkpoints

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [*map(self.data.get, keys)]

    def apply(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self.data.update(puts)
        for key in deletes:
            self.data.pop(key, None)

    def delete_range(self, begin: bytes, end: bytes) -> None:
        for key in [key for key in self.data if begin <= key < end]:
            del self.data[key]

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.data.items() if key.startswith(prefix)))

    def checkpoint(self, path: str) -> None:
        self._checkpoints[path] = dict(self.data)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class _Journal:
    groups: dict[int, list[bytes]] = field(default_factory=dict)
    written: int = 0
    sealed_end: int = -1


@dataclass(slots=True)
class _Shared:
    journals: dict[str, _Journal] = field(default_factory=dict)
    snapshots: dict[str, list[tuple[Manifest, dict[bytes, bytes]]]] = field(default_factory=dict)
    checkpoints: dict[str, dict[bytes, bytes]] = field(default_factory=dict)


class ModelStorage:
    """Journals, snapshots and local stores as dicts. One group is one segment, so that collection is exercised
    often."""

    def __init__(self, sim: Simulation) -> None:
        self.trouble = Trouble()
        self._sim = sim
        self._shared = _Shared()

    def journals(self, process: Process) -> ModelJournals:
        return ModelJournals(self._sim, process, self._shared)

    def snapshots(self, process: Process, root: str = ROOT) -> ModelSnapshots:
        return ModelSnapshots(self._sim, process, self._shared, root)

    def stores(self, process: Process) -> ModelStores:
        return ModelStores(self._shared)

    def scratch(self, process: Process) -> str:
        return process.name

    def drop_checkpoint(self, path: str) -> None:
        self._shared.checkpoints.pop(path, None)

    def saved(self, place: str, shard: str, standing: Standing) -> dict[bytes, bytes]:
        manifest, content = max(self._shared.snapshots[f"{place}:{shard}"], key=lambda pair: pair[0].number)
        assert (manifest.token, manifest.last_commit) == (standing.token, standing.commit)
        return content

    def install(self, shard: str, standing: Standing, content: dict[bytes, bytes]) -> None:
        manifest = Manifest(shard, 1, 0, standing.token, standing.commit, {})
        self._shared.snapshots[shard] = [(manifest, dict(content))]

    def power_cut(self) -> None:
        pass

    def flip_bit(self) -> str:
        return ""

    def check_snapshot(self, shard: str) -> None:
        pass

    def latest(self, shard: str) -> Manifest | None:
        return max((m for m, _ in self._shared.snapshots.get(shard, [])), key=lambda m: m.token, default=None)

    def kill_in_a_call(self, process: Process, calls: int) -> bool:
        return False


@dataclass(slots=True)
class ModelStores:
    _shared: _Shared

    def open(self, shard: str, checkpoint: str | None) -> ModelStore:
        checkpoints = self._shared.checkpoints
        return ModelStore(dict(checkpoints.pop(checkpoint)) if checkpoint is not None else {}, checkpoints)


@dataclass(slots=True)
class ModelJournals:
    """The journals port of one process. ``upto`` counts groups."""

    _sim: Simulation
    _process: Process
    _shared: _Shared

    def _wait(self, low: int, high: int) -> None:
        self._process.check()
        self._process.sleep(self._sim.delay(low, high))
        self._process.check()

    def create(self, incarnation: str) -> ModelWriter:
        if incarnation in self._shared.journals:
            raise FencedError(incarnation)
        self._shared.journals[incarnation] = _Journal()
        return ModelWriter(self, incarnation)

    def append(self, incarnation: str, entries: Sequence[bytes]) -> int:
        journal = self._shared.journals[incarnation]
        if entries:
            self._wait(50, 1500)
            journal.written += 1
            journal.groups[journal.written] = list(entries)
        written = journal.written
        self._wait(10, 300)
        if journal.sealed_end >= 0:
            raise FencedError(f"{incarnation} is sealed")
        return written

    def seal(self, incarnation: str) -> int:
        self._wait(50, 2000)
        journal = self._shared.journals.setdefault(incarnation, _Journal())
        if journal.sealed_end < 0:
            journal.sealed_end = journal.written
        return journal.sealed_end

    def read(self, incarnation: str, upto: int) -> Iterator[bytes]:
        self._wait(100, 4000)
        journal = self._shared.journals[incarnation]
        for number in sorted(journal.groups):
            if upto < 0 or number <= upto:
                yield from journal.groups.get(number, [])

    def incarnations(self) -> Sequence[str]:
        return [name for name, journal in self._shared.journals.items() if journal.groups or journal.sealed_end < 0]

    def collect(self, incarnation: str) -> None:
        self._wait(50, 2000)
        self._shared.journals[incarnation].groups.clear()

    def segments(self, incarnation: str) -> list[int]:
        return sorted(self._shared.journals[incarnation].groups)

    def delete_segment(self, incarnation: str, segment: int) -> None:
        self._shared.journals[incarnation].groups.pop(segment, None)


@dataclass(slots=True)
class ModelWriter:
    _journals: ModelJournals
    _incarnation: str

    def commit(self, entries: Sequence[bytes]) -> int:
        return self._journals.append(self._incarnation, entries)

    def segments(self) -> Sequence[int]:
        return self._journals.segments(self._incarnation)

    def delete_segment(self, segment: int) -> None:
        self._journals.delete_segment(self._incarnation, segment)

    def close(self) -> None:
        pass


@dataclass(slots=True)
class ModelSnapshots:
    """The snapshots port of one process."""

    _sim: Simulation
    _process: Process
    _shared: _Shared
    _root: str = ROOT

    def _wait(self, low: int, high: int) -> None:
        self._process.check()
        self._process.sleep(self._sim.delay(low, high))
        self._process.check()

    def _place(self, shard: str) -> str:
        return shard if self._root == ROOT else f"{self._root}:{shard}"

    def latest(self, shard: str) -> Manifest | None:
        found = self._shared.snapshots.get(self._place(shard), [])
        return max((m for m, _ in found), key=lambda m: (m.token, m.last_commit, m.number), default=None)

    def publish(self, shard: str, token: int, last_commit: int, checkpoint: str, guard: Callable[[], None]) -> Manifest:
        self._wait(300, 20_000)
        guard()
        parent = self.latest(shard)
        if parent is not None and parent.token > token:
            raise ConflictError(shard)
        manifests = self._shared.snapshots.setdefault(self._place(shard), [])
        manifest = Manifest(
            shard, parent.number + 1 if parent else 1, parent.number if parent else 0, token, last_commit, {}
        )
        manifests.append((manifest, self._shared.checkpoints.pop(checkpoint)))
        return manifest

    def restore(self, manifest: Manifest, path: str) -> None:
        self._wait(200, 10_000)
        kept = self._shared.snapshots[self._place(manifest.shard)]
        found = next((dict(data) for m, data in kept if m.number == manifest.number), None)
        if found is None:
            raise UnavailableError(f"snapshot {manifest.number} of {manifest.shard} was collected")
        self._shared.checkpoints[path] = found

    def collect(self, shard: str) -> int:
        kept = self._shared.snapshots.get(self._place(shard), [])
        gone = sorted(kept, key=lambda pair: (pair[0].token, pair[0].last_commit, pair[0].number))[:-2]
        kept[:] = [pair for pair in kept if pair not in gone]
        return len(gone)
