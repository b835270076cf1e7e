from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from millwheel.core.model.names import FIRST_TOKEN, shard_name
from millwheel.core.model.range_table import ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.host import background
from millwheel.engine.workers.host.background import (
    JournalThread,
    PublishThreads,
    Recovering,
    RecoveryThread,
)
from millwheel.errors import CorruptionError, FencedError, InvariantError
from tests.fakes.memory_disk import MemoryDisk
from tests.fakes.stores import MemoryStores


class Writer:
    """A journal in a list. Each write moves its clock by ``takes`` (s)."""

    quick = True

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.takes = self.clock_s = 0.0
        self.sealed = False

    def commit(self, entries: Sequence[bytes]) -> int:
        if self.sealed:
            raise FencedError("sealed")
        self.written += entries
        self.clock_s += self.takes
        return 7

    def segments(self) -> Sequence[int]:
        return [7]

    def delete_segment(self, segment: int) -> None:
        raise AssertionError

    def close(self) -> None:
        pass


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    made = Writer()
    monkeypatch.setattr(background, "monotonic", lambda: made.clock_s)
    return made


@pytest.fixture
def events() -> queue.SimpleQueue[ev.Event]:
    return queue.SimpleQueue()


@pytest.fixture
def journal(writer: Writer, events: queue.SimpleQueue[ev.Event]) -> Iterator[JournalThread]:
    thread = JournalThread(writer, events.put)
    yield thread
    thread.stop()


def test_small_groups_are_written_at_once_and_large_ones_are_not(
    journal: JournalThread, writer: Writer
) -> None:
    assert journal.write_now([b"a", b"b"]) == 7
    assert writer.written == [b"a", b"b"]
    assert journal.write_now([bytes(100_000)]) is None
    assert writer.written == [b"a", b"b"]


def test_while_writes_are_slow_the_caller_does_not_wait_for_them(
    journal: JournalThread, writer: Writer, events: queue.SimpleQueue[ev.Event]
) -> None:
    def quick_again() -> bool:
        journal.submit([b"e"])
        events.get(timeout=10)
        return journal.write_now([b"f"]) == 7

    writer.takes = 0.05
    assert journal.write_now([b"a"]) == 7
    writer.takes = 0.005
    assert journal.write_now([b"b"]) == 7, "one that took long for once"
    for _ in range(10):
        journal.write_now([b"c"])
    assert journal.write_now([b"d"]) is None
    writer.takes = 0
    assert any(quick_again() for _ in range(200)), "they are quick again"


def test_a_journal_that_is_not_quick_is_never_waited_for(
    journal: JournalThread, writer: Writer
) -> None:
    writer.quick = False
    assert journal.write_now([b"a"]) is None


def test_what_is_submitted_is_answered_in_order(
    journal: JournalThread, writer: Writer, events: queue.SimpleQueue[ev.Event]
) -> None:
    for entry in (b"a", b"b", b"c"):
        journal.submit([entry])
    assert [events.get(timeout=10) for _ in range(3)] == [ev.GroupDurable(7)] * 3
    assert writer.written == [b"a", b"b", b"c"]


def test_a_seal_is_noticed_without_any_commit(
    monkeypatch: pytest.MonkeyPatch, writer: Writer
) -> None:
    monkeypatch.setattr(background, "SEAL_CHECK_S", 0.01)
    events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
    JournalThread(writer, events.put)
    writer.sealed = True
    failed = events.get(timeout=10)
    assert isinstance(failed, ev.JournalFailed)
    assert isinstance(failed.error, FencedError)


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


class Abort(BaseException):
    """Of some library."""


class _Aborted:
    lane, shard, token = "sink", shard_name("work", 0), FIRST_TOKEN

    def carried_out(self) -> ev.WorkDone:
        raise Abort("no more")


def test_what_would_end_a_thread_aside_in_silence_ends_the_worker_with_a_sentence() -> None:
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threads = PublishThreads(done.put)
    for _ in range(2):  # the thread goes on
        threads.publish(_Aborted())
        answer = done.get(timeout=30)
        assert (answer.shard, answer.token) == (_Aborted.shard, _Aborted.token)
        with pytest.raises(
            InvariantError, match="the thread of sink was told to end: Abort: no more"
        ):
            answer.tell(0)
