"""A durable store of dicts for unit tests: journals, snapshots and local stores in memory, with the
real order of steps: a group is written first, and looks for the seal afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from millwheel.adapters.ports import Followed, Manifest
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.errors import ConflictError, FencedError

CHECKPOINTS: dict[str, dict[bytes, bytes]] = {}


class SimStore:
    """A local store: a dict that dies with its worker."""

    def __init__(
        self, data: dict[bytes, bytes], checkpoints: dict[str, dict[bytes, bytes]] = CHECKPOINTS
    ) -> None:
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

    def scan(self, prefix: bytes, since: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        entries = self.data.items()
        return iter(
            sorted((key, of) for key, of in entries if key.startswith(prefix) and key >= since)
        )

    def first(self, prefix: bytes, since: bytes) -> bytes | None:
        return min(
            (key for key in self.data if key.startswith(prefix) and key >= since), default=None
        )

    def checkpoint(self, path: str) -> None:
        self._checkpoints[path] = dict(self.data)

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.data.items())

    def close(self) -> None:
        pass


class SimStores:
    def open(self, shard: str, checkpoint: str | None) -> SimStore:
        return SimStore(dict(CHECKPOINTS.pop(checkpoint)) if checkpoint is not None else {})


@dataclass(slots=True)
class Journal:
    """Its groups of entries by number."""

    groups: dict[int, list[bytes]] = field(default_factory=dict)
    written: int = 0
    sealed_end: int = -1
    collected: bool = False


class SimJournals:
    """All journals. ``upto`` counts groups. One group is one segment, so that collection is
    exercised often."""

    def __init__(self) -> None:
        self.journals: dict[str, Journal] = {}

    def create(self, incarnation: str) -> None:
        if incarnation in self.journals:
            raise FencedError(incarnation)
        self.journals[incarnation] = Journal()

    def write(self, incarnation: str, entries: list[bytes]) -> int:
        journal = self.journals[incarnation]
        journal.written += 1
        journal.groups[journal.written] = entries
        return journal.written

    def sealed(self, incarnation: str) -> bool:
        return self.journals[incarnation].sealed_end >= 0

    def seal(self, incarnation: str) -> int:
        journal = self.journals.setdefault(incarnation, Journal())
        if journal.sealed_end < 0:
            journal.sealed_end = journal.written
        return journal.sealed_end

    def read(
        self, incarnation: str, upto: int, since: JournalPosition | None = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        journal = self.journals[incarnation]
        for number in sorted(journal.groups):
            if (since is None or number >= since.group) and (upto < 0 or number <= upto):
                yield from (entry for entry in journal.groups[number] if entry.startswith(prefix))

    def follow(self, incarnation: str, since: JournalPosition | None) -> Followed:
        """A group counts once there is another one behind it."""
        journal = self.journals[incarnation]
        first = since.group if since is not None else min(journal.groups, default=1)
        certain = range(first, max(first, journal.written))
        if any(number not in journal.groups for number in certain):
            raise FencedError(f"groups of {incarnation} behind {first} were collected")
        return Followed(
            [journal.groups[number] for number in certain],
            JournalPosition(certain.stop, 0, certain.stop),
        )

    def segments(self, incarnation: str) -> list[int]:
        return sorted(self.journals[incarnation].groups)

    def delete_segment(self, incarnation: str, segment: int) -> None:
        self.journals[incarnation].groups.pop(segment, None)

    def incarnations(self) -> Sequence[str]:
        return list(self.journals)

    def collect(self, incarnation: str) -> None:
        self.journals[incarnation].groups.clear()
        self.journals[incarnation].collected = True


class SimSnapshots:
    def __init__(self) -> None:
        self.manifests: dict[str, list[tuple[Manifest, dict[bytes, bytes]]]] = {}

    def latest(self, shard: str) -> Manifest | None:
        found = self.manifests.get(shard, [])
        return max(
            (m for m, _ in found), key=lambda m: (m.token, m.last_commit, m.number), default=None
        )

    def publish(
        self, shard: str, token: int, last_commit: int, checkpoint: str, guard: Callable[[], None]
    ) -> Manifest:
        parent = self.latest(shard)
        if parent is not None and parent.token > token:
            raise ConflictError(shard)
        guard()
        manifests = self.manifests.setdefault(shard, [])
        manifest = Manifest(
            shard, len(manifests) + 1, parent.number if parent else 0, token, last_commit, {}
        )
        manifests.append((manifest, CHECKPOINTS.pop(checkpoint)))
        return manifest

    def restore(self, manifest: Manifest, path: str) -> None:
        CHECKPOINTS[path] = next(
            dict(data) for m, data in self.manifests[manifest.shard] if m.number == manifest.number
        )

    def collect(self, shard: str) -> int:
        return 0

    def shards(self) -> Sequence[str]:
        return sorted(self.manifests)

    def drop(self, shard: str) -> int:
        return len(self.manifests.pop(shard, []))
