"""Plug-ins that were written before there were base classes, with their methods only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from millwheel.connect.sources.adapter import as_reader, as_source
from millwheel.connect.sources.base import Chunk, Partition, Reader, Source
from millwheel.errors import SetupError


class OldReader:
    def __init__(self) -> None:
        self.closed = False

    def read(self, position: int, max_records: int) -> Chunk:
        return Chunk([position + 1], ["x"], position + 1)

    def close(self) -> None:
        self.closed = True


class OldSource:
    bounded = False

    def partitions(self) -> Sequence[Partition]:
        return [Partition("p")]

    def open(self, partition: Partition) -> OldReader:
        return OldReader()


def test_a_source_with_the_methods_only_works_with_the_defaults() -> None:
    source = as_source(OldSource())
    source.warm_up()
    assert (source.bounded, source.poll_us, source.list_us) == (False, 50_000, 1_000_000)
    assert source.partitions() == [Partition("p")]


def test_its_readers_have_no_columns_and_need_no_notes() -> None:
    reader = as_source(OldSource()).open(Partition("p"))
    assert isinstance(reader, Reader)
    reader.resume([(0, b"")])
    assert reader.read_frame(0, 100) is None
    assert reader.read(3, 1).positions == [4]


def test_a_wrapped_reader_is_closed() -> None:
    made = OldReader()
    as_reader(made).close()
    assert made.closed


def test_what_a_source_has_wins_over_the_defaults_also_when_it_changes() -> None:
    class Fast(OldSource):
        poll_us = 7
        warm = 0

        def warm_up(self) -> None:
            self.warm += 1

    made = Fast()
    source = as_source(made)
    source.warm_up()
    made.bounded = True
    assert (source.poll_us, made.warm, source.bounded) == (7, 1, True)


def test_a_reader_that_resumes_and_reads_columns_is_asked() -> None:
    told: list[Any] = []

    class Whole(OldReader):
        def resume(self, notes: Any) -> None:
            told.extend(notes)

        def read_frame(self, position: int, max_bytes: int) -> Any:
            return "a frame"

    reader = as_reader(Whole())
    reader.resume([(5, b"n")])
    assert (told, reader.read_frame(0, 1)) == ([(5, b"n")], "a frame")


def test_what_is_derived_is_taken_as_it_is() -> None:
    class New(Source, Reader):
        bounded = True

        def partitions(self) -> Sequence[Partition]:
            return []

        def open(self, partition: Partition) -> Reader:
            return self

        def read(self, position: int, max_records: int) -> Chunk:
            return Chunk([], [], position)

    made = New()
    assert as_source(made) is made
    assert as_reader(made) is made


def test_what_cannot_be_read_is_refused_with_the_fix() -> None:
    with pytest.raises(
        SetupError, match=r"has no bounded and no open and no partitions, which each Source needs"
    ):
        as_source("a queue")
    with pytest.raises(SetupError, match=r"object has no read, .*millwheel\.plugins\.Reader"):
        as_reader(object())
