"""The journals port: torn tails end a journal, damage anywhere else stops recovery."""

from __future__ import annotations

import random

import pytest

from millwheel.adapters.ports import JournalWriter
from millwheel.adapters.spaces.durable import read_whole
from millwheel.core.formats.journal_segment import GROUP_HEADER_BYTES, unpack_end
from millwheel.errors import (
    CorruptionError,
    FencedError,
)
from tests.contract.journals.world import World, memory_world


def _three_groups(world: World) -> tuple[JournalWriter, list[bytes]]:
    writer = world.journals().create("w1")
    groups = [b"group %d " % number + bytes(range(40)) for number in range(3)]
    for group in groups:
        writer.commit([group])
    return writer, groups


def test_a_tail_torn_at_any_byte_ends_the_journal_before_it() -> None:
    size = 0
    while size >= 0:
        world = memory_world("append")
        writer, groups = _three_groups(world)
        whole = len(read_whole(world.files, world.path(1)))
        writer.commit([b"torn" * 20])
        full = len(read_whole(world.files, world.path(1)))
        world.cut(world.path(1), whole + size)
        assert world.read() == groups
        assert world.read(upto=world.journals().seal("w1")) == groups
        size = size + 1 if whole + size + 1 < full else -1


def test_a_tail_of_zeros_or_noise_ends_the_journal_before_it() -> None:
    for tail in (bytes(5000), random.Random(1).randbytes(5000)):
        world = memory_world("append")
        _, groups = _three_groups(world)
        path = world.path(1)
        world.patch(path, len(read_whole(world.files, path)), tail)
        assert world.read() == groups
        assert world.read(upto=world.journals().seal("w1")) == groups


def test_groups_of_an_older_segment_that_became_zeros_are_missed() -> None:
    for lost in range(3):
        world = memory_world("append in room")
        writer, groups = _three_groups(world)
        path, size = world.path(1), len(read_whole(world.files, world.path(1)))
        writer._full_at = 4  # type: ignore[attr-defined]
        writer.commit([b"in the next segment"])
        end = world.journals().seal("w1")
        assert world.read(upto=end) == [*groups, b"in the next segment"]
        at = read_whole(world.files, path).index(groups[lost]) - GROUP_HEADER_BYTES - 8
        assert not any(read_whole(world.files, path)[-1_000:])
        world.patch(path, at, bytes(size - at))
        for upto in (end, -1):
            with pytest.raises(CorruptionError, match="damaged at offset"):
                world.read(upto=upto)
        followed = world.journals().follow("w1", None)
        with pytest.raises(CorruptionError, match="damaged at offset"):
            world.journals().follow("w1", followed.position)


def test_any_flipped_bit_of_a_sealed_journal_is_found(memory: World) -> None:
    _, _ = _three_groups(memory)
    end = memory.journals().seal("w1")
    for segment in (2, 3, 4) if memory.form == "create" else (1,):
        path = memory.path(segment)
        data = read_whole(memory.files, path)
        for offset in range(len(data) if memory.form == "create" else unpack_end(end).offset):
            memory.patch(path, offset, bytes([data[offset] ^ (1 << offset % 8)]))
            with pytest.raises(CorruptionError, match=f"{segment:08d}.log"):
                memory.read(upto=end)
            memory.patch(path, offset, data[offset : offset + 1])


def test_damage_before_a_whole_group_stops_the_seal_and_is_never_cut_off() -> None:
    world = memory_world("append")
    _three_groups(world)
    path = world.path(1)
    data = read_whole(world.files, path)
    last = data.index(b"group 2") - GROUP_HEADER_BYTES - 8
    for offset in range(data.index(b"group 0"), last, 7):
        world.patch(path, offset, bytes([data[offset] ^ 4]))
        with pytest.raises(
            CorruptionError, match=r"00000001\.log: damaged at offset \d+: .*a whole one follows"
        ):
            world.journals().seal("w1")
        with pytest.raises(CorruptionError, match="whole one follows"):
            world.read()
        world.patch(path, offset, data[offset : offset + 1])
    assert len(world.read(upto=world.journals().seal("w1"))) == 3


def test_a_damaged_end_is_an_error_that_names_the_file() -> None:
    world = memory_world("append")
    _three_groups(world)
    end = world.journals().seal("w1")
    world.patch(f"{world.root}/journal/w1/SEALED_END", 3, b"\x00")
    for action in (lambda: world.read(upto=end), lambda: world.journals().seal("w1")):
        with pytest.raises(
            CorruptionError, match=r"SEALED_END: it fails its checksum\. Restore it"
        ):
            action()


def test_an_end_of_another_run_is_refused() -> None:
    world = memory_world("append")
    _three_groups(world)
    end = world.journals().seal("w1")
    with pytest.raises(CorruptionError, match="of another run"):
        world.read(upto=end + 1)


def test_a_segment_of_another_journal_is_not_read(world: World) -> None:
    for name in ("w1", "w2"):
        world.journals().create(name).commit([b"a"])
    end = world.journals().seal("w1")
    world.replace(world.path(1), world.content(world.path(1, "w2")))
    with pytest.raises(CorruptionError, match="of w2"):
        world.read(upto=end)


def test_a_missing_segment_in_the_middle_is_an_error(world: World) -> None:
    writer = world.journals(segment_bytes=100).create("w1")
    for _ in range(5):
        writer.commit([bytes(200)])
    end = world.journals().seal("w1")
    world.remove(world.path(3))
    for upto in (end, -1):
        with pytest.raises(CorruptionError, match=r"00000003\.log is missing"):
            world.read(upto=upto)


def test_a_journal_cut_short_behind_its_sealed_end_is_an_error(world: World) -> None:
    _three_groups(world)
    end = world.journals().seal("w1")
    last = 1 if world.form == "append" else 4
    path = world.path(last)
    whole = world.content(path)
    size = len(whole) if world.form == "create" else unpack_end(end).offset
    world.replace(path, whole[: size - 1])
    with pytest.raises(CorruptionError, match="damaged at offset"):
        world.read(upto=end)


def test_nothing_behind_the_sealed_end_is_read() -> None:
    world = memory_world("append")
    writer, groups = _three_groups(world)
    end = world.journals().seal("w1")
    with pytest.raises(FencedError):
        writer.commit([b"whole, but late"])
    assert b"whole, but late" in read_whole(world.files, world.path(1))
    assert world.read(upto=end) == groups == world.read()
