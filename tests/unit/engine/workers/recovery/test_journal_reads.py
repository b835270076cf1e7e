from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from threading import Lock
from types import FrameType
from typing import Any

import pytest

from millwheel.core.formats.codec import Commit, commits_prefix, decode_commit, encode_commit
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.engine.workers.recovery import journal_reads
from millwheel.engine.workers.recovery.journal_reads import ReadOnce
from millwheel.errors import CorruptionError
from tests.fakes.plain_storage import SimJournals


def entry(shard: str, number: int) -> bytes:
    return encode_commit(Commit(shard, 1, number, [(b"k", b"v")], []))


def numbers(entries: Iterator[bytes]) -> list[int]:
    return [decode_commit(each).number for each in entries]


OF_W1, OF_W2 = commits_prefix("w1", 1), commits_prefix("w2", 1)


class Counting(SimJournals):
    """How often what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        for name in ("w1", "w2"):
            self.create(name)
            for number in range(3):
                self.write(name, [entry("other", number), entry(name, number)])

    def read(
        self, incarnation: str, upto: int, since: JournalPosition | None = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        self.reads.append(incarnation)
        return super().read(incarnation, upto, since, prefix)


@pytest.fixture
def journals() -> Counting:
    return Counting()


@pytest.fixture
def once(journals: Counting) -> ReadOnce:
    return ReadOnce(journals, Lock())


def test_a_sealed_journal_is_read_once_for_all_shards_until_it_is_forgotten(
    journals: Counting, once: ReadOnce
) -> None:
    for _ in range(3):
        assert numbers(once.read("w1", 2, prefix=OF_W1)) == [0, 1]
        assert numbers(once.read("w1", 2, prefix=commits_prefix("other", 1))) == [0, 1]
        assert numbers(once.read("w1", 2, prefix=commits_prefix("other", 2))) == []
        assert numbers(once.read("w1", 2, prefix=OF_W2)) == []
    assert journals.reads == ["w1"]
    once.forget()
    assert numbers(once.read("w1", 2, prefix=OF_W1)) == [0, 1]
    assert journals.reads == ["w1", "w1"]


@pytest.mark.parametrize("length", [1, 2, 31, 32, 255])
def test_a_shard_gets_its_own_entries_whatever_its_name_is(length: int) -> None:
    journals = SimJournals()
    journals.create("w1")
    names = ["a" * length, "a" * (length - 1) + "b", "a" * (length + 1)]
    journals.write("w1", [entry(name, number) for number in range(3) for name in names])
    once = ReadOnce(journals, Lock())
    for name in names:
        found = once.read("w1", 1, prefix=commits_prefix(name, 1))
        assert [(decode_commit(each).shard, decode_commit(each).number) for each in found] == [
            (name, number) for number in range(3)
        ]


def test_another_journal_or_another_end_is_read(journals: Counting, once: ReadOnce) -> None:
    assert len(numbers(once.read("w1", 2, prefix=OF_W1))) == 2
    assert len(numbers(once.read("w2", 2, prefix=OF_W2))) == 2
    assert len(numbers(once.read("w2", 1, prefix=OF_W2))) == 1
    assert journals.reads == ["w1", "w2", "w2"]


def test_shards_whose_owners_died_one_after_the_other_read_the_journal_of_each_once(
    journals: Counting, once: ReadOnce
) -> None:
    for _ in range(3):
        assert numbers(once.read("w1", 3, prefix=OF_W1)) == [0, 1, 2]
        assert numbers(once.read("w2", 3, prefix=OF_W2)) == [0, 1, 2]
    assert journals.reads == ["w1", "w2"]


@pytest.mark.parametrize(
    ("room", "reads"), [(1.9, ["w1", "w2", "w1"]), (0.9, ["w1", "w2", "w2", "w1"])]
)
def test_of_journals_that_are_large_together_the_last_is_kept(
    journals: Counting,
    once: ReadOnce,
    monkeypatch: pytest.MonkeyPatch,
    room: float,
    reads: list[str],
) -> None:
    size = sum(map(len, SimJournals.read(journals, "w1", 3)))
    monkeypatch.setattr(journal_reads, "_AT_MOST_BYTES", int(size * room))
    assert numbers(once.read("w1", 3, prefix=OF_W1)) == [0, 1, 2]
    for _ in range(2):
        assert numbers(once.read("w2", 3, prefix=OF_W2)) == [0, 1, 2]
    assert numbers(once.read("w1", 3, prefix=OF_W1)) == [0, 1, 2]
    assert journals.reads == reads


def test_what_may_still_grow_and_rests_are_not_kept(journals: Counting, once: ReadOnce) -> None:
    assert len(numbers(once.read("w1", -1, prefix=OF_W1))) == 3
    journals.write("w1", [entry("w1", 3)])
    assert len(numbers(once.read("w1", -1, prefix=OF_W1))) == 4
    assert numbers(once.read("w1", 4, JournalPosition(4, 0, 4), OF_W1)) == [3]
    assert len(numbers(once.read("w1", 4))) == 7


def test_a_very_large_journal_is_not_kept(
    journals: Counting, once: ReadOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reads, "_AT_MOST_BYTES", 25)
    for _ in range(2):
        assert numbers(once.read("w1", 3, prefix=OF_W1)) == [0, 1, 2]
    assert journals.reads == ["w1", "w1"]


def test_damage_is_told_to_each_reader(journals: Counting, once: ReadOnce) -> None:
    def damaged(incarnation: str, upto: int) -> Iterator[bytes]:
        yield entry("w1", 0)
        raise CorruptionError("bad checksum")

    journals.read = damaged  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(CorruptionError):
            list(once.read("w1", 3, prefix=OF_W1))


def test_a_recovery_that_ends_at_any_moment_takes_nothing_from_another_one(
    journals: Counting,
) -> None:
    lines, at = {0}, 0
    while at <= max(lines):
        once, at = ReadOnce(journals, Lock()), at + 1
        list(once.read("w1", 3, prefix=OF_W1))
        steps = itertools.count(1)

        def trace(
            frame: FrameType,
            event: str,
            _: object,
            once: ReadOnce = once,
            steps: Iterator[int] = steps,
        ) -> Any:
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
            entries = list(once.read("w1", 3, prefix=OF_W1))
        finally:
            sys.settrace(former)
        assert len(entries) == 3
