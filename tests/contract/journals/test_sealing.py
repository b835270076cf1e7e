"""The journals port: a seal fences, and everybody agrees where a journal ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from millwheel.adapters.ports import JournalWriter
from millwheel.errors import FencedError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.contract.journals.world import World, memory_world
from tests.fakes.faulty_files import Call, FaultyFiles, Killed, kill_at


def test_everybody_gets_the_same_end(world: World) -> None:
    world.journals().create("w1").commit([b"a"])
    end = world.journals().seal("w1")
    assert end >= 0
    assert {world.journals().seal("w1") for _ in range(3)} == {end}
    assert world.read(upto=end) == [b"a"] == world.read()


def test_a_sealed_writer_is_fenced_for_good(world: World) -> None:
    writer = world.journals().create("w1")
    writer.commit([b"a"])
    end = world.journals().seal("w1")
    for _ in range(2):
        with pytest.raises(FencedError, match="must exit"):
            writer.commit([b"zombie"])
    assert world.read(upto=end) == [b"a"]


def test_a_journal_that_never_was_can_be_sealed_and_then_never_be(world: World) -> None:
    end = world.journals().seal("w1")
    assert world.journals().seal("w1") == end
    assert world.read(upto=end) == []
    with pytest.raises(FencedError):
        world.journals().create("w1")


def test_a_writer_that_is_sealed_while_it_starts_never_commits(world: World) -> None:
    def seal_then(call: Call) -> None:
        if call.name in ("make_dir", "claim") and call.args[0].endswith("/w1"):
            world.journals().seal("w1")

    with pytest.raises(FencedError):
        world.journals(world.faulty(after=seal_then)).create("w1")
    if isinstance(world.files, MemoryDisk):
        assert world.files.open_files() == 0


def test_a_commit_that_meets_the_seal_on_its_way_is_not_acked(world: World) -> None:
    calls = _calls_of(world, lambda writer: writer.commit([b"second"]))
    for number in range(calls):
        incarnation = f"w{number}"
        files = world.faulty()
        writer = world.journals(files).create(incarnation)
        writer.commit([b"first"])
        ends: list[int] = []
        files.before = _act_at(files.calls + number, partial(_seal, world, incarnation, ends))
        acked = True
        try:
            writer.commit([b"second"])
        except FencedError:
            acked = False
        found = world.read(incarnation, ends[0])
        assert found == [b"first", b"second"] if acked else found[:1] == [b"first"]
        with pytest.raises(FencedError):
            writer.commit([b"third"])
        assert world.read(incarnation, ends[0]) == found


def _seal(world: World, incarnation: str, ends: list[int]) -> None:
    ends.append(world.journals().seal(incarnation))


def _act_at(number: int, action: Callable[[], object]) -> Callable[[Call], None]:
    def hook(call: Call) -> None:
        if call.number == number:
            action()

    return hook


def _calls_of(world: World, action: Callable[[JournalWriter], object]) -> int:
    """How many calls of what the root is on an action of a writer with one group takes."""
    files = world.faulty()
    writer = world.journals(files).create("other")
    writer.commit([b"first"])
    before = files.calls
    action(writer)
    return files.calls - before


def test_two_sealers_and_a_zombie_agree_at_every_interleaving(memory: World, form: str) -> None:
    for number in range(_seal_calls(memory)):
        world = memory_world(form)
        writer = world.journals().create("w1")
        writer.commit([b"a"])
        ends: list[int] = []

        def others(
            world: World = world, writer: JournalWriter = writer, ends: list[int] = ends
        ) -> None:
            with suppress(FencedError):
                writer.commit([b"from a zombie"])
            ends.append(world.journals().seal("w1"))

        files = world.faulty()
        journals = world.journals(files)
        files.before = _act_at(files.calls + number, others)
        assert journals.seal("w1") == ends[0] == world.journals().seal("w1")
        assert world.read(upto=ends[0])[:1] == [b"a"]


def test_a_sealer_whom_a_living_writer_overtakes_at_any_call_still_fences_it(world: World) -> None:
    """The writer comes past the number that the sealer has chosen, and deletes it again."""
    for number in range(_seal_calls(world)):
        incarnation = f"w{number}"
        writer = world.journals(segment_bytes=1).create(incarnation)
        acked = _commit_and_delete(writer, 3)
        files = world.faulty()
        journals = world.journals(files)
        files.before = _act_at(
            files.calls + number, lambda: acked.extend(_commit_and_delete(writer, 20))
        )
        end = journals.seal(incarnation)
        with pytest.raises(FencedError):
            writer.commit([b"from a zombie"])
        assert world.journals().seal(incarnation) == end
        found = world.read(incarnation, end)
        # in the append form, what met the seal may be there
        assert acked[-2:] in (found[-2:], found[-3:-1])


def test_what_a_slow_sealer_leaves_behind_when_it_dies_hurts_nobody(memory: World) -> None:
    for number in range(_seal_calls(memory) + 3):
        incarnation = f"w{number}"
        writer = memory.journals(segment_bytes=1).create(incarnation)
        acked = _commit_and_delete(writer, 3)
        files = memory.faulty()
        journals = memory.journals(files)
        begun = files.calls

        def overtake(call: Call) -> None:
            if call.name == "link" and not acked[3:]:
                acked.extend(_commit_and_delete(writer, 20))
            if call.number == begun + number:
                raise Killed

        files.before = overtake
        with suppress(Killed):
            journals.seal(incarnation)
        assert memory.read(incarnation)[-2:] == acked[-2:]
        end = memory.journals().seal(incarnation)
        assert memory.read(incarnation, end)[-2:] == acked[-2:]
        with pytest.raises(FencedError):
            writer.commit([b"from a zombie"])
        memory.journals().collect(incarnation)
        assert memory.journals().seal(incarnation) == end


def _commit_and_delete(writer: JournalWriter, count: int) -> list[bytes]:
    """Commit so many groups and delete all that can be; what was acked."""
    acked = []
    with suppress(FencedError):
        for number in range(count):
            writer.commit([b"entry %d" % number])
            acked.append(b"entry %d" % number)
            for segment in list(writer.segments())[:-2]:
                writer.delete_segment(segment)
    return acked


def _seal_calls(world: World) -> int:
    world.journals().create("other").commit([b"a"])
    files = world.faulty()
    journals = world.journals(files)
    before = files.calls
    journals.seal("other")
    return files.calls - before


def test_a_sealer_that_dies_at_any_step_is_continued_by_the_next(world: World) -> None:
    for number in range(_seal_calls(world)):
        incarnation = f"w{number}"
        writer = world.journals().create(incarnation)
        writer.commit([b"a"])
        files = world.faulty()
        journals = world.journals(files)
        files.before = kill_at(files.calls + number)
        with pytest.raises(Killed):
            journals.seal(incarnation)
        end = world.journals().seal(incarnation)
        assert world.read(incarnation, end) == [b"a"]
        with pytest.raises(FencedError):
            writer.commit([b"b"])


def test_a_seal_that_a_dead_master_left_is_durable_once_another_master_relies_on_it(
    form: str,
) -> None:
    for number in range(_calls_of(memory_world(form), lambda _: None) + 60):
        world = memory_world(form)
        world.journals().create("w1").commit([b"a"])
        with suppress(Killed):
            world.journals(FaultyFiles(world.files, kill_at(number))).seal("w1")
        end = world.journals().seal("w1")
        assert isinstance(world.files, MemoryDisk)
        world.files.crash()
        world.journals().collect("w1")  # refused unless the seal is still there
        assert world.journals().seal("w1") == end


def test_a_sealer_that_dies_with_a_seal_ahead_of_the_writer_is_continued(world: World) -> None:
    """Of a writer that is dead, too, so that it never fills what lies between."""
    if world.form == "append":
        pytest.skip("its seal has a name of its own")
    for number in range(3, 14):
        incarnation = f"w{number}"
        writer = world.journals(segment_bytes=1).create(incarnation)
        acked = _commit_and_delete(writer, 3)
        files = world.faulty()
        journals = world.journals(files)
        begun = files.calls

        def race(call: Call) -> None:
            if call.name in ("link", "create") and len(acked) == 3:
                acked.extend(_commit_and_delete(writer, 1))
            if call.number == begun + number:
                raise Killed

        files.before = race
        with suppress(Killed):
            journals.seal(incarnation)
        assert world.read(incarnation)[-4:] == acked[-4:]
        end = world.journals().seal(incarnation)
        assert world.read(incarnation, end)[-4:] == acked[-4:]
        assert not _commit_and_delete(writer, 10)
        assert world.read(incarnation, end)[-4:] == acked[-4:]
        assert world.journals().seal(incarnation) == end


def test_a_sealer_that_was_asleep_while_the_journal_was_collected_gets_the_same_end(
    world: World,
) -> None:
    for number in range(_seal_calls(world)):
        incarnation = f"w{number}"
        writer = world.journals(segment_bytes=1).create(incarnation)
        _commit_and_delete(writer, 20)
        ends: list[int] = []

        def collect(incarnation: str = incarnation, ends: list[int] = ends) -> None:
            ends.append(world.journals().seal(incarnation))
            world.journals().collect(incarnation)

        files = world.faulty()
        journals = world.journals(files)
        files.before = _act_at(files.calls + number, collect)
        with suppress(UnavailableError):  # its temporary file was swept away: it tries again
            assert journals.seal(incarnation) == ends[0]
        assert world.journals().seal(incarnation) == ends[0]
        world.journals().collect(incarnation)
        assert incarnation not in world.journals().incarnations()
        with pytest.raises(FencedError):
            writer.commit([b"from a zombie"])
