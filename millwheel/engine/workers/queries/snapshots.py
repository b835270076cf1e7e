"""Answers from the newest snapshots of shards that are neither served nor followed here, opened
only to be read.

For shards whose owner is dead or silent and that have no standby. The first question for one opens
its snapshot in the background, and is to be asked again; further ones are answered, and let a newer
snapshot take its place. A snapshot holds only commits that every later owner will have.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count

from millwheel.adapters.ports import Manifest, Snapshots, StateStore, StateStores
from millwheel.core.model.names import ShardName
from millwheel.engine.queries.model import QueryError
from millwheel.engine.workers.recovery.recovery import restored
from millwheel.errors import MillwheelError

MOST_OPEN = 16
"""Snapshots of one worker that are open to be asked; the one that was asked longest ago is closed
for another."""
_LOOK_US = 5_000_000  # between two looks for a newer snapshot of a shard, while it is asked
_log = logging.getLogger("millwheel.queries")


@dataclass(slots=True)
class OpenSnapshot:
    """A snapshot that can be read. ``looked_us``: when it was last found to be the newest one
    (monotonic)."""

    manifest: Manifest
    store: StateStore
    looked_us: int


@dataclass(frozen=True, slots=True)
class SnapshotFolder:
    """The origin of snapshots, and the folder where they are opened. ``lock`` makes a mutex;
    ``spawn`` runs functions on another thread, one after the other."""

    stores: StateStores
    snapshots: Snapshots
    scratch: str
    lock: Callable[[], AbstractContextManager[object]]
    spawn: Callable[[Callable[[], None]], object]
    monotonic_us: Callable[[], int]


@dataclass(slots=True)
class SnapshotCopies:
    """The snapshots of one worker that are open. ``lock`` is held while a store is read or
    closed."""

    folder: SnapshotFolder
    lock: AbstractContextManager[object] = field(init=False)
    _open: OrderedDict[ShardName, OpenSnapshot] = field(default_factory=OrderedDict)
    _coming: dict[ShardName, str] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.lock = self.folder.lock()

    @property
    def opened(self) -> Mapping[ShardName, OpenSnapshot]:
        """The snapshots that can be read now."""
        return self._open

    def asked(self, shard: ShardName) -> OpenSnapshot:
        """The snapshot of a shard; call it with ``lock`` held. Raises QueryError while there is
        none."""
        snapshot = self._open.get(shard)
        if snapshot is None:
            why = self._coming.get(shard) or "its snapshot is being opened"
            self._look(shard)
            raise QueryError("unavailable", f"shard {shard} is not here, and {why}; ask again")
        self._open.move_to_end(shard)
        if self.folder.monotonic_us() - snapshot.looked_us > _LOOK_US:
            self._look(shard)
        return snapshot

    def _look(self, shard: ShardName) -> None:
        if not self._coming.get(shard, "past"):
            return  # another call is already opening it
        self._coming[shard] = ""
        self.folder.spawn(lambda: self._renew(shard))

    def _renew(self, shard: ShardName) -> None:
        """Open the newest snapshot, on another thread."""
        began_us, why = self.folder.monotonic_us(), "past"
        try:
            manifest, current = self.folder.snapshots.latest(shard), self._open.get(shard)
            if manifest is None:
                why = "it has no snapshot yet"
            elif current is not None and current.manifest == manifest:
                current.looked_us = began_us
            else:
                self._replace(shard, OpenSnapshot(manifest, self._restored(manifest), began_us))
        # collected meanwhile, or damaged: a recovery will report it
        except (MillwheelError, OSError) as ex:
            why = "its snapshot cannot be opened"
            _log.warning("The snapshot of %s cannot be opened to be asked: %s", shard, ex)
        finally:
            self._coming[shard] = why

    def _restored(self, manifest: Manifest) -> StateStore:
        name, folder = f"{manifest.shard}-asked-{next(self._numbers)}", self.folder
        return restored(manifest, name, folder.snapshots, folder.stores, folder.scratch)

    def _replace(self, shard: ShardName, fresh: OpenSnapshot) -> None:
        with self.lock:
            old = [self._open.pop(shard)] if shard in self._open else []
            self._open[shard] = fresh
            while len(self._open) > MOST_OPEN:
                old.append(self._open.popitem(last=False)[1])
        for each in old:
            each.store.close()  # no call uses it, and none can find it any more
