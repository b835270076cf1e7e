"""The contract of sources holds for sound sources, and catches each of these broken ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from millwheel.connect.sources.base import Chunk, FrameChunk, Partition, Reader, Reject, Source
from millwheel.testing.contracts import Outside, ShardLife, SourceContract
from tests.fakes.small_database import SmallWorld

INPUT = {"a": [1, None, 2, 3, 4, 5], "b": [6], "c": []}


class ListReader(Reader):
    """Rows of a list; None is not a record. Its positions are 10 apart."""

    def __init__(self, rows: Sequence[int | None]) -> None:
        self.rows = rows

    def read(self, position: int, max_records: int) -> Chunk:
        start = position // 10
        part = list(enumerate(self.rows[start : start + max_records], start + 1))
        good = [(number * 10, row) for number, row in part if row is not None]
        bad = [Reject(number * 10, "", "no record") for number, row in part if row is None]
        end = start + len(part)
        values = [{"n": row} for _, row in good]
        return Chunk([at for at, _ in good], values, end * 10, bad, finished=end == len(self.rows))


class ListSource(Source):
    bounded = True
    kind: type[ListReader] = ListReader

    def partitions(self) -> Sequence[Partition]:
        return [Partition(name) for name in INPUT]

    def open(self, partition: Partition) -> Reader:
        return self.kind(INPUT[partition.name])


class InColumns(ListReader):
    def read_frame(self, position: int, max_bytes: int) -> FrameChunk | None:
        import numpy as np

        chunk = self.read(position, 2)
        frame = pl.DataFrame({"n": self.numbers(chunk.values)}, schema={"n": pl.Int64})
        positions = np.array(chunk.positions, np.int64)
        return FrameChunk(positions, frame, chunk.next_position, chunk.rejects, chunk.finished)

    def numbers(self, values: list[Any]) -> list[int]:
        return [value["n"] for value in values]


class OtherColumns(InColumns):
    def numbers(self, values: list[Any]) -> list[int]:
        return [0 for _ in values]


class OffByOne(ListReader):
    """Reads the last record again."""

    def read(self, position: int, max_records: int) -> Chunk:
        return super().read(max(0, position - 10), max_records)


class CountsReads(ListReader):
    """Positions are the numbers of the reads."""

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(position, max_records)
        chunk.positions = [position + 1 + index for index in range(len(chunk.positions))]
        return chunk


class Forgetful(ListReader):
    """Goes on where it was, wherever it is asked to read."""

    def __init__(self, rows: Sequence[int | None]) -> None:
        super().__init__(rows)
        self._at = 0

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(self._at, max_records)
        self._at = chunk.next_position
        return chunk


class BeginsAgain(ListReader):
    """At the end it begins again."""

    def read(self, position: int, max_records: int) -> Chunk:
        return super().read(0 if position >= 10 * len(self.rows) else position, max_records)


class NeverEnds(ListReader):
    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(position, max_records)
        chunk.finished = False
        return chunk


class BeyondTheEnd(ListReader):
    """The next position lies before the last record."""

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(position, max_records)
        if len(chunk) > 1:
            chunk.next_position -= 10
        return chunk


class SwallowsRejects(ListReader):
    """The smaller the read, the fewer the rejects."""

    def read(self, position: int, max_records: int) -> Chunk:
        chunk = super().read(position, max_records)
        if max_records == 1:
            chunk.rejects = []
        return chunk


class SharesItsPlace(ListReader):
    """All readers of a list go on together."""

    indexes: dict[int, int] = {}

    def read(self, position: int, max_records: int) -> Chunk:
        at = 0 if position == 0 else self.indexes.get(id(self.rows), 0)
        chunk = super().read(at, max_records)
        self.indexes[id(self.rows)] = chunk.next_position
        return chunk


class CannotBeClosed(ListReader):
    def __init__(self, rows: Sequence[int | None]) -> None:
        super().__init__(rows)
        self._reads = 0

    def read(self, position: int, max_records: int) -> Chunk:
        self._reads += 1
        return super().read(position, max_records)

    def close(self) -> None:
        assert self._reads, "nothing was read"


class OtherNames(ListSource):
    """Names that no other process finds again."""

    def partitions(self) -> Sequence[Partition]:
        return [Partition(f"{name}-{id(self)}") for name in INPUT]


class OneName(ListSource):
    def partitions(self) -> Sequence[Partition]:
        return [Partition("a"), Partition("a")]


class TestASoundSource(SourceContract):
    def source(self) -> Source:
        return ListSource()

    def values(self) -> list[Any]:
        return [{"n": n} for n in range(1, 7)]


class TestASoundSourceInColumns(SourceContract):
    def source(self) -> Source:
        return of(InColumns)


def of(reader: type[ListReader]) -> Source:
    made = ListSource()
    made.kind = reader
    return made


LISTED = "test_it_can_be_checked_and_lists_the_same_partitions_again"
ENDS = "test_each_partition_ends_if_the_source_is_bounded"
RISE = "test_positions_rise_and_lie_between_those_of_the_reads"
SIZES = "test_reads_of_any_size_give_the_same_records"
GOES_ON = "test_another_reader_goes_on_at_any_position"
ENDED = "test_what_has_ended_stays_ended"
TWO = "test_two_readers_of_a_partition_do_not_disturb_each_other"
COLUMNS = "test_columns_are_the_same_records"
CLOSED = "test_a_reader_can_be_closed_at_any_time"

BROKEN: list[tuple[type[ListReader] | type[ListSource], list[str]]] = [
    (OffByOne, [RISE]),
    (CountsReads, [SIZES]),
    (Forgetful, [GOES_ON]),
    (BeginsAgain, [ENDED]),
    (NeverEnds, [ENDS]),
    (BeyondTheEnd, [RISE]),
    (SwallowsRejects, [SIZES, GOES_ON]),
    (SharesItsPlace, [TWO]),
    (OtherColumns, [COLUMNS]),
    (CannotBeClosed, [CLOSED]),
    (OtherNames, [LISTED]),
    (OneName, [LISTED]),
]


@pytest.mark.parametrize(
    ("broken", "check"),
    [(broken, check) for broken, checks in BROKEN for check in checks],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_broken_source_is_caught(broken: Any, check: str) -> None:
    class Suite(SourceContract):
        patience_s = 0.0

        def source(self) -> Source:
            return broken() if issubclass(broken, Source) else of(broken)

        def values(self) -> list[Any]:
            return [{"n": n} for n in range(1, 7)]

    with pytest.raises(AssertionError):
        getattr(Suite(), check)()


def test_each_check_catches_a_broken_source() -> None:
    checks = {name for name in dir(SourceContract) if name.startswith("test_")}
    assert checks == {check for _, caught in BROKEN for check in caught}


# worlds.py


def test_another_owner_divides_what_was_not_committed_otherwise() -> None:
    world = SmallWorld()
    life = ShardLife(world, [world.value(0, row) for row in range(7)])
    first = life.writer(Outside())
    life.publish(first, life.prepare(first))
    life.owned(Outside())
    assert life.taken == [3, 2, 2]
    assert world.rows() == life.expected() == life.values


def test_refused_values_become_letters_and_are_not_expected() -> None:
    world = SmallWorld()
    values = [world.value(0, row) for row in (0, 13, 1)]
    life = ShardLife(world, values)
    life.owned(Outside())
    assert [(letter.value["row"], letter.reason) for letter in life.letters] == [
        (13, "a row must not be 13")
    ]
    assert world.rows() == life.expected() == [values[0], values[2]]
