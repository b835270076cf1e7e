"""A table as one worker reads it: which row of a key it holds, and how much it may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from millwheel.adapters.waits import Wait
from millwheel.connect.sources.base import Chunk, Partition, Reader, Source
from millwheel.core.expressions.fields import field_reader
from millwheel.core.model.keys import key_bytes
from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.core.rows.latest import DELETED_FIELD, deletion
from millwheel.engine.workers.operators.broadcast.table import (
    HeldTable,
    TableSource,
    key_bytes_of,
)
from millwheel.errors import ExhaustedError, RecordError, SetupError
from tests.sim.mistakes import replaced

Row = dict[str, Any]


class Parts(Source):
    """Partitions of rows, of which some cannot be opened for a while."""

    bounded = True
    poll_us = 20_000

    def __init__(self, **rows: list[Any]) -> None:
        self.rows = rows
        self.written = {name: len(some) for name, some in rows.items()}
        self.busy = 0
        self.closed = 0

    def partitions(self) -> Sequence[Partition]:
        return [Partition(name) for name in sorted(self.rows)]

    def open(self, partition: Partition) -> Reader:
        if self.busy:
            self.busy -= 1
            raise ExhaustedError("too many files")
        return _Part(self, partition.name)


class _Part(Reader):
    def __init__(self, source: Parts, name: str) -> None:
        self._source, self._name = source, name

    def read(self, position: int, max_records: int) -> Chunk:
        every = self._source.rows[self._name]
        end = min(position + max_records, self._source.written[self._name])
        return Chunk(
            list(range(position + 1, end + 1)), every[position:end], end, finished=end == len(every)
        )

    def close(self) -> None:
        self._source.closed += 1


def table(source: Source, limit_bytes: int = 1_000, most_bytes: int = 100) -> HeldTable:
    return HeldTable(
        TableSource(
            "sides",
            "p.yaml:7",
            source,
            source.partitions,
            key_bytes_of(field_reader("id"), 64),
            deletion(lambda row: row["n"] < 0),
            limit_bytes,
            most_bytes,
        ),
        Wait("table sides"),
    )


def whole(held: HeldTable) -> dict[Any, Any]:
    """Its rows by their keys, once it has all of them."""
    now_us = 0
    while not held.ready:
        now_us = max(now_us, held.reads_at())
        held.read(now_us)
    decode = msgspec.msgpack.decode
    return {decode(key): decode(value) for key, value in held.rows.items()}


def row(number: int, n: int = 1) -> Row:
    return {"id": number, "n": n}


def test_of_each_key_the_last_row_counts_and_none_where_that_deletes() -> None:
    source = Parts(a=[row(1), row(2), row(1, 5), row(3)], b=[row(2, 7), row(3, -1)])
    assert whole(table(source)) == {1: row(1, 5), 2: row(2, 7)}
    assert source.closed == 2


def test_a_message_without_a_value_deletes_the_row_of_its_key() -> None:
    assert whole(table(Parts(a=[row(1), row(2), {"id": 1, DELETED_FIELD: True}]))) == {2: row(2)}


def test_keys_of_two_types_are_two_keys() -> None:
    held = table(Parts(a=[row(1), {"id": "1", "n": 2}]))
    assert len(whole(held)) == 2
    assert held.rows.keys() == {key_bytes(1), key_bytes("1")}


def test_a_record_that_is_a_dead_letter_elsewhere_changes_no_row() -> None:
    large = row(1) | {"t": "x" * 99}
    for each in ({"n": 9}, {"id": 1}, {"id": 1, "n": "x"}, {"id": 1.5, "n": 2}, large):
        assert whole(table(Parts(a=[row(1), each]))) == {1: row(1)}, each


def test_a_table_without_rows_or_files_is_there() -> None:
    assert whole(table(Parts(a=[]))) == {}
    assert whole(table(Parts())) == {}


def test_it_waits_for_what_is_not_there_yet() -> None:
    source = Parts(a=[row(1), row(2)])
    source.written["a"] = 1
    held = table(source)
    held.read(0)
    held.read(0)
    assert (held.ready, held.reads_at()) == (False, 20_000)
    source.written["a"] = 2
    held.read(10_000)
    assert not held.ready, "it is not time yet"
    held.read(20_000)
    assert (held.ready, len(held.rows), held.reads_at()) == (True, 2, MAX_TIME)


def test_an_input_without_an_end_is_read_once_it_has_one() -> None:
    source = Parts(a=[row(1)])
    source.bounded = False
    held = table(source)
    assert held.reads_at() == MAX_TIME
    held.read(SECOND)
    assert not held.ready
    source.bounded = True
    assert whole(held) == {1: row(1)}


def test_a_file_that_cannot_be_opened_now_is_tried_again() -> None:
    source = Parts(a=[row(1)])
    source.busy = 2
    held = table(source)
    held.read(0)
    assert held.reads_at() == SECOND
    held.read(SECOND)
    assert held.reads_at() == 2 * SECOND
    assert whole(held) == {1: row(1)}


def test_a_table_that_is_too_large_says_so_wherever_reads_end() -> None:
    def said(at_once: int, limit_bytes: int) -> str:
        rows = [row(number % 30) for number in range(60)]
        held = table(Parts(a=rows[:20], b=rows[20:]), limit_bytes)
        with replaced(_Part, "read", _short(at_once)), pytest.raises(SetupError) as found:
            whole(held)
        return str(found.value)

    size = len(key_bytes(1)) + len(msgspec.msgpack.encode(row(1)))
    assert said(1, 24 * size) == said(7, 24 * size) == said(5_000, 24 * size)
    assert said(1, 24 * size).startswith("p.yaml:7: the table 'sides' has more than the 216 bytes")
    assert "(25 rows so far); leave out broadcast" in said(1, 24 * size)


def _short(most: int) -> Any:
    right = _Part.read
    return lambda self, position, max_records: right(self, position, min(most, max_records))


def test_rows_in_place_of_others_take_no_room() -> None:
    held = table(Parts(a=[row(1, n) for n in range(100)]), limit_bytes=20)
    assert whole(held) == {1: row(1, 99)}
    assert held.size_bytes == len(key_bytes(1)) + len(msgspec.msgpack.encode(row(1, 99)))


def test_a_key_that_is_too_long_is_none() -> None:
    finds = key_bytes_of(field_reader("id"), 64)
    with pytest.raises(RecordError):
        finds({"id": "x" * 99})
