from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from millwheel.connect.sources.base import (
    Chunk,
    FrameChunk,
    FrameReader,
    LinesChunk,
    Partition,
    Reader,
    ResumingReader,
    Source,
)
from millwheel.core.model.times import MAX_TIME


class Plain(Source, Reader):
    bounded = True

    def partitions(self) -> Sequence[Partition]:
        return [Partition("a")]

    def open(self, partition: Partition) -> Reader:
        return self

    def read(self, position: int, max_records: int) -> Chunk:
        return Chunk([], [], position, finished=True)


def test_what_a_class_does_not_define_has_its_default() -> None:
    plain = Plain()
    plain.warm_up()
    plain.resume([(0, b"")])
    plain.close()
    assert (plain.poll_us, plain.list_us, plain.read_frame(0, 1)) == (50_000, 1_000_000, None)


@pytest.mark.parametrize("kind", [Source, Reader])
def test_what_is_necessary_must_be_defined(kind: type) -> None:
    with pytest.raises(TypeError, match="abstract method"):
        kind()


def test_a_partition_is_known_by_its_name() -> None:
    old, new = Partition("a", (1,), 5), Partition("a", (2,), 6)
    assert old == new
    assert (Partition("a").version, Partition("a").changed_at) == (None, MAX_TIME)


def test_the_length_of_a_read_is_that_of_its_records() -> None:
    assert len(Chunk([1, 2], ["a", "b"], 5)) == 2
    assert len(FrameChunk(np.array([1, 2, 3]), pl.DataFrame({"n": [1, 2, 3]}), 3)) == 3


def test_the_positions_of_many_lines_are_an_array_until_somebody_wants_a_list() -> None:
    read = LinesChunk(np.array([3, 7]), ["a", "b"], 7, [], True, b"n", None)
    assert (len(read), read.held_positions.tolist()) == (2, [3, 7])
    read.positions.append(9)  # a list like any other
    assert read.positions == [3, 7, 9]
    assert Chunk([1, 2], ["a", "b"], 5).held_positions == [1, 2]


def test_earlier_names_can_still_be_imported() -> None:
    assert ResumingReader is FrameReader is Reader
