"""The journals port: what nobody needs is deleted, but never what fences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from millwheel.adapters.journal.numbers import KEPT_GROUPS
from millwheel.adapters.ports import JournalWriter
from millwheel.errors import (
    FencedError,
    InvariantError,
)
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.contract.journals.world import World, memory_world
from tests.fakes.faulty_files import Call, Killed


def _five_segments(world: World) -> JournalWriter:
    """Each segment holds one entry with its number, but the create form's first, which is empty."""
    writer = world.journals(segment_bytes=100).create("w1")
    for number in _filled(world):
        writer.commit([b"%d" % number + bytes(200)])
    assert list(writer.segments()) == [1, 2, 3, 4, 5]
    return writer


def _filled(world: World) -> list[int]:
    return [1, 2, 3, 4, 5] if world.form == "append" else [2, 3, 4, 5]


def _found(world: World, upto: int = -1) -> list[int]:
    return [int(entry[:1]) for entry in world.read(upto=upto)]


@pytest.fixture
def _keeps_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millwheel.adapters.journal.create.KEPT_GROUPS", 1)


def test_the_newest_groups_stay_whoever_needs_them(world: World) -> None:
    if world.form == "append":
        pytest.skip("it has no groups of their own")
    writer = world.journals().create("w1")
    for number in range(20):
        writer.commit([b"%d" % number])
        for segment in list(writer.segments())[:-1]:
            writer.delete_segment(segment)
    assert world.read() == [b"%d" % number for number in range(20 - KEPT_GROUPS, 20)]
    assert list(writer.segments()) == [21]


@pytest.mark.usefixtures("_keeps_one")
def test_deleted_segments_are_gone_and_the_rest_is_read(world: World) -> None:
    writer = _five_segments(world)
    writer.delete_segment(1)
    writer.delete_segment(2)
    assert list(writer.segments()) == [3, 4, 5]
    assert _found(world) == [3, 4, 5]
    assert _found(world, world.journals().seal("w1")) == [3, 4, 5]


@pytest.mark.usefixtures("_keeps_one")
def test_a_segment_behind_one_that_is_needed_stays_on_disk(world: World) -> None:
    writer = _five_segments(world)
    writer.delete_segment(2)
    assert list(writer.segments()) == [1, 3, 4, 5]
    assert _found(world) == _filled(world)
    writer.delete_segment(1)
    writer.delete_segment(1)
    assert list(writer.segments()) == [3, 4, 5]
    assert _found(world) == [3, 4, 5]


def test_the_segment_being_written_cannot_be_deleted(world: World) -> None:
    writer = _five_segments(world)
    with pytest.raises(InvariantError):
        writer.delete_segment(5)


def test_a_collected_journal_stays_sealed_for_ever(world: World) -> None:
    writer = _five_segments(world)
    journals = world.journals()
    end = journals.seal("w1")
    journals.collect("w1")
    journals.collect("w1")
    assert journals.seal("w1") == end
    assert journals.incarnations() == []
    with pytest.raises(FencedError):
        writer.commit([b"zombie"])
    with pytest.raises(FencedError):
        journals.create("w1")


def test_whoever_reads_a_collected_journal_is_late(world: World) -> None:
    _five_segments(world)
    end = world.journals().seal("w1")
    world.journals().collect("w1")
    with pytest.raises(FencedError, match="old range table"):
        world.read(upto=end)


def test_a_living_journal_is_not_collected(world: World) -> None:
    _five_segments(world)
    with pytest.raises(InvariantError, match="not sealed"):
        world.journals().collect("w1")
    assert _found(world) == _filled(world)


def test_a_collection_that_died_is_finished_by_the_next(world: World) -> None:
    _five_segments(world)
    world.journals().seal("w1")
    files = world.faulty()
    journals = world.journals(files)
    unlinked = _count_then_kill("delete" if world.space else "unlink", 3)
    files.before = unlinked
    with pytest.raises(Killed):
        journals.collect("w1")
    assert world.journals().incarnations() == ["w1"]
    world.journals().collect("w1")
    assert world.journals().incarnations() == []


def _count_then_kill(name: str, allowed: int) -> Callable[[Call], None]:
    left = allowed

    def hook(call: Call) -> None:
        nonlocal left
        if call.name == name:
            left -= 1
            if left < 0:
                raise Killed

    return hook


def test_a_segment_deleted_while_it_is_read_is_still_read_to_its_end() -> None:
    world = memory_world("append")
    writer = _five_segments(world)
    reading: Iterator[bytes] = world.journals().read("w1", -1)
    first = next(reading)
    for segment in (1, 2, 3):
        writer.delete_segment(segment)
    assert [entry[:1] for entry in (first, *reading)] == [b"1", b"2", b"3", b"4", b"5"]


def test_reading_leaves_no_file_open(memory: World) -> None:
    _five_segments(memory).close()
    disk = memory.files
    assert isinstance(disk, MemoryDisk)
    before = disk.open_files()
    reading = memory.journals().read("w1", -1)
    next(reading)
    del reading
    memory.read()
    assert disk.open_files() == before


def test_a_collected_journal_that_held_nothing_can_still_be_read(world: World) -> None:
    journals = world.journals()
    journals.create("w1")
    end = journals.seal("w1")
    journals.collect("w1")
    assert list(journals.read("w1", end)) == []
    assert "w1" not in journals.incarnations()
