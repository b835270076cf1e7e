"""Rolled and partitioned files, in folders and in object stores: what a reader that lists sees at
any moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import xxhash
from obstore.store import MemoryStore

from millwheel.adapters.spaces.object_address import ObjectAddress
from millwheel.adapters.spaces.object_store import ObjectStore
from millwheel.connect.sinks.base import SinkBatch, SinkRecord, Writer
from millwheel.connect.sinks.files.bucket import BucketDestination
from millwheel.connect.sinks.files.content import Content
from millwheel.connect.sinks.files.folder import FolderDestination
from millwheel.connect.sinks.files.layout import (
    Destination,
    Layout,
    LayoutWriter,
    Piece,
    hidden_name,
    left_behind,
)
from millwheel.connect.sinks.files.marker import HIDDEN
from millwheel.connect.sinks.files.open_files import Roll
from millwheel.connect.sinks.files.options import FilesSinkOptions, shape
from millwheel.connect.sinks.files.paths import Partitioning
from millwheel.connect.sinks.files.sink import build_files
from millwheel.errors import CorruptionError, SetupError, UnavailableError
from millwheel.tools.testing.memory.disk import MemoryDisk, nothing
from tests.fakes.faulty_files import Call, FaultyFiles, Killed, kill_at

SHARD = "sink.alerts-0"
ROLL = Roll(200, 60_000_000)
BATCHES = 5


class Store(ObjectStore):
    """A bucket in memory."""

    def __init__(self) -> None:
        super().__init__(ObjectAddress("s3", "bucket", "out"), {})
        self._client = MemoryStore()


class World:
    """A destination, the batches that were committed there, and owners that die."""

    def __init__(self, kind: str, batches: int = BATCHES) -> None:
        self.kind = kind
        self.inner: Any = MemoryDisk() if kind == "folder" else Store()
        self.batches = batches
        self.committed: list[bytes] = []
        self.published = 0
        self.token = 0
        self.destination(self.inner).check("root-1")

    def destination(self, inner: Any) -> Destination:
        if self.kind == "folder":
            return FolderDestination(inner, "/out")
        destination = BucketDestination(inner, "out")
        destination.small_bytes = 0 if self.kind == "staged" else 1 << 20
        return destination

    def writer(
        self, token: int, inner: Any = None, now_us: Callable[[], int] = lambda: 0
    ) -> LayoutWriter:
        options = FilesSinkOptions(path="out")
        layout = Layout("jsonl", Partitioning(["country"]), ROLL)
        return LayoutWriter(
            Content(shape(options)).of,
            layout,
            self.destination(inner or self.inner),
            SHARD,
            token,
            now_us,
        )

    def run(self, before: Any = None, after: Any = None) -> FaultyFiles:
        """One owner's life, as far as it gets: batches are prepared ahead of their publication, by
        one."""
        self.token += 1
        calls = FaultyFiles(self.inner, *(hook or (lambda call: None) for hook in (before, after)))
        try:
            writer = self.writer(self.token, calls)
            writer.sweep(self.committed[self.published :])
            while len(self.committed) < self.batches or self.published < self.batches:
                if len(self.committed) < self.batches and len(self.committed) <= self.published + 1:
                    number = len(self.committed)
                    self.committed.append(writer.prepare(batch(number, f"{self.token}-{number}")))
                else:
                    writer.publish(self.committed[self.published])
                    self.published += 1
        except Killed:
            pass
        return calls

    def names(self) -> list[str]:
        if self.kind == "folder":
            return sorted(self._below("/out"))
        return sorted(found.key.removeprefix("out/") for found in self.inner.list("out/"))

    def _below(self, folder: str) -> list[str]:
        found = []
        for name in self.inner.list_dir(folder):
            path = f"{folder}/{name}"
            is_folder = name == HIDDEN or name.startswith("country=")
            found += self._below(path) if is_folder else [path.removeprefix("/out/")]
        return found

    def content(self, name: str) -> bytes:
        if self.kind != "folder":
            return bytes(self.inner.get(f"out/{name}"))
        fd = self.inner.open_read(f"/out/{name}")
        try:
            return bytes(self.inner.read_at(fd, self.inner.size(fd), 0))
        finally:
            self.inner.close(fd)

    def visible(self) -> list[tuple[int, int]]:
        """What a reader sees that lists the files and reads each whole."""
        names = [name for name in self.names() if not name.startswith(HIDDEN)]
        rows = [json.loads(line) for name in names for line in self.content(name).splitlines()]
        return sorted((row["batch"], row["row"]) for row in rows)

    def hidden(self) -> list[str]:
        return [name for name in self.names() if name.endswith(".tmp")]


def batch(number: int, attempt: str = "1-1") -> SinkBatch:
    rows = [{"batch": number, "row": row, "country": "DE" if row else "FR"} for row in range(3)]
    return SinkBatch(number, attempt, [SinkRecord("k", row, 0) for row in rows])


def rows(batches: int) -> list[tuple[int, int]]:
    return [(number, row) for number in range(batches) for row in range(3)]


@pytest.fixture(params=["folder", "inline", "staged"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("failing", ["folder", "staged"])
def test_a_batch_that_is_prepared_again_is_in_its_files_once(failing: str) -> None:
    """A full disk, say: the runtime asks for the same batch again."""
    world = World(failing, batches=2)
    layout = Layout("jsonl", Partitioning(["country"]), Roll(10_000, 60_000_000))
    destination = world.destination(world.inner)
    hide, failures = destination.hide, [UnavailableError("the disk is full")]

    def hide_later(contents: Any) -> None:
        if failures and b'"batch":1' in contents[0][1]:
            raise failures.pop()
        hide(contents)

    destination.hide = hide_later  # type: ignore[method-assign,assignment]
    content = Content(shape(FilesSinkOptions(path="out"))).of
    writer = LayoutWriter(content, layout, destination, SHARD, 1)
    nowhere = SinkRecord("k", {"batch": 1, "row": 3}, 0)
    second = batch(1, "1-1")
    second.records.append(nowhere)
    writer.publish(writer.prepare(batch(0, "1-0")))
    with pytest.raises(UnavailableError):
        writer.prepare(second)
    writer.publish(writer.prepare(second))
    assert world.visible() == rows(2)
    assert [each.record for each in writer.take_refused()] == [nowhere]


def test_rows_are_added_to_the_open_file_of_their_folder_until_it_is_full(kind: str) -> None:
    world = World(kind)
    world.run()
    assert world.visible() == rows(BATCHES)
    names = [name for name in world.names() if not name.startswith(HIDDEN)]
    assert names == [
        "country=DE/part-sink.alerts-0-00000000.jsonl",
        "country=DE/part-sink.alerts-0-00000003.jsonl",
        "country=FR/part-sink.alerts-0-00000000.jsonl",
    ]
    assert not world.hidden()


def test_a_long_run_leaves_few_files(kind: str) -> None:
    world = World(kind, batches=100)
    world.run()
    assert world.visible() == rows(100)
    size = sum(len(world.content(name)) for name in world.names() if not name.startswith(HIDDEN))
    assert len(world.names()) <= size / ROLL.size + 3


def test_a_file_that_is_old_is_closed(kind: str) -> None:
    world, now = World(kind), [0]
    writer = world.writer(1, now_us=lambda: now[0])
    for number in range(2):
        writer.publish(writer.prepare(batch(number)))
        now[0] += ROLL.every_us
    assert sum("country=DE" in name for name in world.names()) == 2


def test_a_reader_that_lists_sees_each_row_once_after_any_call(kind: str) -> None:
    world = World(kind)
    whole: list[list[tuple[int, int]]] = []

    def look(call: Call) -> None:
        seen = world.visible()
        assert len(set(seen)) == len(seen), call
        assert set(rows(world.published)) <= set(seen) <= set(rows(len(world.committed))), call
        whole.append(seen)

    world.run(before=look, after=look)
    assert all(set(before) <= set(after) for before, after in pairwise(whole))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_call_loses_and_doubles_nothing(kind: str, when: str) -> None:
    for number in range(World(kind).run().calls):
        world = World(kind)
        world.run(**{when: kill_at(number)})
        seen = world.visible()
        assert len(set(seen)) == len(seen), f"call {number}"
        assert set(rows(world.published)) <= set(seen) <= set(rows(len(world.committed))), (
            f"call {number}"
        )
        world.run()
        assert (world.visible(), world.hidden()) == (rows(BATCHES), []), f"call {number}"


@pytest.mark.parametrize(
    "survives", [nothing, lambda count: count, lambda count: count // 2], ids=["0", "all", "half"]
)
def test_a_power_cut_at_any_call_loses_and_doubles_nothing(survives: Any) -> None:
    for number in range(World("folder").run().calls):
        world = World("folder")
        world.run(after=kill_at(number))
        world.inner.crash(True, survives)
        assert set(rows(world.published)) <= set(world.visible()), f"call {number}"
        world.run()
        assert (world.visible(), world.hidden()) == (rows(BATCHES), []), f"call {number}"


def test_a_zombie_that_publishes_late_puts_nothing_older_in_the_place_of_newer_rows(
    kind: str,
) -> None:
    """It may publish what it committed before it was declared dead, between any two calls of its
    successor: all of it, or only the first part, because it died or hung in the middle."""
    for number, count in [(number, count) for number in range(40) for count in (1, 2)]:
        world = World(kind)
        zombie = world.writer(1)
        world.token = 1
        committed = [zombie.prepare(batch(each, f"1-{each}")) for each in range(2)]
        world.committed += committed

        def interrupt(
            call: Call,
            at: int = number,
            zombie: Writer = zombie,
            late: list[bytes] = committed[:count],
        ) -> None:
            if call.number == at:
                for committable in late:
                    zombie.publish(committable)

        world.run(before=interrupt)
        for committable in committed[:count]:
            zombie.publish(committable)
        assert (world.visible(), world.hidden()) == (rows(BATCHES), []), (
            f"call {number}, {count} batches"
        )


def test_rows_of_a_former_owner_are_in_files_of_their_own(kind: str) -> None:
    world = World(kind, batches=1)
    world.run()
    world.batches = 2
    world.run()
    assert sum("country=FR" in name for name in world.names()) == 2


def test_a_record_without_a_folder_is_refused(kind: str) -> None:
    writer = World(kind).writer(1)
    good, bad = SinkRecord("k", {"country": "DE"}, 0), SinkRecord("k", {"land": "DE"}, 0)
    writer.prepare(SinkBatch(0, "1-1", [good, bad]))
    [refused] = writer.take_refused()
    assert refused.record is bad
    assert "country" in refused.reason
    assert writer.take_refused() == []


def test_the_place_of_another_root_is_refused(kind: str) -> None:
    world = World(kind)
    world.destination(world.inner).check("root-1")
    with pytest.raises(SetupError, match="results of another root"):
        world.destination(world.inner).check("root-2")
    world.destination(world.inner).adopt("root-1", "root-2")
    world.destination(world.inner).check("root-2")


def test_results_of_nobody_known_are_refused_in_a_bucket() -> None:
    store = Store()
    store.stage("out/country=DE/part-x-00000000.jsonl", b"{}\n")
    with pytest.raises(SetupError, match="unknown root"):
        BucketDestination(store, "out").check("root-1")


def test_a_store_that_ignores_conditions_is_refused() -> None:
    class Ignorant(Store):
        def write(self, key: str, data: bytes, former: Any, number: int = -1) -> bool:
            self.stage(key, data)
            return True

    with pytest.raises(SetupError, match="If-None-Match"):
        BucketDestination(Ignorant(), "out").check("root-1")


def test_a_foreign_object_in_the_place_of_ours_is_not_overwritten() -> None:
    world = World("inline")
    world.inner.stage("out/country=DE/part-sink.alerts-0-00000000.jsonl", b"mine")
    writer = world.writer(1)
    with pytest.raises(CorruptionError, match="another program"):
        writer.publish(writer.prepare(batch(0)))


def test_the_rows_that_stand_replace_each_other_and_never_an_older_one(kind: str) -> None:
    world = World(kind)
    layout = Layout("jsonl", None, None, latest=True)
    content = Content(shape(FilesSinkOptions(path="out", mode="upsert"))).of

    def writer(token: int) -> LayoutWriter:
        return LayoutWriter(content, layout, world.destination(world.inner), SHARD, token)

    old = writer(1)
    late = old.prepare(batch(0))
    old.publish(late)
    new = writer(2)
    new.sweep([])
    new.publish(new.prepare(batch(1, "2-1")))
    assert world.visible() == [(1, 0), (1, 1), (1, 2)]
    old.publish(late)
    assert world.visible() == [(1, 0), (1, 1), (1, 2)]
    new.publish(new.prepare(SinkBatch(2, "2-2", [])))
    assert world.visible() == []


def test_paths_of_this_machine_may_be_urls(tmp_path: Any) -> None:
    sink = build_files({"path": f"file://{tmp_path}/out"}, "/elsewhere")
    sink.check("root-1")
    writer = sink.open(SHARD, 1)
    writer.publish(writer.prepare(batch(0)))
    assert (tmp_path / "out" / f"part-{SHARD}-00000000.jsonl").exists()


def test_a_sweep_finds_what_former_owners_of_the_shard_left_and_nothing_else() -> None:
    former = [
        hidden_name("sink.out-1", 3, "1-7"),
        hidden_name("sink.out-1", 3, "2-0").replace(".tmp", "-ab12.tmp"),
    ]
    others = [
        hidden_name("sink.out-1", 3, "3-1"),
        hidden_name("sink.out-1", 3, "4-1"),
        hidden_name("sink.out-11", 3, "1-7"),
        "part-sink.out-1-00000003.jsonl",
    ]
    assert left_behind([*others, *former], "sink.out-1", 3) == former


# folder.py: Files that become visible by a rename; test_layout.py has crashes and zombies.

DATA = b"{}\n"
PIECE = Piece(
    "a=1/part-x-00000000.jsonl", "part-x-00000000-1-1-0.tmp", 1, 3, xxhash.xxh3_64_intdigest(DATA)
)


def destination_on(disk: MemoryDisk) -> FolderDestination:
    destination = FolderDestination(disk, "/out")
    destination.check("root-1")
    return destination


def test_a_hidden_file_that_the_disk_has_damaged_is_not_shown() -> None:
    disk = MemoryDisk()
    destination_on(disk).hide([(PIECE.temp, b"xx\n")])
    with pytest.raises(CorruptionError, match="the disk damaged it"):
        destination_on(disk).publish(PIECE, 0)


def test_a_file_that_somebody_removed_before_it_was_published_is_missed() -> None:
    disk = MemoryDisk()
    destination = destination_on(disk)
    destination.hide([(PIECE.temp, DATA)])
    disk.unlink(f"/out/{HIDDEN}/{PIECE.temp}")
    with pytest.raises(CorruptionError, match="with 1 rows of results"):
        destination.publish(PIECE, 0)
