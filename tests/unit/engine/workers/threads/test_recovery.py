from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.threads.recovery import Recovering, RecoveryThread
from millwheel.errors import CorruptionError
from millwheel.tools.testing.memory.disk import MemoryDisk
from millwheel.tools.testing.memory.stores import MemoryStores


@pytest.fixture
def events() -> queue.SimpleQueue[ev.Event]:
    return queue.SimpleQueue()


class Damaged:
    """Snapshots of which a file that nobody has read yet is damaged."""

    def __init__(self) -> None:
        self.pieces = 0

    def latest(self, shard: str) -> None:
        return None

    def unverified(self) -> Iterator[None]:
        self.pieces += 1
        yield
        raise CorruptionError("blob 7 is damaged")


def test_what_was_restored_without_reading_is_read_afterwards_and_damage_is_told(
    events: queue.SimpleQueue[ev.Event],
) -> None:
    snapshots: Any = Damaged()
    stores: Any = MemoryStores(MemoryDisk(), "/scratch")
    journals: Any = None
    entry = ShardEntry("a-0", tile(1)[0], "w1", 1)
    RecoveryThread(Recovering(stores, snapshots, journals, "/scratch"), events.put).recover(
        "a", entry
    )
    opened = events.get(timeout=10)
    assert isinstance(opened, ev.ShardRecovered)
    assert opened.opened is not None
    assert opened.opened.pending == [], "decoded by this thread, not by the loop"
    found = events.get(timeout=10)
    assert isinstance(found, ev.DamageFound)
    assert "blob 7" in str(found.error)
    assert snapshots.pieces == 1


class SlowAndQuick:
    """Recoveries of which one waits until it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.rests, self.snapshots = 0, self
        self.over: queue.SimpleQueue[None] = queue.SimpleQueue()

    def open(self, node: str, entry: ShardEntry, post: Any) -> None:
        if node == "slow":
            self.begun.set()
            self.go_on.wait(10)

    def rest(self) -> None:
        self.rests += 1

    def unverified(self) -> Iterator[None]:
        """Asked for behind each recovery."""
        self.over.put(None)
        return iter(())


def test_what_recoveries_share_is_dropped_behind_the_last_of_them_and_not_when_none_waits() -> None:
    """The other thread has the last shard then, and would read the whole journal once more for
    it."""
    recoveries, entry = SlowAndQuick(), ShardEntry("a-0", tile(1)[0], "w1", 1)
    thread = RecoveryThread(cast(Recovering, recoveries), lambda event: None)
    thread.recover("slow", entry)
    assert recoveries.begun.wait(10)
    thread.recover("quick", entry)
    recoveries.over.get(timeout=10)
    assert recoveries.rests == 0
    recoveries.go_on.set()
    recoveries.over.get(timeout=10)
    assert recoveries.rests == 1
