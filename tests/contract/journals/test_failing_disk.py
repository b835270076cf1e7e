"""The journals port: a disk that is full, read-only or broken."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from millwheel.core.formats.journal_segment import unpack_end
from millwheel.errors import (
    MillwheelError,
    SetupError,
    UnavailableError,
)
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.contract.journals.world import World, memory_world
from tests.fakes.faulty_files import FaultyFiles, fail_when


def test_a_full_disk_is_told_and_leaves_no_garbage_behind(memory: World) -> None:
    disk = memory.files
    assert isinstance(disk, MemoryDisk)
    writer = memory.journals().create("w1")
    writer.commit([b"a" * 100])
    disk.room -= disk.free_bytes("/") - 60
    with pytest.raises(UnavailableError, match="Free some space"):
        writer.commit([b"too large " * 1_000])
    disk.room += 20_000
    writer.commit([b"after"])
    assert memory.read() == [b"a" * 100, b"after"]
    assert memory.read(upto=memory.journals().seal("w1")) == [b"a" * 100, b"after"]


def test_a_disk_without_space_for_room_takes_groups_while_it_has_space_for_them() -> None:
    world = memory_world("append in room")
    disk = world.files
    assert isinstance(disk, MemoryDisk)
    writer = world.journals().create("w1")
    disk.room -= disk.free_bytes("/") - 1_000
    groups = [b"group %d" % number + bytes(80) for number in range(20)]
    written = []
    with suppress(UnavailableError):
        for group in groups:
            writer.commit([group])
            written.append(group)
    assert 5 <= len(written) < 20
    assert world.read() == written
    disk.room += 20_000
    for group in groups[len(written) :]:
        writer.commit([group])
    end = world.journals().seal("w1")
    assert disk.size(disk.open_read(world.path(1))) > unpack_end(end).offset
    assert world.read(upto=end) == groups


@pytest.mark.parametrize("call", ["sync_data", "write_at"])
def test_a_write_over_zeros_that_fails_may_or_may_not_stand(call: str) -> None:
    world = memory_world("append in room")
    files = FaultyFiles(world.files)
    writer = world.journals(files).create("w1")
    writer.commit([b"a"])
    files.before = fail_when(call, errno.EIO)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="not known, so this process must exit"):
            writer.commit([b"b"])
    assert world.read()[:1] == [b"a"]


@pytest.mark.parametrize("call", ["write_at", "create", "link", "sync", "sync_dir"])
def test_a_failing_call_leaves_the_journal_consistent(on_disk: World, call: str) -> None:
    files = FaultyFiles(on_disk.files)
    writer = on_disk.journals(files, segment_bytes=250).create("w1")
    acked = []
    for number in range(6):
        entry = b"entry %d" % number + bytes(100)
        files.before = fail_when(call, errno.EIO)
        with suppress(UnavailableError):
            writer.commit([entry])
            acked.append(entry)
            continue
        files.before = lambda call: None
        with suppress(MillwheelError):
            writer.commit([entry])
            acked.append(entry)
    files.before = lambda call: None
    found = on_disk.read()
    assert found == acked
    assert on_disk.read(upto=on_disk.journals().seal("w1")) == acked


def test_after_a_failed_sync_nothing_more_is_acked(on_disk: World) -> None:
    files = FaultyFiles(on_disk.files)
    writer = on_disk.journals(files).create("w1")
    writer.commit([b"a"])
    files.before = fail_when(
        "sync_data" if on_disk.form == "append" else "sync", errno.EIO, times=100
    )
    with pytest.raises(UnavailableError):
        writer.commit([b"b"])
    if on_disk.form == "append":
        files.before = lambda call: None
        with pytest.raises(UnavailableError, match="not known, so this process must exit"):
            writer.commit([b"b"])
    assert on_disk.read()[:1] == [b"a"]


def test_a_read_only_root_is_a_matter_of_setup(on_disk: World) -> None:
    files = FaultyFiles(on_disk.files)
    journals = on_disk.journals(files)
    files.before = fail_when("make_dir", errno.EROFS)
    with pytest.raises(SetupError, match="Make the root writable"):
        journals.create("w1")


def test_a_seal_that_cannot_be_looked_for_stops_the_acks(on_disk: World) -> None:
    files = FaultyFiles(on_disk.files)
    writer = on_disk.journals(files).create("w1")
    files.before = fail_when("exists" if on_disk.form == "append" else "link", errno.EIO)
    with pytest.raises(UnavailableError):
        writer.commit([])


def test_a_create_whose_answer_was_lost_counts_once(memory: World) -> None:
    files = FaultyFiles(memory.files)
    writer = memory.journals(files, segment_bytes=1).create("w1")
    writer.commit([b"a"])
    files.after = fail_when("link", errno.EIO)
    with pytest.raises(UnavailableError):
        writer.commit([b"b"])
    writer.commit([b"b"])
    writer.commit([b"c"])
    assert memory.read() == [b"a", b"b", b"c"]
