from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from millwheel.connect.sources.base import ENDS, Chunk, Partition, Reader, Source
from millwheel.core.model.ranges import SPACE
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND
from millwheel.core.pipeline.spec import SourceSpec, StreamSpec
from millwheel.engine.workers.sources.partitions import (
    Partitions,
    decode_partitions,
    kept_ends,
    spread_of,
)
from millwheel.engine.workers.sources.source_parts import SourceParts
from millwheel.errors import CorruptionError, ExhaustedError
from tests.fakes.plain_storage import SimStore


class Opened(Reader):
    def __init__(self) -> None:
        self.notes: Any = None
        self.closed = False

    def resume(self, notes: Any) -> None:
        self.notes = notes

    def read(self, position: int, max_records: int) -> Chunk:
        return Chunk([], [], position)

    def close(self) -> None:
        self.closed = True


class Folder(Source):
    bounded = False

    def __init__(self, *names: str) -> None:
        self.listed = [Partition(name, (1,), 0) for name in names]

    def partitions(self) -> list[Partition]:
        return self.listed

    def open(self, partition: Partition) -> Opened:
        return Opened()


def partitions(folder: Folder, mine: Any = lambda name: True) -> Partitions:
    stream = StreamSpec("s", SourceSpec("files", {}), timestamp="ts")
    nothing: Any = None
    parts = SourceParts("p", "source.s", stream, folder, folder.partitions, mine, nothing, nothing)
    return Partitions(parts, SimStore({}), lambda: False, 0)


def test_a_shard_opens_what_falls_into_its_range_and_nothing_else() -> None:
    made = partitions(Folder("a", "b"), lambda name: name == "b")
    made.look(0)
    assert made.awake.keys() == {"b"}


def test_a_source_without_partitions_has_no_watermark_or_is_over_when_bounded() -> None:
    folder = Folder()
    made = partitions(folder)
    assert made.hold(0).at == IDLE_TIME
    folder.bounded = True
    assert made.hold(0).at == MAX_TIME


def test_what_was_listed_and_not_opened_yet_may_hold_anything() -> None:
    made = partitions(Folder(*(f"{number}" for number in range(600))))
    made.look(0)
    assert len(made.awake) < 600
    assert (made.hold(0).at, "not opened yet" in made.hold(0).holder) == (MIN_TIME, True)


def test_a_reader_is_told_where_the_one_before_it_was() -> None:
    made = partitions(Folder("a"))
    made.look(0)
    part = made.awake["a"]
    reader: Any = made.reader_of(part, 0)
    assert reader.notes == [(0, b"")]
    assert made.reader_of(part, 1) is reader


def test_who_has_been_silent_falls_asleep_closed_and_another_version_wakes_it() -> None:
    folder = Folder("a")
    made = partitions(folder)
    made.look(0)
    part = made.awake["a"]
    reader: Any = made.reader_of(part, 0)
    part.silence.nothing(20 * SECOND)
    made.fall_asleep(part, 20 * SECOND)
    assert (made.awake, reader.closed) == ({}, True)
    made.look(21 * SECOND)
    assert made.awake == {}
    folder.listed = [Partition("a", (2,), 0)]
    made.look(22 * SECOND)
    assert (made.awake, part.next_poll_us) == ({"a": part}, 22 * SECOND)


def test_a_name_that_is_gone_is_looked_at_once_more_and_then_closed() -> None:
    folder = Folder("a")
    made = partitions(folder)
    made.look(0)
    part = made.awake["a"]
    part.certain = True
    folder.listed = []
    made.look(SECOND)
    assert made.awake == {"a": part}, "it may have got something before it went"
    part.silence.nothing(2 * SECOND)
    made.look(3 * SECOND)
    assert made.awake == {}


def test_of_those_that_can_be_read_the_one_that_is_furthest_behind_is_next() -> None:
    made = partitions(Folder("a", "b"))
    made.look(0)
    a, b = made.awake["a"], made.awake["b"]
    a.max_timestamp, b.max_timestamp = 5, 3
    assert made.choose([a, b]) is b


def test_what_cannot_be_opened_now_costs_the_file_that_was_silent_longest() -> None:
    made = partitions(Folder("a", "b"))
    made.look(0)
    a, b = made.awake["a"], made.awake["b"]
    reader: Any = made.reader_of(a, 0)
    made.exhausted(b, ExhaustedError("too many"), SECOND)
    assert (reader.closed, b.next_poll_us) == (True, 2 * SECOND)


def test_event_time_stands_still_until_the_partitions_are_known() -> None:
    """They may hold old records; to count as idle would let the other streams pass them."""
    listing: list[Exception] = [ExhaustedError("Kafka has not said yet")]

    class Away(Folder):
        def partitions(self) -> list[Partition]:
            if listing:
                raise listing[0]
            return super().partitions()

    held = partitions(Away())
    held.look(0)
    assert held.hold(0).at == MIN_TIME
    listing.clear()
    held.look(SECOND)
    assert held.hold(0).at == IDLE_TIME


def test_a_partition_whose_version_is_its_end_does_not_sleep_before_it_is_read() -> None:
    """A broker that is slow to answer looks like silence, and no later listing would wake it."""
    folder = Folder("a")
    stream = StreamSpec("s", SourceSpec("files", {}), timestamp="ts")
    nothing: Any = None
    parts = SourceParts(
        "p",
        "source.s",
        stream,
        folder,
        folder.partitions,
        lambda name: True,
        nothing,
        nothing,
        to_the_ends=True,
    )
    made = Partitions(parts, SimStore({}), lambda: False, 0)
    made.look(0)
    part = made.awake["a"]
    part.silence.nothing(60 * SECOND)
    made.fall_asleep(part, 60 * SECOND)
    assert "a" in made.awake
    part.certain = True
    made.fall_asleep(part, 60 * SECOND)
    assert "a" not in made.awake


def test_a_partition_of_a_bounded_source_never_sleeps() -> None:
    folder = Folder("a")
    folder.bounded = True
    made = partitions(folder)
    made.look(0)
    part = made.awake["a"]
    part.silence.nothing(60 * SECOND)
    made.fall_asleep(part, 60 * SECOND)
    assert "a" in made.awake


def test_partitions_are_spread_evenly_over_the_key_space() -> None:
    found = sorted(
        spread_of([Partition("a"), Partition("b"), Partition("c"), Partition("d")]).values()
    )
    assert found == [SPACE // 8, 3 * SPACE // 8, 5 * SPACE // 8, 7 * SPACE // 8]


def test_the_ends_of_sources_are_read_by_stream_and_damage_is_corruption(tmp_path: Path) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / f"hits{ENDS}").write_bytes(msgspec.json.encode([Partition("a")]))
    assert kept_ends(tmp_path) == {"hits": [Partition("a")]}
    with pytest.raises(CorruptionError):
        decode_partitions(b"[")
