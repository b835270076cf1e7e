"""The guarantees of each source: a position identifies a point of the input, and the same point on
every reading."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from millwheel.connect.plug_ins import as_reader, as_source
from millwheel.connect.sources.base import Chunk, FrameChunk, Partition, Reader, Source

_SIZES = (1, 2, 3, 7, 1_000)  # of reads: one by one, prime to each other, and all at once
_PAUSE_S = 0.002  # between reads of a source that fetches in the background
_MOST_READS = 10_000  # more reads mean that the source does not end


@dataclass(slots=True)
class Reading:
    """The outcome of reading a partition: records and rejects with their positions, and the
    positions at which a reader can resume, each with the notes that this reader gets."""

    records: list[tuple[int, Any]] = field(default_factory=list)
    rejects: list[int] = field(default_factory=list)
    stops: list[tuple[int, list[tuple[int, bytes]]]] = field(default_factory=list)
    finished: bool = False


class SourceContract(ABC):
    """A base class for a test class; its methods are tests for pytest. The input must not change
    during a test."""

    patience_s: float = 5.0
    """How long a bounded source may return nothing before it counts as endless (s)."""

    @abstractmethod
    def source(self) -> Source:
        """A source as a new process creates it, for the same input on every call in a test."""

    def values(self) -> list[Any] | None:
        """The values in the input: one list for all partitions, in the order of their names. None
        if the test cannot list them."""
        return None

    # --- the checks

    def test_it_can_be_checked_and_lists_the_same_partitions_again(self) -> None:
        source = self._source()
        source.check()
        first, again, other = source.partitions(), source.partitions(), self._source().partitions()
        names = [partition.name for partition in first]
        assert len(names) == len(set(names)), f"two partitions have one name: {names}"
        assert names, "there is no partition: there is nothing to test"
        for more in (again, other):
            assert sorted(names) == sorted(each.name for each in more), (
                "another look finds other partitions"
            )

    def test_each_partition_ends_if_the_source_is_bounded(self) -> None:
        values = []
        for partition in self._partitions():
            reading = self._read(partition, 7)
            assert reading.finished == self._source().bounded, (
                f"{partition.name}: finished is {reading.finished}"
            )
            values += [value for _, value in reading.records]
        expected = self.values()
        assert expected is None or values == expected, f"reading gives\n{values}, not\n{expected}"

    def test_positions_rise_and_lie_between_those_of_the_reads(self) -> None:
        for partition in self._partitions():
            for size in _SIZES:
                for start, chunk in self._chunks(partition, size):
                    _in_order(partition.name, start, chunk)

    def test_reads_of_any_size_give_the_same_records(self) -> None:
        for partition in self._partitions():
            whole = self._read(partition, _SIZES[-1])
            for size in _SIZES[:-1]:
                part = self._read(partition, size)
                where = f"{partition.name} in pieces of {size}"
                assert part.records == whole.records, f"{where}: other records, or other positions"
                assert part.rejects == whole.rejects, f"{where}: other rejects"

    def test_another_reader_goes_on_at_any_position(self) -> None:
        for partition in self._partitions():
            whole = self._read(partition, 1)
            for position, notes in whole.stops:
                rest = self._read(partition, 3, position, notes)
                expected = [each for each in whole.records if each[0] > position]
                assert rest.records == expected, (
                    f"{partition.name}: reading from {position} does not give the rest"
                )
                assert rest.rejects == [at for at in whole.rejects if at > position]

    def test_what_has_ended_stays_ended(self) -> None:
        for partition in self._partitions():
            whole = self._read(partition, 100)
            position, notes = whole.stops[-1]
            again = self._read(partition, 100, position, notes)
            assert (again.records, again.finished) == (
                [],
                whole.finished,
            ), f"{partition.name}: there is more at its end"

    def test_two_readers_of_a_partition_do_not_disturb_each_other(self) -> None:
        """One of them may belong to a worker that was declared dead."""
        for partition in self._partitions():
            whole = self._read(partition, 2)
            source = self._source()
            one, other = (
                _chunks(_open(source, partition), 2, patience_s=self._patience()) for _ in range(2)
            )
            readings: tuple[list[Any], list[Any]] = ([], [])
            for pair in zip_longest(one, other):
                for records, read in zip(readings, pair, strict=True):
                    records += zip(read[1].positions, read[1].values, strict=True) if read else ()
            assert readings[0] == readings[1] == whole.records, (
                f"{partition.name}: two readers at a time disturb each other"
            )

    def test_columns_are_the_same_records(self) -> None:
        for partition in self._partitions():
            reader = _open(self._source(), partition)
            frames = _frames(reader)
            reader.close()
            if frames is None:
                continue
            whole = self._read(partition, 1_000)
            positions = [int(position) for frame in frames for position in frame.positions]
            assert positions == [position for position, _ in whole.records], (
                f"{partition.name}: other positions"
            )
            rows = [row for frame in frames for row in frame.frame.to_dicts()]
            for row, (position, value) in zip(rows, whole.records, strict=True):
                declared = (
                    {name: value.get(name) for name in row} if isinstance(value, dict) else row
                )
                assert row == declared, f"{partition.name}: the columns at {position} differ"
            assert [each.position for frame in frames for each in frame.rejects] == whole.rejects

    def test_a_reader_can_be_closed_at_any_time(self) -> None:
        for partition in self._partitions():
            for reads in range(3):
                reader = _open(self._source(), partition)
                for _, (_, _) in zip(range(reads), _chunks(reader, 1, close=False), strict=False):
                    pass
                reader.close()

    # --- how they are done

    def _source(self) -> Source:
        return as_source(self.source())

    def _patience(self) -> float:
        return self.patience_s if self._source().bounded else 0.0

    def _partitions(self) -> Sequence[Partition]:
        return sorted(self._source().partitions(), key=lambda partition: partition.name)

    def _chunks(self, partition: Partition, size: int) -> Iterator[tuple[int, Chunk]]:
        return _chunks(_open(self._source(), partition), size, patience_s=self._patience())

    def _read(
        self,
        partition: Partition,
        size: int,
        position: int = 0,
        notes: Sequence[tuple[int, bytes]] = (),
    ) -> Reading:
        reading = Reading(stops=[(position, list(notes))])
        reader = _open(self._source(), partition, notes or [(position, b"")])
        decisions: list[tuple[int, bytes]] = [
            note for note in list(notes)[1:] if note[0] >= position
        ]
        for _, chunk in _chunks(reader, size, position, patience_s=self._patience()):
            reading.records += zip(chunk.positions, chunk.values, strict=True)
            reading.rejects += [each.position for each in chunk.rejects]
            if chunk.begins is not None:
                decisions.append(chunk.begins)
            later = [note for note in decisions if note[0] >= chunk.next_position]
            reading.stops.append((chunk.next_position, [(chunk.next_position, chunk.note), *later]))
            reading.finished = chunk.finished
        return reading


def _open(
    source: Source, partition: Partition, notes: Sequence[tuple[int, bytes]] = ((0, b""),)
) -> Reader:
    reader = as_reader(source.open(partition))
    reader.resume(notes)
    return reader


def _chunks(
    reader: Reader, size: int, position: int = 0, close: bool = True, patience_s: float = 0.0
) -> Iterator[tuple[int, Chunk]]:
    """(Position, chunk read there), up to the end or until the source has nothing for now."""
    until = time.monotonic() + patience_s
    try:
        for _ in range(_MOST_READS):
            chunk = reader.read(position, size)
            still = chunk.next_position == position and chunk.begins is None and not chunk.finished
            if still and not len(chunk) and time.monotonic() < until:
                time.sleep(_PAUSE_S)
                continue
            yield position, chunk
            if chunk.finished or (still and not len(chunk)):
                return
            position, until = chunk.next_position, time.monotonic() + patience_s
    finally:
        if close:
            reader.close()
    raise AssertionError(f"the partition did not end within {_MOST_READS} reads of {size} records")


def _frames(reader: Reader) -> list[FrameChunk] | None:
    frames: list[FrameChunk] = []
    position = 0
    while True:
        frame = reader.read_frame(position, 200)
        if frame is None:
            return None
        frames.append(frame)
        if frame.finished or (frame.next_position == position and not len(frame)):
            return frames
        position = frame.next_position


def _in_order(name: str, start: int, chunk: Chunk) -> None:
    where = f"{name}, read from {start}"
    assert len(chunk.positions) == len(chunk.values), f"{where}: not one position for each record"
    positions = sorted([*chunk.positions, *(each.position for each in chunk.rejects)])
    assert len(positions) == len(set(positions)), (
        f"{where}: two records or rejects have one position"
    )
    assert list(chunk.positions) == sorted(chunk.positions), f"{where}: positions do not rise"
    assert all(start < position <= chunk.next_position for position in positions), (
        f"{where}: positions must be greater than that, and at most next_position"
        f" {chunk.next_position}: {positions}"
    )
