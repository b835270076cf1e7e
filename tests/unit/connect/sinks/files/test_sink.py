"""The files sink: what a plain glob over its folder sees, whatever happens to the processes that
write there."""

from __future__ import annotations

import errno
import glob
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millwheel.adapters.spaces.files import Files
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.connect.sinks.files import sink as files_module
from millwheel.connect.sinks.files.marker import HIDDEN
from millwheel.connect.sinks.files.sink import FilesSink, FilesWriter, build_files
from millwheel.errors import CorruptionError, SetupError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk, nothing
from tests.fakes.faulty_files import Call, FaultyFiles, Killed, fail_when, kill_at

FOLDER = "/out"
SHARD = "sink.alerts-0"


@pytest.fixture(autouse=True, params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether batches travel in their committables or lie in hidden files."""
    if request.param == "large":
        monkeypatch.setattr(files_module, "SMALL_BYTES", -1)
    return str(request.param)


only_large = pytest.mark.parametrize("size", ["large"], indirect=True)


def sink_on(files: Files) -> FilesSink:
    return build_files({"path": FOLDER}, "/", files)


def writer_on(files: Files, token: int) -> FilesWriter:
    return sink_on(files).open(SHARD, token)


def batch(number: int, attempt: str = "1-1", rows: int = 2) -> SinkBatch:
    return SinkBatch(
        number, attempt, [SinkRecord("k", {"cut": number, "row": row}, 0) for row in range(rows)]
    )


def fresh_disk() -> MemoryDisk:
    disk = MemoryDisk()
    sink_on(disk).check("root-1")
    return disk


def content(disk: MemoryDisk, name: str) -> bytes:
    fd = disk.open_read(f"{FOLDER}/{name}")
    try:
        return disk.read_at(fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


def visible(disk: MemoryDisk) -> list[Any]:
    """What ``cat /out/*`` shows."""
    names = [name for name in disk.list_dir(FOLDER) if not name.startswith(".")]
    return [json.loads(line) for name in sorted(names) for line in content(disk, name).splitlines()]


def hidden(disk: MemoryDisk) -> list[str]:
    return [
        f"{HIDDEN}/{name}" for name in disk.list_dir(f"{FOLDER}/{HIDDEN}") if name.endswith(".tmp")
    ]


def rows(*numbers: int) -> list[Any]:
    return [{"cut": number, "row": row} for number in numbers for row in range(2)]


# --- the ordinary course


def test_a_cut_is_invisible_until_it_is_published() -> None:
    disk = fresh_disk()
    writer = writer_on(disk, 1)
    committable = writer.prepare(batch(0))
    assert visible(disk) == []
    writer.publish(committable)
    assert visible(disk) == rows(0)
    assert hidden(disk) == []


def test_the_visible_name_tells_shard_and_number() -> None:
    disk = fresh_disk()
    writer = writer_on(disk, 1)
    writer.publish(writer.prepare(batch(7)))
    assert disk.list_dir(FOLDER) == [HIDDEN, "part-sink.alerts-0-00000007.jsonl"]


def test_a_few_threads_publish_batches_of_many_shards_and_one_thread_those_of_one() -> None:
    sink = sink_on(fresh_disk())
    lanes = [[sink.open(f"out-{number}", token).lane for number in range(200)] for token in (1, 2)]
    assert lanes[0] == lanes[1]
    assert len(set(lanes[0])) == 8


def test_publishing_again_changes_nothing() -> None:
    disk = fresh_disk()
    writer = writer_on(disk, 1)
    committable = writer.prepare(batch(0))
    for again in (writer, writer, writer_on(disk, 2)):
        again.publish(committable)
    assert visible(disk) == rows(0)


@only_large
def test_a_committable_is_small() -> None:
    assert len(writer_on(fresh_disk(), 1).prepare(batch(0, rows=10_000))) < 200


def test_parquet_files_hold_the_same_rows(tmp_path: Path) -> None:
    sink = build_files({"path": "results", "format": "parquet"}, str(tmp_path))
    sink.check("root-1")
    writer = sink.open(SHARD, 1)
    writer.publish(writer.prepare(batch(0)))
    [file] = map(Path, glob.glob(f"{tmp_path}/results/*"))
    assert file.name == "part-sink.alerts-0-00000000.parquet"
    assert pq.read_table(file).to_pylist() == rows(0)


def test_the_globs_of_other_engines_see_no_hidden_files(tmp_path: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    sink = build_files({"path": "results"}, str(tmp_path))
    sink.check("root-1")
    writer = sink.open(SHARD, 1)
    writer.publish(writer.prepare(batch(0)))
    writer.prepare(batch(1))
    everything = f"{tmp_path}/results/*"
    assert duckdb.sql(f"select * from read_json_auto('{everything}')").fetchall() == [
        (0, 0),
        (0, 1),
    ]
    assert polars.scan_ndjson(everything).collect().rows() == [(0, 0), (0, 1)]


# --- crashes


class _World:
    """Two batches, written by owners that die. What was committed survives; only those committables
    are known."""

    def __init__(self) -> None:
        self.disk = fresh_disk()
        self.committed: list[bytes] = []
        self.token = 0

    def run(self, before: Any = None, after: Any = None) -> FaultyFiles:
        """One owner's life, as far as it gets."""
        self.token += 1
        files = FaultyFiles(self.disk, *(hook or (lambda call: None) for hook in (before, after)))
        try:
            writer = writer_on(files, self.token)
            for committable in self.committed:
                writer.publish(committable)
            writer.sweep(self.committed)
            for number in range(len(self.committed), 2):
                committable = writer.prepare(batch(number, f"{self.token}-{number}"))
                self.committed.append(committable)
                writer.publish(committable)
        except Killed:
            pass
        return files


def calls_of_a_life() -> int:
    return _World().run().calls


@pytest.mark.parametrize(
    "survives", [nothing, lambda count: count, lambda count: count // 2], ids=["0", "all", "half"]
)
@pytest.mark.parametrize("lose_unsynced", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_call_loses_and_doubles_nothing(
    when: str, lose_unsynced: bool, survives: Any
) -> None:
    for number in range(calls_of_a_life()):
        world = _World()
        world.run(**{when: kill_at(number)})
        world.disk.crash(lose_unsynced, survives)
        assert visible(world.disk) in ([], rows(0), rows(0, 1)), f"call {number}"
        world.run()
        assert visible(world.disk) == rows(0, 1), f"call {number}"
        assert hidden(world.disk) == [], f"call {number}"


def test_what_is_published_stays_after_a_power_cut() -> None:
    world = _World()
    world.run()
    world.disk.crash()
    assert visible(world.disk) == rows(0, 1)


def test_a_second_crash_during_recovery_changes_nothing() -> None:
    for first in range(calls_of_a_life()):
        for second in range(0, calls_of_a_life(), 3):
            world = _World()
            world.run(after=kill_at(first))
            world.run(after=kill_at(second))
            world.run()
            assert (visible(world.disk), hidden(world.disk)) == (rows(0, 1), []), (
                f"calls {first}, {second}"
            )


def test_a_glob_sees_only_whole_committed_files_at_any_call() -> None:
    world = _World()

    def look(call: Call) -> None:
        assert visible(world.disk) in ([], rows(0), rows(0, 1))

    world.run(before=look, after=look)
    assert visible(world.disk) == rows(0, 1)


# --- zombies


def test_a_zombie_that_publishes_between_any_two_calls_changes_nothing() -> None:
    for number in range(20):
        disk = fresh_disk()
        zombie = writer_on(disk, 1)
        committable = zombie.prepare(batch(0))

        def interrupt(
            call: Call,
            at: int = number,
            zombie: FilesWriter = zombie,
            committable: bytes = committable,
        ) -> None:
            if call.number == at:
                zombie.publish(committable)

        writer_on(FaultyFiles(disk, before=interrupt), 2).publish(committable)
        zombie.publish(committable)
        assert (visible(disk), hidden(disk)) == (rows(0), []), f"call {number}"


def test_sweeping_removes_what_older_owners_never_committed() -> None:
    disk = fresh_disk()
    writer_on(disk, 1).prepare(batch(0, "1-1"))
    writer_on(disk, 2).sweep([])
    assert hidden(disk) == []


@only_large
def test_sweeping_leaves_the_files_of_newer_owners_and_other_shards() -> None:
    disk = fresh_disk()
    writer_on(disk, 3).prepare(batch(0, "3-1"))
    sink_on(disk).open("sink.alerts-01", 1).prepare(batch(0, "1-1"))
    writer_on(disk, 2).sweep([])
    assert len(hidden(disk)) == 2


def test_sweeping_leaves_what_is_committed_but_not_yet_published() -> None:
    disk = fresh_disk()
    committable = writer_on(disk, 1).prepare(batch(0))
    writer_on(disk, 2).sweep([committable])
    writer_on(disk, 2).publish(committable)
    assert visible(disk) == rows(0)


def test_publishers_that_race_on_a_real_disk_show_whole_files_only(tmp_path: Path) -> None:
    sink = build_files({"path": "results"}, str(tmp_path))
    sink.check("root-1")
    first = sink.open(SHARD, 1)
    committables = [first.prepare(batch(number, rows=200)) for number in range(30)]
    errors: list[Exception] = []

    def publish_all(token: int) -> None:
        try:
            writer = sink.open(SHARD, token)
            for committable in committables:
                writer.publish(committable)
        except Exception as ex:  # whatever a thread raises must reach the test
            errors.append(ex)

    publishers = [threading.Thread(target=publish_all, args=(token,)) for token in (1, 2, 3)]
    for publisher in publishers:
        publisher.start()
    while any(publisher.is_alive() for publisher in publishers):
        for file in glob.glob(f"{tmp_path}/results/*"):
            assert Path(file).read_bytes().count(b"\n") == 200
    assert errors == []
    assert len(list((tmp_path / "results").glob("*.jsonl"))) == 30


# --- trouble


@only_large
def test_a_full_disk_is_a_sentence_and_leaves_nothing_behind() -> None:
    disk = fresh_disk()
    disk.room = 150
    with pytest.raises(UnavailableError, match="disk is full; free some space"):
        writer_on(disk, 1).prepare(batch(0, rows=100))
    assert hidden(disk) == []
    disk.room = 1 << 20
    writer = writer_on(disk, 1)
    writer.publish(writer.prepare(batch(0)))
    assert visible(disk) == rows(0)


@pytest.mark.parametrize("size", ["small"], indirect=True)
def test_a_small_cut_waits_for_no_disk_until_it_is_published() -> None:
    disk = fresh_disk()
    disk.room = 100
    writer = writer_on(disk, 1)
    committable = writer.prepare(batch(0))
    assert hidden(disk) == []
    disk.room = 20
    with pytest.raises(UnavailableError, match="disk is full; free some space"):
        writer.publish(committable)
    assert (visible(disk), hidden(disk)) == ([], [])
    disk.room = 1 << 20
    writer.publish(committable)
    assert (visible(disk), hidden(disk)) == (rows(0), [])


def test_the_same_attempt_may_be_prepared_again() -> None:
    disk = fresh_disk()
    writer = writer_on(disk, 1)
    writer.prepare(batch(0, rows=9))
    writer.publish(writer.prepare(batch(0)))
    assert visible(disk) == rows(0)


@only_large
def test_a_read_only_disk_is_for_people_to_fix() -> None:
    files = FaultyFiles(fresh_disk(), before=fail_when("create", errno.EROFS))
    with pytest.raises(SetupError, match="read-only; choose another path"):
        writer_on(files, 1).prepare(batch(0))


@pytest.mark.parametrize("call", ["link", "sync_dir", "unlink"])
def test_publishing_that_failed_can_be_tried_again(call: str) -> None:
    disk = fresh_disk()
    files = FaultyFiles(disk)
    writer = writer_on(files, 1)
    committable = writer.prepare(batch(0))
    files.before = fail_when(call, errno.EIO)
    with pytest.raises(UnavailableError):
        writer.publish(committable)
    writer.publish(committable)
    assert (visible(disk), hidden(disk)) == (rows(0), [])


@only_large
def test_results_that_somebody_removed_are_told() -> None:
    disk = fresh_disk()
    committable = writer_on(disk, 1).prepare(batch(0))
    disk.unlink(f"{FOLDER}/{hidden(disk)[0]}")
    with pytest.raises(CorruptionError, match=r"00000000.jsonl is gone, with 2 rows"):
        writer_on(disk, 2).publish(committable)


def test_another_file_in_the_place_of_a_cut_is_told() -> None:
    disk = fresh_disk()
    committable = writer_on(disk, 1).prepare(batch(0))
    disk.close(disk.create(f"{FOLDER}/part-{SHARD}-00000000.jsonl"))
    with pytest.raises(CorruptionError, match="move it out of the folder"):
        writer_on(disk, 1).publish(committable)


@only_large
def test_a_damaged_hidden_file_never_becomes_visible() -> None:
    disk = fresh_disk()
    committable = writer_on(disk, 1).prepare(batch(0))
    fd = disk.open_write(f"{FOLDER}/{hidden(disk)[0]}")
    disk.write_at(fd, b"X", 3)
    with pytest.raises(CorruptionError, match="the disk damaged it"):
        writer_on(disk, 2).publish(committable)
    assert visible(disk) == []
