"""The threads that open the stores of shards, or let them follow an owner elsewhere."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass

from millwheel.adapters.ports import Journals, Snapshots, StateStores
from millwheel.core.model.names import NodeName, ShardName
from millwheel.core.model.range_table import ShardEntry
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.hangs import Hangs
from millwheel.engine.workers.dictionaries.store_form import NumbersRead
from millwheel.engine.workers.ports import Post
from millwheel.engine.workers.recovery.following import Standbys
from millwheel.engine.workers.recovery.journal_reads import ReadOnce
from millwheel.engine.workers.recovery.recovery import Effort, recover
from millwheel.engine.workers.shard.opening import read_pending
from millwheel.engine.workers.store_read import StoreRead

_VERIFY_PAUSE_S = 0.02  # between reads of tables that are verified later: recovery comes first


@dataclass(frozen=True, slots=True)
class Recovering:
    """The inputs of a recovery and the folder of its store; ``standbys`` may already have the
    store, and ``reads`` its input. ``numbers`` reads the stores of dictionaries, so that the loop
    need not."""

    stores: StateStores
    snapshots: Snapshots
    journals: Journals
    scratch: str
    hangs: Hangs | None = None
    standbys: Standbys | None = None
    reads: ReadOnce | None = None
    numbers: NumbersRead | None = None

    def open(self, node: NodeName, entry: ShardEntry, post: Post) -> None:
        """Recover a shard and report the outcome."""
        try:
            if self.hangs is not None:
                self.hangs.read_notes(node, entry)
            effort = Effort()
            store = None if self.standbys is None else self.standbys.take(entry)
            if store is None:
                journals = self.reads or self.journals
                store = recover(entry, self.stores, self.snapshots, journals, self.scratch, effort)
            opened = StoreRead(
                read_pending(store),
                None if self.numbers is None else self.numbers.read(node, store),
            )
        except Exception as ex:  # handed to the loop, which ends the process with its words
            post(ev.RecoveryFailed(entry, node, ex))
        else:
            post(ev.ShardRecovered(entry, node, store, effort.replayed, opened))

    def rest(self) -> None:
        """Note that no more shards are to be recovered at the moment."""
        if self.reads is not None:
            self.reads.forget()


class RecoveryThread:
    """Opens the stores of shards, two at a time, and then reads the files that were opened
    unread."""

    def __init__(self, recovering: Recovering, post: Post) -> None:
        self._recovering = recovering
        self._post = post
        self._queue: queue.SimpleQueue[tuple[NodeName, ShardEntry]] = queue.SimpleQueue()
        self._left = 0
        self._lock = threading.Lock()
        for number in range(2):
            threading.Thread(target=self._run, name=f"recovery-{number}", daemon=True).start()
        self._opened: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._verify, name="verify", daemon=True).start()

    def recover(self, node: NodeName, entry: ShardEntry) -> None:
        with self._lock:
            self._left += 1
        self._queue.put((node, entry))

    def _run(self) -> None:
        while True:
            node, entry = self._queue.get()
            self._recovering.open(node, entry, self._post)
            with self._lock:
                self._left -= 1
                # Not when the queue is empty: the other thread, with the last shard, would read the
                # journal once more.
                if not self._left:
                    self._recovering.rest()
            self._opened.put(None)

    def _verify(self) -> None:
        """Slowly: the work of the shards goes first."""
        while True:
            self._opened.get()
            try:
                for _ in self._recovering.snapshots.unverified():
                    time.sleep(_VERIFY_PAUSE_S)
            except Exception as ex:  # the loop ends the process with its words
                self._post(ev.DamageFound(ex))


class StandbyThread:
    """Lets standbys follow, a round each ``pause_s``, and at once when there is something new to
    follow."""

    def __init__(self, standbys: Standbys, pause_s: float, post: Post) -> None:
        self._standbys = standbys
        self._pause_s = pause_s
        self._post = post
        self._asked = threading.Event()
        threading.Thread(target=self._run, name="standbys", daemon=True).start()

    def follow(self, entry: ShardEntry) -> None:
        self._standbys.follow(entry)
        self._asked.set()

    def drop(self, shard: ShardName) -> None:
        self._standbys.drop(shard)
        self._asked.set()

    def _run(self) -> None:
        self._asked.wait()  # most workers never stand by
        while True:
            self._asked.clear()
            try:
                while self._standbys.round():
                    pass
            except Exception as ex:  # the loop ends the process with its words
                self._post(ev.DamageFound(ex))
            self._asked.wait(self._pause_s)
