"""All journals of a root: one form, settled once, and names that lead nowhere else."""

from __future__ import annotations

import pytest

from millwheel.adapters.journal.journals import FileJournals, JournalForm
from millwheel.adapters.spaces.durable import make_dirs, read_whole
from millwheel.errors import CorruptionError, SetupError
from millwheel.tools.testing.memory.disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    make_dirs(disk, "/root")
    return disk


@pytest.mark.parametrize("form", ["append", "create"])
def test_who_opens_a_root_first_decides_its_form(disk: MemoryDisk, form: str) -> None:
    assert FileJournals("/root", form, files=disk).form is JournalForm(form)
    assert FileJournals("/root", files=disk).form is JournalForm(form)
    other = "create" if form == "append" else "append"
    with pytest.raises(
        SetupError, match=f"holds journals of the {form} form, but {other} was asked for"
    ):
        FileJournals("/root", other, files=disk)
    assert read_whole(disk, "/root/journal/FORM") == f"{form}\n".encode()


@pytest.mark.parametrize("name", ["", "FORM", "../x", "a/b", ".hidden", "-x", "x" * 129])
def test_a_name_leads_out_of_no_folder(disk: MemoryDisk, name: str) -> None:
    journals = FileJournals("/root", files=disk)
    for act in (
        journals.create,
        journals.seal,
        journals.collect,
        lambda n: list(journals.read(n, -1)),
    ):
        with pytest.raises(SetupError, match="cannot name a worker"):
            act(name)


@pytest.mark.parametrize("form", ["append", "create"])
def test_the_journals_there_are_are_those_that_were_not_collected(
    disk: MemoryDisk, form: str
) -> None:
    journals = FileJournals("/root", form, files=disk)
    for name in ("w1", "w2"):
        journals.create(name).commit([b"x"])
    assert journals.incarnations() == ["w1", "w2"]
    journals.seal("w1")
    assert journals.incarnations() == ["w1", "w2"]
    journals.collect("w1")
    assert journals.incarnations() == ["w2"]


@pytest.mark.parametrize("form", ["append", "create"])
def test_a_reader_may_ask_for_the_entries_of_one_shard(disk: MemoryDisk, form: str) -> None:
    journals = FileJournals("/root", form, files=disk)
    journals.create("w1").commit([b"a1", b"b1", b"a2"])
    assert list(journals.read("w1", journals.seal("w1"), prefix=b"a")) == [b"a1", b"a2"]


def test_a_journal_that_the_table_names_and_nobody_has_is_damage(disk: MemoryDisk) -> None:
    with pytest.raises(
        CorruptionError, match="there is no journal /root/journal/w9, but the range table names it"
    ):
        list(FileJournals("/root", files=disk).read("w9", 0))
