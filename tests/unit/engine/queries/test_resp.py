"""The Redis protocol: what comes in pieces, too much at once, or as nonsense."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import process_time

import hiredis
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.engine.queries import resp
from millwheel.engine.queries.resp import MAX_COMMAND_BYTES, CommandReader, ProtocolError

PING = b"*1\r\n$4\r\nPING\r\n"


def packed(words: Sequence[bytes]) -> bytes:
    return resp.array([resp.bulk(word) for word in words])


@given(
    st.lists(st.lists(st.binary(max_size=12), min_size=1, max_size=4), max_size=4),
    st.integers(1, 9),
)
def test_commands_are_the_same_however_they_are_cut(commands: list[list[bytes]], size: int) -> None:
    reader, found = CommandReader(), []
    data = b"".join(map(packed, commands))
    for start in range(0, len(data), size):
        found += reader.feed(data[start : start + size])
    assert found == commands


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_after_nonsense_the_connection_goes_on(pieces: list[bytes]) -> None:
    reader = CommandReader()
    for piece in pieces:
        assert all(isinstance(each, list | ProtocolError) for each in reader.feed(piece))
    for _ in range(40):  # what was announced must come, or be given up
        if reader.feed(PING)[-1:] == [[b"PING"]]:
            break
        reader.feed(b"\r\n" * (MAX_COMMAND_BYTES // 16))
    else:
        raise AssertionError("it waits for ever")


def test_a_huge_array_is_refused_before_there_is_room_for_it() -> None:
    for cut in range(1, 12):
        reader, data = CommandReader(), b"*2147483647\r\n"
        found = [*reader.feed(data[:cut]), *reader.feed(data[cut:])]
        assert isinstance(found[-1], ProtocolError)
        assert reader.feed(PING)[-1] == [b"PING"]


def test_a_command_that_never_ends_is_given_up() -> None:
    reader = CommandReader()
    reader.feed(b"*1\r\n$900000000\r\n")
    found = [each for _ in range(40) for each in reader.feed(b"x" * (MAX_COMMAND_BYTES // 16))]
    assert any(isinstance(each, ProtocolError) for each in found)


@given(st.integers(1, 200_000), st.booleans())
@settings(max_examples=6, deadline=None)
def test_a_command_that_is_too_large_is_one_error_and_what_follows_is_understood(
    size: int, many: bool
) -> None:
    large = (
        packed([b"MGET", *[b"clicks:1:3h"] * 100_000])
        if many
        else packed([b"GET", b"x" * (MAX_COMMAND_BYTES + 1)])
    )
    reader, data = CommandReader(), PING + large + PING + packed([b"GET", b"a"])
    found = [each for at in range(0, len(data), size) for each in reader.feed(data[at : at + size])]
    assert found[0] == found[2] == [b"PING"]
    assert isinstance(found[1], ProtocolError)
    assert "at most" in str(found[1])
    assert found[3:] == [[b"GET", b"a"]]


def test_a_million_names_of_one_command_are_one_error() -> None:
    reader = CommandReader()
    head, name = b"*1000001\r\n$4\r\nMGET\r\n", b"$11\r\nclicks:1:3h\r\n"
    found = reader.feed(head)
    for _ in range(100):
        found += reader.feed(name * 10_000)
        assert not reader._kept  # nothing of it is kept
    assert len(found) == 1
    assert "this one 1000001" in str(found[0])
    assert reader.feed(PING) == [[b"PING"]]


def test_only_strings_are_words() -> None:
    (found,) = CommandReader().feed(b"*2\r\n:1\r\n$4\r\nPING\r\n")
    assert isinstance(found, ProtocolError)
    assert "array of strings" in str(found)


def test_a_line_is_a_command_for_people() -> None:
    reader = CommandReader()
    assert reader.feed(b"ping\r\nget clicks:42:3h\r\nqu") == [[b"ping"], [b"get", b"clicks:42:3h"]]
    assert reader.feed(b"it\r\n") == [[b"quit"]]


def test_replies_are_what_clients_parse() -> None:
    reader = hiredis.Reader(encoding="utf-8")
    reader.feed(
        resp.simple("fine")
        + resp.number(7)
        + resp.null(2)
        + resp.mapping({"a": resp.bulk(b"b")}, 2)
    )
    assert [reader.gets() for _ in range(4)] == ["fine", 7, None, ["a", "b"]]
    reader.feed(resp.mapping({"a": resp.bulk(b"b")}, 3) + resp.null(3) + resp.strings(["x"]))
    assert [reader.gets() for _ in range(3)] == [{"a": "b"}, None, ["x"]]
    reader.feed(resp.error("two\r\nlines"))
    assert str(reader.gets()) == "ERR two lines"


def test_a_byte_of_a_half_command_costs_a_byte_whatever_came_before_it() -> None:
    for begun, piece in (
        (b"*99999\r\n" + b"$1\r\na\r\n" * 90_000, b"$1\r\na\r\n"),
        (b"a" * 60_000, b"b" * 7),
    ):
        reader = CommandReader()
        reader.feed(begun)
        began_s = process_time()
        for index in range(700):
            assert not reader.feed(piece[index % 7 : index % 7 + 1])
        assert process_time() - began_s < 0.35  # half a millisecond a byte, on the slowest machine
        held = sys.getsizeof(reader._kept.data) + sys.getsizeof(reader._kept._spans)
        assert held < 3 * len(begun)


def test_a_line_without_an_end_is_refused() -> None:
    reader = CommandReader()
    found = [each for _ in range(100) for each in reader.feed(b"x" * 1_000)]
    assert isinstance(found[0], ProtocolError)
    assert len(reader._kept) < 64_000


def test_what_is_no_line_for_people_is_told_from_one() -> None:
    (typed,) = CommandReader().feed(b"POST / HTTP/1.1\r\n")
    (sent,) = CommandReader().feed(packed([b"POST"]))
    assert isinstance(typed, resp.TypedLine)
    assert not isinstance(sent, resp.TypedLine)
