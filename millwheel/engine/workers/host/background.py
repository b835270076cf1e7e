"""The threads beside the loop: each takes work from a queue, blocks in one kind of call, and
enqueues the answer."""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol

from millwheel.adapters.ports import Coordination, Journals, JournalWriter, Snapshots, StateStores
from millwheel.connect.connectors.external.meanings import named
from millwheel.control.savepoints.orders import (
    ANSWERS,
    OrderAnswer,
    SavepointOrder,
    Standing,
    encode,
)
from millwheel.core.metrics.catalogue import WRITE_BOUNDS_S
from millwheel.core.metrics.figures import Histogram
from millwheel.core.model.names import NodeName, ShardName, Token
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.pipeline.replays import ReplayOrder
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.bundle.hangs import Hangs
from millwheel.engine.workers.dictionaries.store_form import NumbersRead
from millwheel.engine.workers.ports import BackgroundTask
from millwheel.engine.workers.recovery.following import Standbys
from millwheel.engine.workers.recovery.journal_reads import ReadOnce
from millwheel.engine.workers.recovery.recovery import Effort, recover
from millwheel.engine.workers.shard.opening import read_pending
from millwheel.engine.workers.store_read import StoreRead
from millwheel.errors import ConflictError, InvariantError, SetupError, UnavailableError

_VERIFY_PAUSE_S = 0.02  # between reads of tables that are verified later: recovery comes first
Post = Callable[[ev.Event], None]
_ANSWER_TRIES = 5  # to tell the driver of a savepoint

_AT_ONCE_BYTES = 64 << 10  # a larger group is written by the thread
_SLOW_WRITE_S, _LONGEST_COUNTED_S = 0.003, 0.02
"""If writes usually take longer, the loop does not wait for them. A single very slow write is not
decisive."""
_OF_THE_LAST = 8  # writes over which the usual duration is averaged

SEAL_CHECK_S = 5.0
"""The interval at which an idle journal is checked for its seal. A worker that was declared dead
while it joined, before it saw itself as a member, would not notice otherwise."""


def write_groups(writer: JournalWriter, groups: Sequence[Sequence[bytes]], post: Post) -> bool:
    """Group commit: one write for all ``groups``, and an answer for each. False when the journal is
    over."""
    try:
        segment = writer.commit([entry for group in groups for entry in group])
    except Exception as ex:  # the loop decides; the writing thread must not die silently
        post(ev.JournalFailed(ex))
        return False
    for _ in groups:
        post(ev.GroupDurable(segment))
    return True


@dataclass(slots=True)
class JournalFigures:
    """Figures of journal writes, for ``/metrics``."""

    seconds: Histogram = field(default_factory=lambda: Histogram(WRITE_BOUNDS_S))
    size_bytes: int = 0


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
        """Recover a shard and say how it went."""
        try:
            if self.hangs is not None:
                self.hangs.learn(node, entry)
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
        """Nothing more is to be recovered at the moment."""
        if self.reads is not None:
            self.reads.forget()


@dataclass(frozen=True, slots=True)
class Publishing:
    """Where snapshots go. ``guard`` raises when we are fenced."""

    snapshots: Snapshots
    guard: Callable[[], None]

    def publish(
        self, shard: ShardName, token: Token, last_commit: int, path: str, post: Post
    ) -> None:
        """Upload a checkpoint, collect the objects that it makes unreachable, and report the
        outcome."""
        try:
            self.snapshots.publish(shard, token, last_commit, path, self.guard)
            self.snapshots.collect(shard)
        except Exception as ex:  # the loop tries again, or ends when we are fenced
            post(ev.SnapshotFailed(shard, token, ex))
        else:
            post(ev.SnapshotPublished(shard, token, last_commit))


