"""Files of the current rows: what a glob sees while they are replaced, by owners that die and by
zombies."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millwheel.adapters.spaces.files import Files
from millwheel.connect.sinks.base import LostError, SinkBatch, SinkRecord, Writer
from millwheel.connect.sinks.files.marker import HIDDEN
from millwheel.connect.sinks.files.sink import build_files
from millwheel.errors import SetupError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk
from tests.fakes.faulty_files import Call, FaultyFiles, Killed, fail_when, kill_at

FOLDER = "/out"
SHARD = "sink.table-0"
OPTIONS = {"path": FOLDER, "mode": "upsert"}


def writer_on(files: Files, token: int) -> Writer:
    return build_files(OPTIONS, "/", files).open(SHARD, token)


def fresh_disk() -> MemoryDisk:
    disk = MemoryDisk()
    build_files(OPTIONS, "/", disk).check("root-1")
    return disk


def batch(number: int, *rows: str, token: int = 1) -> SinkBatch:
    return SinkBatch(
        number, f"{token}-{number}", [SinkRecord(row, {"row": row}, 0) for row in rows]
    )


def visible(disk: MemoryDisk) -> list[str]:
    rows = []
    for name in sorted(name for name in disk.list_dir(FOLDER) if not name.startswith(".")):
        fd = disk.open_read(f"{FOLDER}/{name}")
        rows += [
            json.loads(line)["row"] for line in disk.read_at(fd, disk.size(fd), 0).splitlines()
        ]
        disk.close(fd)
    return rows


def hidden(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list_dir(f"{FOLDER}/{HIDDEN}") if name.endswith(".tmp")]


def test_each_cut_replaces_the_one_before() -> None:
    disk = fresh_disk()
    writer = writer_on(disk, 1)
    first = writer.prepare(batch(0, "a", "b"))
    assert visible(disk) == []
    writer.publish(first)
    second = writer.prepare(batch(1, "b", "c"))
    assert visible(disk) == ["a", "b"]
    writer.publish(second)
    writer.publish(second)
    assert (visible(disk), hidden(disk)) == (["b", "c"], [])
    assert disk.list_dir(FOLDER) == [HIDDEN, "part-sink.table-0.jsonl"]


def test_a_table_without_rows_is_an_empty_file() -> None:
    disk = fresh_disk()
    writer = writer_on(disk, 1)
    writer.publish(writer.prepare(batch(0, "a")))
    writer.publish(writer.prepare(batch(1)))
    assert visible(disk) == []


def test_a_glob_sees_one_cut_or_the_other_at_any_call() -> None:
    disk = fresh_disk()
    writer_on(disk, 1).publish(writer_on(disk, 1).prepare(batch(0, "a", "b")))

    def look(call: Call) -> None:
        assert visible(disk) in (["a", "b"], ["c"])

    writer = writer_on(FaultyFiles(disk, before=look, after=look), 2)
    writer.publish(writer.prepare(batch(1, "c", token=2)))
    assert visible(disk) == ["c"]


def test_a_zombie_that_publishes_between_any_two_calls_of_its_successor_changes_nothing() -> None:
    """The zombie's batch is committed: its successor has its rows, and may have newer ones."""
    for number in range(40):
        disk = fresh_disk()
        zombie = writer_on(disk, 1)
        committable = zombie.prepare(batch(0, "old"))

        def act(zombie: Writer = zombie, committable: bytes = committable) -> None:
            with contextlib.suppress(LostError):
                zombie.publish(committable)

        def interrupt(call: Call, at: int = number, act: Any = act) -> None:
            if call.number == at:
                act()

        successor = writer_on(FaultyFiles(disk, before=interrupt), 2)
        successor.sweep([])
        successor.publish(successor.prepare(batch(0, "old", "new", token=2)))
        act()
        assert (visible(disk), hidden(disk)) == (["old", "new"], []), f"call {number}"


@pytest.mark.parametrize("lose_unsynced", [False, True])
def test_an_owner_that_dies_at_any_call_leaves_one_cut_or_the_other_and_the_next_one_mends_it(
    lose_unsynced: bool,
) -> None:
    def life(files: Files, token: int, *rows: str) -> None:
        writer = writer_on(files, token)
        writer.sweep([])
        writer.publish(writer.prepare(batch(token, *rows, token=token)))

    for number in range(30):
        disk = fresh_disk()
        life(disk, 1, "a")
        with contextlib.suppress(Killed):
            life(FaultyFiles(disk, after=kill_at(number)), 2, "a", "b")
        disk.crash(lose_unsynced)
        assert visible(disk) in (["a"], ["a", "b"]), f"call {number}"
        life(disk, 3, "a", "b")
        assert (visible(disk), hidden(disk)) == (["a", "b"], []), f"call {number}"
        disk.crash()
        assert visible(disk) == ["a", "b"], f"call {number}"


def test_what_newer_owners_and_other_shards_prepared_stays() -> None:
    disk = fresh_disk()
    newer = writer_on(disk, 3).prepare(batch(5, "newer", token=3))
    other = build_files(OPTIONS, "/", disk).open("sink.table-1", 1)
    theirs = other.prepare(batch(0, "theirs"))
    writer_on(disk, 2).sweep([])
    writer_on(disk, 3).publish(newer)
    other.publish(theirs)
    assert visible(disk) == ["newer", "theirs"]


def test_what_is_gone_before_it_was_published_is_told_so_that_it_is_written_again() -> None:
    disk = fresh_disk()
    writer = writer_on(disk, 1)
    committable = writer.prepare(batch(0, "a"))
    writer_on(disk, 2).sweep([])
    with pytest.raises(LostError, match="is gone before it was published"):
        writer.publish(committable)


@pytest.mark.parametrize(
    ("call", "number", "kind"),
    [
        ("rename", errno.EIO, UnavailableError),
        ("rename", errno.EROFS, SetupError),
        ("sync_dir", errno.EIO, UnavailableError),
    ],
)
def test_publishing_that_failed_is_a_sentence_and_can_be_tried_again(
    call: str, number: int, kind: type[Exception]
) -> None:
    disk = fresh_disk()
    writer = writer_on(FaultyFiles(disk, before=fail_when(call, number)), 1)
    committable = writer.prepare(batch(0, "a"))
    with pytest.raises(kind, match="cannot publish /out/part-sink"):
        writer.publish(committable)
    writer.publish(committable)
    assert visible(disk) == ["a"]


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = fresh_disk()
    disk.room = 60
    with pytest.raises(UnavailableError, match="disk is full"):
        writer_on(disk, 1).prepare(batch(0, *"abcdefgh"))
    assert hidden(disk) == []


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_other_formats_hold_the_same_rows(tmp_path: Path, form: str) -> None:
    sink = build_files({"path": "out", "mode": "upsert", "format": form}, str(tmp_path))
    sink.check("root")
    writer = sink.open(SHARD, 1)
    for number, names in enumerate(["ab", "bc"]):
        writer.publish(writer.prepare(batch(number, *names)))
    [file] = (tmp_path / "out").glob("part-*")
    assert file.name == f"part-{SHARD}.{form}"
    assert _rows(file) == ["b", "c"]


def _rows(file: Path) -> Sequence[str]:
    if file.suffix == ".parquet":
        return [row["row"] for row in pq.read_table(file).to_pylist()]
    return file.read_text().splitlines()[1:]
