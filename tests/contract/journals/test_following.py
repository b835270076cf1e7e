"""The journals port: whoever follows a journal that grows sees all of it, in order, and nothing
behind a sealed end."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from millwheel.adapters.journal.journals import FileJournals
from millwheel.core.formats.journal_segment import JournalPosition
from millwheel.errors import CorruptionError, FencedError, MillwheelError
from tests.contract.journals.test_interleavings import Chance
from tests.contract.journals.world import World, memory_world
from tests.fakes.faulty_files import Call, Killed


class Reader:
    """Follows a journal from its beginning."""

    def __init__(self, journals: FileJournals, incarnation: str = "w1") -> None:
        self._journals, self._incarnation = journals, incarnation
        self.position: JournalPosition | None = None
        self.seen: list[bytes] = []

    def look(self) -> list[bytes]:
        """What is new, as far as it is certain."""
        before = len(self.seen)
        while True:
            found = self._journals.follow(self._incarnation, self.position)
            self.seen += [entry for group in found.groups for entry in group]
            if found.position == self.position:
                return self.seen[before:]
            self.position = found.position

    def rest(self, upto: int) -> list[bytes]:
        return list(self._journals.read(self._incarnation, upto, self.position))


def entries(low: int, high: int) -> list[bytes]:
    return [b"%d" % number + bytes(60) for number in range(low, high + 1)]


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20])
def test_each_group_is_seen_once_when_the_next_one_is_there(
    world: World, segment_bytes: int
) -> None:
    writer = world.journals(segment_bytes=segment_bytes).create("w1")
    reader = Reader(world.journals())
    assert reader.look() == []
    for number in range(1, 8):
        writer.commit(entries(number, number))
        assert reader.look() == entries(number - 1, number - 1)[: number - 1]
    assert reader.look() == []
    end = world.journals().seal("w1")
    assert reader.rest(end) == entries(7, 7)
    assert reader.look() == []


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20])
def test_what_was_seen_and_the_rest_are_the_sealed_journal_wherever_one_stops(
    world: World, segment_bytes: int
) -> None:
    writer = world.journals(segment_bytes=segment_bytes).create("w1")
    readers = []
    for number in range(1, 9):
        writer.commit(entries(number, number))
        readers.append(Reader(world.journals()))
        readers[-1].look()
    end = world.journals().seal("w1")
    for reader in readers:
        assert reader.seen + reader.rest(end) == entries(1, 8)
    assert Reader(world.journals()).rest(end) == entries(1, 8)


def test_a_zombies_group_behind_the_sealed_end_is_never_seen(on_disk: World) -> None:
    """The sealer comes between the writer's decision and its write."""
    ends: list[int] = []
    reader = Reader(on_disk.journals())

    def sealed_before_the_write(call: Call) -> None:
        if call.name in ("write_at", "link", "create") and armed and not ends:
            ends.append(on_disk.journals().seal("w1"))

    armed: list[bool] = []
    writer = on_disk.journals(on_disk.faulty(before=sealed_before_the_write)).create("w1")
    writer.commit(entries(1, 1))
    writer.commit(entries(2, 2))
    armed.append(True)
    with suppress(FencedError):
        writer.commit(entries(3, 3))
    (end,) = ends
    reader.look()
    assert entries(1, 1)[0] in reader.seen
    assert reader.seen + reader.rest(end) == entries(1, 2)


def test_a_torn_group_is_not_there_yet(on_disk: World) -> None:
    if on_disk.form == "create":
        pytest.skip("objects are whole")

    def torn(call: Call) -> None:
        if call.name == "write_at" and b"3" + bytes(60) in bytes(call.args[1]):
            on_disk.patch(on_disk.path(1), call.args[2], bytes(call.args[1][:-61]))
            raise Killed

    writer = on_disk.journals(on_disk.faulty(before=torn)).create("w1")
    writer.commit(entries(1, 1))
    writer.commit(entries(2, 2))
    with suppress(Killed):
        writer.commit(entries(3, 3))
    reader = Reader(on_disk.journals())
    assert reader.look() == entries(1, 1)
    assert reader.rest(on_disk.journals().seal("w1")) == entries(2, 2)


