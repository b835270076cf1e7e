from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import pytest

from millwheel.connect.connectors.postgres.client import one_query
from millwheel.connect.connectors.postgres.pages import Page, Pages, PostgresSourceOptions
from millwheel.connect.connectors.postgres.reader import PostgresReader, RowDecoder
from millwheel.connect.sources.base import Chunk
from millwheel.errors import SetupError, UnavailableError


class ListPages:
    """Keys of a list, in pages of two."""

    where = "the list"

    def __init__(self, keys: list[int], *trouble: Exception) -> None:
        self._keys, self._trouble = keys, list(trouble)
        self.closed = threading.Event()

    def page(self, after: int, until: int) -> Page:
        if self._trouble:
            raise self._trouble.pop()
        found = [key for key in self._keys if after < key <= until][:2]
        return Page(
            [(key, b'{"n": %d}' % key if key != 13 else b"{") for key in found], len(found) < 2
        )

    def close(self) -> None:
        self.closed.set()


def drained(reader: PostgresReader, position: int = 0) -> list[Chunk]:
    until, chunks = time.monotonic() + 30, []
    while not chunks or not chunks[-1].finished:
        assert time.monotonic() < until
        chunks.append(reader.read(position, 3))
        position = chunks[-1].next_position
    return chunks


def reader_of(pages: Any, low: int, high: int) -> PostgresReader:
    return PostgresReader(lambda: pages, RowDecoder(None, {}), low, high)


def test_positions_are_keys_counted_from_the_first_one() -> None:
    pages = ListPages([-5, 0, 7, 13, 20])
    reader = reader_of(pages, -5, 18)
    chunks = drained(reader)
    assert [position for chunk in chunks for position in chunk.positions] == [1, 6, 13]
    assert [value["n"] for chunk in chunks for value in chunk.values] == [-5, 0, 7]
    assert [reject.position for chunk in chunks for reject in chunk.rejects] == [19]
    assert chunks[-1].next_position == 24
    assert [value["n"] for chunk in drained(reader, 6) for value in chunk.values] == [7]
    reader.close()
    assert pages.closed.wait(10)


def test_a_server_that_is_away_is_waited_for() -> None:
    reader = reader_of(ListPages([1, 2, 3], UnavailableError("away")), 1, 3)
    assert [value["n"] for chunk in drained(reader) for value in chunk.values] == [1, 2, 3]
    reader.close()


def test_what_cannot_be_read_is_told_to_whoever_reads() -> None:
    reader = reader_of(ListPages([1], SetupError("the table is gone")), 1, 1)
    with pytest.raises(SetupError, match="the table is gone"):
        drained(reader)
    reader.close()


def test_numerics_that_are_declared_as_decimals_keep_their_digits() -> None:
    decoder = RowDecoder(None, {"price": "decimal(18, 2)"})
    found, error = decoder.one(b'{"price": 9007199254740993.25, "x": 0.5}')
    assert (found, error) == ({"price": 900719925474099325, "x": 0.5}, "")
    assert type(found["x"]) is float
    assert "more than 2 digits behind the point" in decoder.one(b'{"price": 0.125}')[1]


# pages.py

NOWHERE = {"dsn": "postgresql://u:hush-hush@127.0.0.1:1/results", "order_by": "id", "table": "t"}


def test_a_server_that_does_not_answer_is_a_sentence_at_first_and_waited_for_later() -> None:
    pages = Pages(msgspec.convert(NOWHERE, PostgresSourceOptions))
    with pytest.raises(SetupError, match="cannot be used") as caught:
        pages.span()
    with pytest.raises(UnavailableError) as later:
        pages.page(0, 9)
    assert "hush" not in f"{caught.value} {later.value}"


# client.py


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("select 1", "select 1"),
        ("select 1;", "select 1"),
        ("select 1 ; -- all of them", "select 1 "),
        ("select 1 -- all; of them", "select 1 -- all; of them"),
        (
            "select ';' as a, \"b;\" /* ; */, $x$;$x$, E'\\';' from t ;\n",
            "select ';' as a, \"b;\" /* ; */, $x$;$x$, E'\\';' from t ",
        ),
    ],
)
def test_a_query_is_one_statement_whatever_its_texts_and_comments_hold(
    text: str, query: str
) -> None:
    assert one_query(text) == query


@pytest.mark.parametrize(
    "text", ["select 1; select 2", "select 1; drop table t -- x", "", " ; ", "-- nothing"]
)
def test_several_statements_or_none_are_no_query(text: str) -> None:
    with pytest.raises(ValueError, match="write one select"):
        one_query(text)