class JournalThread:
    """Commits that were submitted during the last write go out as one group commit."""

    def __init__(self, writer: JournalWriter, post: Post) -> None:
        self._writer = writer
        self._post = post
        self._queue: queue.SimpleQueue[Sequence[bytes] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._usual_s = 0.0
        self.written = JournalFigures()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def submit(self, entries: Sequence[bytes]) -> None:
        self._queue.put(entries)

    def write_now(self, entries: Sequence[bytes]) -> int | None:
        """See :class:`millwheel.engine.workers.ports.GroupCommits`. A small write to a fast disk
        takes less time than to wake another thread and to get the interpreter back from it."""
        size_bytes = sum(map(len, entries))
        if not self._writer.quick or self._usual_s > _SLOW_WRITE_S or size_bytes > _AT_ONCE_BYTES:
            return None
        with self._lock:
            began_s = monotonic()
            segment = self._writer.commit(entries)
            self._took(monotonic() - began_s, size_bytes)
            return segment

    def segments(self) -> Sequence[int]:
        return self._writer.segments()

    def delete_segment(self, segment: int) -> None:
        self._writer.delete_segment(segment)

    def check(self) -> None:
        """Raise FencedError when this journal has been sealed (any thread)."""
        with self._lock:
            self._writer.commit([])

    def stop(self) -> None:
        """Write the submitted commits and close the journal."""
        self._queue.put(None)
        self._thread.join()
        self._writer.close()

    def _run(self) -> None:
        going = True
        while going:
            groups, last = self._submitted()
            if groups or not last:
                with self._lock:
                    began_s = monotonic()
                    going = write_groups(self._writer, groups, self._post) and not last
                    self._took(
                        monotonic() - began_s,
                        sum(len(entry) for group in groups for entry in group),
                    )
            else:
                going = False

    def _took(self, took_s: float, size_bytes: int) -> None:
        self._usual_s += (min(took_s, _LONGEST_COUNTED_S) - self._usual_s) / _OF_THE_LAST
        if size_bytes:  # without any, it only looked for a seal
            self.written.seconds.add(took_s)
            self.written.size_bytes += size_bytes

    def _submitted(self) -> tuple[list[Sequence[bytes]], bool]:
        """The waiting commits (none after some idle time), and whether they are the last."""
        groups: list[Sequence[bytes]] = []
        try:
            while (group := self._queue.get(timeout=SEAL_CHECK_S)) is not None:
                groups.append(group)
                if self._queue.empty():
                    return groups, False
        except queue.Empty:
            return groups, False
        return groups, True


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


class PendingReplays(Protocol):
    """The orders to try dead letters again, in the root."""

    def undone(self, known_numbers: frozenset[int] = frozenset()) -> Mapping[int, ReplayOrder]:
        """Those that are not done, except ``known_numbers``."""

    def done(self) -> frozenset[int]:
        """The numbers of those that are."""


class ReplayThread:
    """Looks for orders to try dead letters again, every ``pause_s``."""

    def __init__(self, replays: PendingReplays, pause_s: float, post: Post) -> None:
        self._replays = replays
        self._pause_s = pause_s
        self._post = post
        threading.Thread(target=self._run, name="replays", daemon=True).start()

    def _run(self) -> None:
        order_ids: dict[int, str] = {}
        while True:
            time.sleep(self._pause_s)
            try:
                orders = self._replays.undone(frozenset(order_ids))
                done = self._replays.done() if order_ids else frozenset()
            except (UnavailableError, SetupError):
                continue  # the next look may have an answer
            except Exception as ex:  # the loop ends the process with its words
                self._post(ev.DamageFound(ex))
                return
            for number, order in orders.items():
                order_ids[number] = order.id
                self._post(ev.ReplayOrdered(order, at_start=False))
            for number in done & order_ids.keys():
                self._post(ev.ReplayDone(order_ids.pop(number)))


class PublishThreads:
    """Make committed batches of sinks visible and ask lookups, one thread for each lane, so that
    the loop never waits for a file system, and no sink or lookup for the target of another one."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._lanes: dict[str, queue.SimpleQueue[BackgroundTask]] = {}

    def publish(self, task: BackgroundTask) -> None:
        """Carry it out; the answer is an event."""
        name = task.lane
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = queue.SimpleQueue()
            threading.Thread(
                target=self._run, args=(lane,), name=f"aside {name}".strip(), daemon=True
            ).start()
        lane.put(task)

    def _run(self, lane: queue.SimpleQueue[BackgroundTask]) -> None:
        while True:
            self._post(carried_out(lane.get()))


def carried_out(task: BackgroundTask) -> ev.WorkDone:
    """Carry it out. Whatever would end the thread is for the loop to raise: nobody notices a thread
    that has ended, and its shard would wait for ever."""
    try:
        return task.carried_out()
    except BaseException as ex:
        error = InvariantError(
            f"the thread of {task.lane or task.shard} was told to end: {named(ex)}"
        )

        def tell(now_us: int) -> None:
            raise error

        return ev.WorkDone(task.shard, task.token, tell)


@dataclass(slots=True)
class OrderAnswers:
    """Answers to orders, which are members of a role, each under a name of its own. A name whose
    registration has an unknown outcome is never used again. Giving the same answer twice has the
    effect of giving it once."""

    coordination: Coordination
    incarnation: str
    said: list[str] = field(default_factory=list)
    count: int = 0

    def say(self, answer: OrderAnswer) -> None:
        """Become a member with this answer. Gives up after a few tries; then the process that waits
        does, too."""
        for _ in range(_ANSWER_TRIES):
            self.count += 1
            name = f"{answer.savepoint}-{answer.number}.{self.incarnation}.{self.count}"
            self.said.append(name)
            with suppress(UnavailableError, ConflictError):
                self.coordination.join(ANSWERS, name, encode(answer))
                return

    def withdraw(self) -> None:
        """Leave, as far as we can; the rest goes with our session."""
        while self.said:
            with suppress(UnavailableError):
                self.coordination.leave(ANSWERS, self.said[-1])
            self.said.pop()


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies checkpoints to savepoints. ``guard`` raises if we are fenced: then our state is no
    longer the shard's."""

    at: Callable[[str], Snapshots]
    guard: Callable[[], None]

    def save(
        self, order: SavepointOrder, shard: ShardName, standing: Standing, path: str, post: Post
    ) -> None:
        """Copy one, and say how it went."""
        problem = ""
        try:
            self.at(order.folder).publish(shard, standing.token, standing.commit, path, self.guard)
        # the process that ordered the savepoint reports it, and the pipeline continues
        except Exception as ex:
            problem = f"shard {shard} cannot be copied to {order.folder}: {ex}"
        post(ev.ShardSaved(order, shard, standing, problem))


class SavepointThread:
    """Answers to orders, and the copies that they ask for, one after the other."""

    def __init__(self, copying: Copying, answers: OrderAnswers, scratch: str, post: Post) -> None:
        self._copying = copying
        self._answers = answers
        self._scratch = Path(scratch)
        self._post = post
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="savepoints", daemon=True).start()

    def answer(self, answer: OrderAnswer) -> None:
        self._queue.put(lambda: self._answers.say(answer))

    def withdraw(self) -> None:
        self._queue.put(self._answers.withdraw)

    def checkpoint_path(self, order: SavepointOrder, shard: ShardName) -> str:
        return str(self._scratch / f"savepoint-{order.name}-{shard}")

    def save(self, order: SavepointOrder, shard: ShardName, standing: Standing, path: str) -> None:
        def work() -> None:
            self._copying.save(order, shard, standing, path, self._post)
            shutil.rmtree(path, ignore_errors=True)

        self._queue.put(work)

    def _run(self) -> None:
        while True:
            self._queue.get()()


class SnapshotThread:
    """Uploads checkpoints. ``guard`` raises when we are fenced."""

    def __init__(
        self, snapshots: Snapshots, scratch: str, guard: Callable[[], None], post: Post
    ) -> None:
        self._publishing = Publishing(snapshots, guard)
        self._scratch = Path(scratch)
        self._post = post
        self._queue: queue.SimpleQueue[tuple[ShardName, Token, int, str]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="snapshots", daemon=True).start()

    def checkpoint_path(self, shard: ShardName, token: Token, number: int) -> str:
        return str(self._scratch / f"checkpoint-{shard}-{token}-{number}")

    def publish(self, shard: ShardName, token: Token, last_commit: int, path: str) -> None:
        self._queue.put((shard, token, last_commit, path))

    def _run(self) -> None:
        while True:
            shard, token, last_commit, path = self._queue.get()
            self._publishing.publish(shard, token, last_commit, path, self._post)
            shutil.rmtree(path, ignore_errors=True)
