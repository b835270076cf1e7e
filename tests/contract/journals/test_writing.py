"""The journals port: entries in, entries out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.adapters.journal.journals import FileJournals
from millwheel.errors import (
    CorruptionError,
    FencedError,
    InvariantError,
    SetupError,
)
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.contract.journals.world import FORMS, World, memory_world


def test_entries_come_back_in_the_order_they_were_committed(world: World) -> None:
    writer = world.journals().create("w1")
    writer.commit([b"a", b"", b"b" * 1000])
    writer.commit([b"c"])
    assert world.read() == [b"a", b"", b"b" * 1000, b"c"]


def test_a_commit_names_a_segment_that_exists(world: World) -> None:
    writer = world.journals(segment_bytes=200).create("w1")
    for _ in range(10):
        assert writer.commit([b"x" * 50]) == writer.segments()[-1]
    assert len(writer.segments()) > 1
    assert world.read() == [b"x" * 50] * 10


def test_an_empty_commit_adds_no_entry_and_finds_the_seal(world: World) -> None:
    writer = world.journals().create("w1")
    writer.commit([])
    assert world.read() == []
    world.journals().seal("w1")
    with pytest.raises(FencedError, match="sealed"):
        writer.commit([])


def test_a_live_journal_reads_what_is_durable_now(world: World) -> None:
    writer = world.journals().create("w1")
    writer.commit([b"a"])
    assert world.read() == [b"a"]
    writer.commit([b"b"])
    assert world.read() == [b"a", b"b"]


def test_a_name_is_used_once(world: World) -> None:
    world.journals().create("w1").close()
    with pytest.raises(FencedError, match="used or sealed before"):
        world.journals().create("w1")


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 200, "FORM"])
def test_a_name_that_could_leave_the_folder_is_refused(world: World, name: str) -> None:
    with pytest.raises(SetupError, match="cannot name a worker"):
        world.journals().create(name)


def test_a_closed_writer_says_so(world: World) -> None:
    writer = world.journals().create("w1")
    writer.close()
    writer.close()
    with pytest.raises(InvariantError, match="closed"):
        writer.commit([b"a"])


@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(st.lists(st.binary(max_size=300), max_size=6), max_size=12),
    form=st.sampled_from(FORMS),
)
def test_any_groups_come_back(groups: list[list[bytes]], form: str) -> None:
    world = memory_world(form)
    writer = world.journals(segment_bytes=400).create("w1")
    for group in groups:
        writer.commit(group)
    entries = [entry for group in groups for entry in group]
    assert world.read() == entries
    assert world.read(upto=world.journals().seal("w1")) == entries


def test_the_journal_of_an_unknown_worker_is_an_error(world: World) -> None:
    with pytest.raises(CorruptionError, match="there is no journal"):
        world.read("w9")


def test_all_incarnations_are_listed(world: World) -> None:
    journals = world.journals()
    journals.create("w2")
    journals.seal("w1")
    assert journals.incarnations() == ["w1", "w2"]


def test_the_form_of_a_root_is_settled_once(on_disk: World) -> None:
    on_disk.journals()
    other = {"append": "create", "create": "append"}[on_disk.form]
    assert FileJournals(on_disk.root, files=on_disk.files).form.value == on_disk.form
    with pytest.raises(SetupError, match=f"holds journals of the {on_disk.form} form"):
        FileJournals(on_disk.root, other, files=on_disk.files)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("ext4", "append"),
        ("ceph", "append"),
        ("nfs4", "create"),
        ("fuse.s3fs", "create"),
        ("", "create"),
    ],
)
def test_the_file_system_chooses_the_form(kind: str, form: str) -> None:
    disk = MemoryDisk()
    disk.kind = lambda path: kind  # type: ignore[method-assign]
    assert FileJournals("/root", files=disk).form.value == form


def test_an_unknown_form_on_the_root_is_told() -> None:
    world = memory_world("append")
    world.journals()
    world.patch("/root/journal/FORM", 0, b"XXXXXX")
    with pytest.raises(CorruptionError, match="append or create"):
        world.journals()