def test_what_was_deleted_before_it_was_seen_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millwheel.adapters.journal.create.KEPT_GROUPS", 1)
    writer = world.journals(segment_bytes=100).create("w1")
    writer.commit(entries(1, 3))
    reader = Reader(world.journals())
    reader.look()
    for number in range(4, 9):
        writer.commit(entries(number, number))
    for segment in list(writer.segments())[:-1]:
        writer.delete_segment(segment)
    with pytest.raises((FencedError, CorruptionError)):
        reader.look()
    with pytest.raises((FencedError, CorruptionError)):
        reader.rest(world.journals().seal("w1"))
    again = Reader(world.journals())
    again.look()
    assert again.seen + again.rest(world.journals().seal("w1")) == entries(8, 8)


def test_a_collected_journal_is_told(world: World) -> None:
    writer = world.journals().create("w1")
    for number in range(1, 5):
        writer.commit(entries(number, number))
    reader = Reader(world.journals())
    reader.look()
    world.journals().seal("w1")
    world.journals().collect("w1")
    with pytest.raises(FencedError):
        reader.look()


def test_an_end_before_what_was_seen_is_refused(world: World) -> None:
    ends = []
    for incarnation, groups in (("w1", 9), ("w2", 2)):
        writer = world.journals().create(incarnation)
        for number in range(groups):
            writer.commit(entries(number, number))
        ends.append(world.journals().seal(incarnation))
    reader = Reader(world.journals())
    reader.look()
    with pytest.raises(CorruptionError):
        list(world.journals().read("w1", ends[1], reader.position))


def test_damage_is_waited_at_or_told_and_never_skipped(world: World) -> None:
    writer = world.journals(segment_bytes=300).create("w1")
    for number in range(1, 9):
        writer.commit(entries(number, number))
    path = world.path(2)
    data = bytearray(world.content(path))
    data[-20] ^= 1
    world.replace(path, bytes(data))
    reader = Reader(world.journals())
    with suppress(CorruptionError):
        reader.look()
    assert reader.seen == entries(1, 8)[: len(reader.seen)]
    with pytest.raises(CorruptionError):
        reader.rest(world.journals().seal("w1"))


# generators that die with a process
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("form", ["append", "create"])
@pytest.mark.parametrize("seed", range(15))
def test_in_whatever_order_things_happen_what_was_followed_is_in_the_sealed_journal(
    form: str, seed: int
) -> None:
    rng = random.Random(seed)
    chance = Chance(memory_world(form), rng)
    chance.world.journals()
    readers: list[Reader] = []
    acked: list[bytes] = []

    def write(journals: FileJournals) -> None:
        with suppress(FencedError):
            writer = journals.create("w1")
            for number in range(1, 200):
                writer.commit([b"%d" % number])
                acked.append(b"%d" % number)

    def seal(journals: FileJournals) -> None:
        with suppress(MillwheelError):
            journals.seal("w1")

    def follow(journals: FileJournals) -> None:
        reader: Any = Reader(journals)
        readers.append(reader)
        for _ in range(rng.randrange(5, 80)):
            with suppress(CorruptionError):  # it began before the writer
                reader.look()

    chance.spawn("writer", write)
    chance.spawn("sealer", seal)
    chance.asleep["sealer"] = rng.randrange(800)
    for number in range(3):
        chance.spawn(f"follower {number}", follow)
    chance.until_all_have_ended()
    end = chance.world.journals().seal("w1")
    whole = chance.world.read(upto=end)
    assert set(acked) <= set(whole)
    for reader in readers:
        rest = list(chance.world.journals().read("w1", end, reader.position))
        assert reader.seen + rest == whole
