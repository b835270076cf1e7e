from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence

import pytest

from millwheel.engine.workers import events as ev
from millwheel.engine.workers.threads import journal as module
from millwheel.engine.workers.threads.journal import JournalThread
from millwheel.errors import FencedError


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
    monkeypatch.setattr(module, "monotonic", lambda: made.clock_s)
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
    monkeypatch.setattr(module, "SEAL_CHECK_S", 0.01)
    events: queue.SimpleQueue[ev.Event] = queue.SimpleQueue()
    JournalThread(writer, events.put)
    writer.sealed = True
    failed = events.get(timeout=10)
    assert isinstance(failed, ev.JournalFailed)
    assert isinstance(failed.error, FencedError)
