"""When a read of a partition is tried in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from millwheel.adapters import waits
from millwheel.connect.sources.base import Chunk, Partition, Reader
from millwheel.core.formats.store_layout import ENDED, Position
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.model.times import MAX_TIME, SECOND
from millwheel.core.model.watermark import ReadFirst, Watermarks
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.sources.inferred_types import GuessedTypes, WholeRecords
from millwheel.engine.workers.sources.partition import Part
from millwheel.engine.workers.sources.silence import Silence
from millwheel.engine.workers.sources.source_parts import SourceEnd, SourceParts, TablesFirst
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore

NEVER = cast(Any, None)


class Columns(Reader):
    """Notes which columns are asked of it."""

    def __init__(self, able: bool = True) -> None:
        self.able = able
        self.asked: list[Mapping[str, str]] = []

    def read(self, position: int, max_records: int) -> Chunk:
        raise AssertionError("nothing is read here")

    def take_columns(self, fields: Mapping[str, str]) -> bool:
        self.asked.append(fields)
        return self.able

    def take_whole(self, fields: Mapping[str, str]) -> bool:
        return self.take_columns(fields)


def part(**changes: Any) -> Part:
    made = Part(
        Partition("p"),
        ChannelName("c"),
        Position(0, 0, False),
        10,
        0,
        False,
        b"",
        set(),
        {},
        Silence(0, 0),
        False,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def parts(**changes: Any) -> SourceParts:
    made = SourceParts(
        "p", NodeName("n"), StreamSpec("s"), NEVER, list, lambda name: True, NEVER, NEVER
    )
    return replace(made, **changes)


def guessed(known: bool = True) -> GuessedTypes:
    types = GuessedTypes(["a"], lambda fields: True)
    if known:
        types.look([{"a": 1}])
    return types


def test_declared_fields_are_columns_but_for_what_needs_a_look_at_records() -> None:
    declared = parts(needs=frozenset("a"))
    assert declared.has_columns(part(), Columns())
    assert not parts().has_columns(part(), Columns())
    assert not declared.has_columns(part(rows_until=11), Columns())
    assert not declared.has_columns(part(judged={3}), Columns())


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_guessed_fields_are_columns_where_much_comes_and_their_types_are_known(
    full: bool, known: bool
) -> None:
    reader = Columns()
    assert parts(guessed=guessed(known)).has_columns(part(is_full=full), reader) == (full and known)
    assert len(reader.asked) == (full and known)


def test_a_reader_is_asked_once_for_each_guess() -> None:
    types, reader, one = guessed(), Columns(), part(is_full=True)
    assert parts(guessed=types).has_columns(one, reader)
    assert parts(guessed=types).has_columns(one, reader)
    types.missed()
    types.look([{"a": 0.5}])
    assert parts(guessed=types).has_columns(one, reader)
    assert reader.asked == [{"a": "int"}, {"a": "float"}]


def test_a_reader_without_columns_ends_the_guessing() -> None:
    types = guessed()
    assert not parts(guessed=types).has_columns(part(is_full=True), Columns(able=False))
    types.look([{"a": 1}])
    assert types.fields is None


def test_a_reader_is_told_of_the_fields_of_whole_records_and_of_others_that_turn_up() -> None:
    whole, reader, one = WholeRecords({"a": "int"}), Columns(), part()
    reads = parts(needs=frozenset("a"), whole=whole)
    assert reads.has_columns(one, reader)
    assert reads.has_columns(one, reader)
    whole.missed()
    assert reads.has_types(one, reader, Chunk([1], [{"a": 1, "b": 2}], 1))
    assert not reads.has_types(one, reader, Chunk([1], [{"a": 1, "b": 2}], 1))
    assert reader.asked == [{"a": "int"}, {"a": "int", "b": "int"}]


def test_whole_records_of_readers_that_cannot_tell_are_read_one_by_one() -> None:
    whole, reader = WholeRecords({"a": "int"}), Columns(able=False)
    reads = parts(needs=frozenset("a"), whole=whole)
    assert not any(reads.has_columns(part(), reader) for _ in range(20))
    assert whole.given_up()
    assert len(reader.asked) == 8


def test_a_source_reads_until_it_rests_finishes_or_has_ended() -> None:
    end = SourceEnd(SimStore({}))
    assert not end.reads_nothing
    end.rest(True)
    assert end.reads_nothing
    end.rest(False)
    assert not end.reads_nothing
    end.finish()
    end.rest(False)
    assert end.reads_nothing


def test_the_end_waits_until_all_that_was_read_is_applied() -> None:
    end = SourceEnd(SimStore({}))
    assert not end.due(True)
    end.finish()
    assert (end.due(False), end.due(True)) == (False, True)


def test_the_end_is_committed_once_and_no_later_owner_reads_on() -> None:
    store = SimStore({})
    end, overlay = SourceEnd(store), Overlay(store)
    end.finish()
    end.commit(Bundle(1, 0, 0, [], overlay, {}))
    assert (end.ended, end.due(True)) == (True, False)
    assert not SourceEnd(store).ended, "it is not durable before its commit"
    store.apply(*overlay.take())
    assert store.get(ENDED) is not None
    assert SourceEnd(store).reads_nothing


def test_the_wait_for_a_table_is_told_until_it_is_over() -> None:
    waits.forget()
    first = ReadFirst(frozenset({"source.events.sides", "source.events.names"}))
    tables = TablesFirst(first, "events.orders")
    tables.note(0)
    assert tables.notes_at() == 30 * SECOND
    [told] = waits.waiting(0)
    assert (told.what, told.why) == (
        "reading of stream orders",
        "waits for table names and sides, which is read first",
    )
    heard = Watermarks()
    heard.rise(dict.fromkeys(first.names, MAX_TIME))
    first.update(heard)
    assert tables.notes_at() <= SECOND, "the next bundle notes that it is over"
    tables.note(SECOND)
    assert (waits.waiting(0), tables.notes_at()) == ([], MAX_TIME)


def test_a_source_without_tables_notes_no_wait() -> None:
    waits.forget()
    tables = TablesFirst(ReadFirst(), "orders")
    tables.note(SECOND)
    assert (waits.waiting(0), tables.notes_at()) == ([], MAX_TIME)
