"""A model of the durable store that is quicker than the real one, and has the same order of steps:
a group is written first, and looks for the seal afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from millwheel.adapters.ports import Followed, Manifest
from millwheel.control.savepoints.orders import Standing
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.errors import ConflictError, CorruptionError, FencedError, UnavailableError
from tests.fakes.plain_storage import Journal, SimStore
from tests.sim.disk import Trouble
from tests.sim.kernel import Simulation
from tests.sim.process import Process
from tests.sim.storage import ROOT


@dataclass(slots=True)
class _Shared:
    journals: dict[str, Journal] = field(default_factory=dict)
    snapshots: dict[str, list[tuple[Manifest, dict[bytes, bytes]]]] = field(default_factory=dict)
    checkpoints: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    notes: dict[str, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))


class ModelStorage:
    """Journals, snapshots and local stores as dicts. One group is one segment, so that collection
    is exercised often."""

    def __init__(self, sim: Simulation) -> None:
        self.trouble = Trouble()
        self._sim = sim
        self._shared = _Shared()

    def journals(self, process: Process) -> ModelJournals:
        return ModelJournals(self._sim, process, self._shared)

    def snapshots(self, process: Process, root: str = ROOT) -> ModelSnapshots:
        return ModelSnapshots(self._sim, process, self._shared, root)

    def notes(self, process: Process) -> ModelNotes:
        return ModelNotes(self._sim, process, self._shared)

    def stores(self, process: Process) -> ModelStores:
        return ModelStores(self._shared)

    def scratch(self, process: Process) -> str:
        return process.name

    def drop_checkpoint(self, path: str) -> None:
        self._shared.checkpoints.pop(path, None)

    def saved(self, index: str, shard: str, standing: Standing) -> dict[bytes, bytes]:
        manifest, content = max(
            self._shared.snapshots[f"{index}:{shard}"], key=lambda pair: pair[0].number
        )
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
        return max(
            (m for m, _ in self._shared.snapshots.get(shard, [])),
            key=lambda m: m.token,
            default=None,
        )

    def kill_in_a_call(self, process: Process, calls: int) -> bool:
        return False


@dataclass(slots=True)
class ModelNotes:
    """Notes about calls that did not return, as one process sees them."""

    _sim: Simulation
    _process: Process
    _shared: _Shared

    def write(self, node: str, data: bytes) -> None:
        self._wait()
        self._shared.notes[node][f"{self._sim.number()}"] = data

    def read(self, node: str) -> dict[str, bytes]:
        self._wait()
        return dict(self._shared.notes[node])

    def remove(self, node: str, name: str) -> None:
        self._wait()
        self._shared.notes[node].pop(name, None)

    def _wait(self) -> None:
        self._process.sleep(self._sim.delay(50, 2_000))
        self._process.check()


@dataclass(slots=True)
class ModelStores:
    _shared: _Shared

    def open(self, shard: str, checkpoint: str | None) -> SimStore:
        checkpoints = self._shared.checkpoints
        return SimStore(
            dict(checkpoints.pop(checkpoint)) if checkpoint is not None else {}, checkpoints
        )


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
        self._shared.journals[incarnation] = Journal()
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
        journal = self._shared.journals.setdefault(incarnation, Journal())
        if journal.sealed_end < 0:
            journal.sealed_end = journal.written
        return journal.sealed_end

    def read(
        self, incarnation: str, upto: int, since: JournalPosition | None = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        self._wait(100, 4000)
        journal = self._shared.journals[incarnation]
        first = since.group if since is not None else 0
        if upto >= 0 and first > upto + 1:
            raise CorruptionError(
                f"{incarnation} was followed to {first}, but it was sealed at {upto}"
            )
        if first and any(number not in journal.groups for number in range(first, upto + 1)):
            raise FencedError(f"{incarnation}: groups behind {first} were collected")
        for number in sorted(journal.groups):
            if number >= first and (upto < 0 or number <= upto):
                yield from (
                    entry for entry in journal.groups.get(number, []) if entry.startswith(prefix)
                )

    def follow(self, incarnation: str, since: JournalPosition | None) -> Followed:
        """A group counts once there is another one behind it."""
        self._wait(20, 1000)
        journal = self._shared.journals[incarnation]
        first = since.group if since is not None else min(journal.groups, default=1)
        certain = range(first, max(first, journal.written))
        if any(number not in journal.groups for number in certain):
            raise FencedError(f"{incarnation}: groups behind {first} were collected")
        return Followed(
            [journal.groups[number] for number in certain],
            JournalPosition(certain.stop, 0, certain.stop),
        )

    def incarnations(self) -> Sequence[str]:
        return [
            name
            for name, journal in self._shared.journals.items()
            if journal.groups or journal.sealed_end < 0
        ]

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

    def _index(self, shard: str) -> str:
        return shard if self._root == ROOT else f"{self._root}:{shard}"

    def latest(self, shard: str) -> Manifest | None:
        found = self._shared.snapshots.get(self._index(shard), [])
        return max(
            (m for m, _ in found), key=lambda m: (m.token, m.last_commit, m.number), default=None
        )

    def publish(
        self, shard: str, token: int, last_commit: int, checkpoint: str, guard: Callable[[], None]
    ) -> Manifest:
        self._wait(300, 20_000)
        guard()
        parent = self.latest(shard)
        if parent is not None and parent.token > token:
            raise ConflictError(shard)
        manifests = self._shared.snapshots.setdefault(self._index(shard), [])
        manifest = Manifest(
            shard,
            parent.number + 1 if parent else 1,
            parent.number if parent else 0,
            token,
            last_commit,
            {},
        )
        manifests.append((manifest, self._shared.checkpoints.pop(checkpoint)))
        return manifest

    def restore(self, manifest: Manifest, path: str) -> None:
        self._wait(200, 10_000)
        kept = self._shared.snapshots.get(self._index(manifest.shard), [])
        found = next((dict(data) for m, data in kept if m.number == manifest.number), None)
        if found is None:
            raise UnavailableError(f"snapshot {manifest.number} of {manifest.shard} was collected")
        self._shared.checkpoints[path] = found

    def collect(self, shard: str) -> int:
        kept = self._shared.snapshots.get(self._index(shard), [])
        gone = sorted(kept, key=lambda pair: (pair[0].token, pair[0].last_commit, pair[0].number))[
            :-2
        ]
        kept[:] = [pair for pair in kept if pair not in gone]
        return len(gone)

    def shards(self) -> list[str]:
        self._wait(10, 1_000)
        return sorted(index for index in self._shared.snapshots if ":" not in index)

    def drop(self, shard: str) -> int:
        self._wait(10, 1_000)
        return len(self._shared.snapshots.pop(self._index(shard), []))
