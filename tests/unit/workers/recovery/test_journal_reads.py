from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from threading import Lock
from types import FrameType
from typing import Any

import pytest

from millwheel.core.formats.journal_segment import JournalPlace
from millwheel.errors import CorruptionError
from millwheel.workers.recovery import journal_reads
from millwheel.workers.recovery.journal_reads import ReadOnce
from tests.fakes.plain_storage import SimJournals


class Counting(SimJournals):
    """How often what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        for name in ("w1", "w2"):
            self.create(name)
            for number in range(3):
                self.write(name, [b"%s %d" % (name.encode(), number)])

    def read(self, incarnation: str, upto: int, since: JournalPlace | None = None) -> Iterator[bytes]:
        self.reads.append(incarnation)
        return super().read(incarnation, upto, since)


@pytest.fixture
def journals() -> Counting:
    return Counting()


@pytest.fixture
def once(journals: Counting) -> ReadOnce:
    return ReadOnce(journals, Lock())


def test_a_sealed_journal_is_read_once_until_it_is_forgotten(journals: Counting, once: ReadOnce) -> None:
    for _ in range(3):
        assert list(once.read("w1", 2)) == [b"w1 0", b"w1 1"]
    assert journals.reads == ["w1"]
    once.forget()
    assert list(once.read("w1", 2)) == [b"w1 0", b"w1 1"]
    assert journals.reads == ["w1", "w1"]


def test_another_journal_or_another_end_is_read(journals: Counting, once: ReadOnce) -> None:
    assert list(once.read("w1", 2)) != list(once.read("w2", 2))
    assert len(list(once.read("w2", 1))) == 1
    assert journals.reads == ["w1", "w2", "w2"]


def test_what_may_still_grow_and_rests_are_not_kept(journals: Counting, once: ReadOnce) -> None:
    assert len(list(once.read("w1", -1))) == 3
    journals.write("w1", [b"more"])
    assert len(list(once.read("w1", -1))) == 4
    assert list(once.read("w1", 4, JournalPlace(4, 0, 4))) == [b"more"]


def test_a_very_large_journal_is_not_kept(journals: Counting, once: ReadOnce, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reads, "_AT_MOST_BYTES", 5)
    for _ in range(2):
        assert list(once.read("w1", 3)) == [b"w1 0", b"w1 1", b"w1 2"]
    assert journals.reads == ["w1", "w1"]


def test_damage_is_told_to_each_reader(journals: Counting, once: ReadOnce) -> None:
    def damaged(incarnation: str, upto: int, since: JournalPlace | None = None) -> Iterator[bytes]:
        yield b"w1 0"
        raise CorruptionError("bad checksum")

    journals.read = damaged  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(CorruptionError):
            list(once.read("w1", 3))


def test_a_recovery_that_ends_at_any_moment_takes_nothing_from_another_one(journals: Counting) -> None:
    lines, at = {0}, 0
    while at <= max(lines):
        once, at = ReadOnce(journals, Lock()), at + 1
        list(once.read("w1", 3))
        steps = itertools.count(1)

        def trace(frame: FrameType, event: str, _: object, once: ReadOnce = once, steps: Iterator[int] = steps) -> Any:
            if frame.f_code is not ReadOnce.read.__code__:
                return None
            if event == "line":
                lines.add(step := next(steps))
                if step == at:
                    once.forget()
            return trace

        former = sys.gettrace()
        sys.settrace(trace)
        try:
            entries = list(once.read("w1", 3))
        finally:
            sys.settrace(former)
        assert len(entries) == 3
