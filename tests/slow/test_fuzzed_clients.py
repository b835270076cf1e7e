"""Whatever strangers and clients send: an answer, a refusal or an end of the connection, at once,
and nothing else.

The seeds are what once went wrong; they are tried first, each time. ``MILLWHEEL_FUZZ=100000`` tries
so many more.
"""

from __future__ import annotations

import base64
import gzip
import socket
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from millwheel.adapters.exchange import frames
from millwheel.adapters.exchange.frames import pb
from millwheel.adapters.exchange.handshake import _GREETING, _read_hello
from millwheel.connect.connectors.http.bodies import (
    BodyError,
    EncodingError,
    TooLargeError,
    read_body,
    unpacked,
)
from millwheel.control.savepoints.record import RECORD_FILE, encode_record, read_record
from millwheel.core.expressions.language import compile_foreign
from millwheel.engine.queries.model import QueryError
from millwheel.engine.queries.named_queries import literal
from millwheel.engine.queries.resp import MAX_COMMAND_BYTES, CommandReader, ProtocolError
from millwheel.errors import RecordError, SetupError
from tests.fuzz.test_decoders import EXAMPLES, PLAIN, damaged
from tests.fuzz.test_small_decoders import RECORD
from tests.unit.engine.queries.test_connection import QUESTION, REQUEST, connected

pytestmark = pytest.mark.slow
fuzz = settings(
    max_examples=EXAMPLES * 2,
    deadline=5_000,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
WORDS = st.sampled_from(
    [b"*1\r\n", b"*2\r\n$3\r\nGET\r\n", b"$", b"$4\r\nPING\r\n", b"PING\r\n", b"*0\r\n",
    b"*-1\r\n", b"*99999\r\n",
     b"*2147483647\r\n", b"$1048577\r\n", b"$1\r\na\r\n", b"\r\n", b"\n", b"POST / HTTP/1.1\r\n",
     b"Host: x\r\n",
     QUESTION, b"AUTH t\r\n", b"HELLO 3\r\n", b"MW.QUERY \"clicks.n+1\" 1 WINDOW 1h\r\n",
     b"*3\r\n", b"QUIT\r\n"]
)  # fmt: skip
STREAM = st.lists(WORDS | st.binary(max_size=30), max_size=12).map(b"".join)


@fuzz
@given(data=STREAM, size=st.integers(1, 40), token=st.sampled_from(["", "t"]))
@example(REQUEST % b"POST" + QUESTION, 7, "")
@example(b"*2\r\n*2\r\n*2\r\n", 1, "")
@example(b"*1\r\n$-1\r\n" + QUESTION, 40, "")
@example(b"\xff" * 70_000 + b"\n", 40, "t")
def test_a_connection_answers_refuses_or_ends(data: bytes, size: int, token: str) -> None:
    connection, transport, server = connected(token=token)
    for start in range(0, len(data), size):
        if not transport.ended:
            connection.data_received(data[start : start + size])
    assert len(connection._reader._kept) <= MAX_COMMAND_BYTES + size
    if token and b"AUTH" not in data and b"HELLO" not in data:
        assert not server.slots  # nothing is asked before the token was shown
    if data.startswith((b"POST", b"Host:", b"\xff")):
        assert not server.slots


@fuzz
@given(data=STREAM, cuts=st.lists(st.integers(0, 300), max_size=6))
@example(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n" * 3, [5, 9, 30])
def test_commands_do_not_depend_on_how_they_are_cut(data: bytes, cuts: list[int]) -> None:
    whole = _commands([data])
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    found = _commands(pieces)
    # Behind malformed bytes the rest of a read is dropped, so only what comes before them must be
    # the same.
    error = next((at for at, each in enumerate(whole) if isinstance(each, str)), len(whole))
    assert found[:error] == whole[:error]


def _commands(pieces: list[bytes]) -> list[Any]:
    reader = CommandReader()
    found = [each for piece in pieces for each in reader.feed(piece)]
    return ["error" if isinstance(each, ProtocolError) else list(each) for each in found]


FRAME = pb.Frame(deliveries=[pb.Delivery(batch=b"x" * 90)]).SerializeToString()


@fuzz
@given(data=damaged(FRAME) | st.binary(max_size=60), large=st.booleans())
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", True)
@example(b"\x0b" * 50, True)
def test_a_frame_is_taken_apart_or_damaged(data: bytes, large: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_LARGE_BYTES", 0 if large else 1 << 20)
        with suppress(DecodeError):
            frames.taken_apart(memoryview(data))


HELLO = _GREETING + b"\x05\x00token" + b"\x0b\x00127.0.0.1:1"


@fuzz
@given(data=damaged(HELLO) | st.binary(max_size=40))
@example(_GREETING + b"\xff\xff")
@example(_GREETING + b"\x05\x00token\xff\xff" + b"x" * 70_000)
def test_a_hello_is_admitted_refused_or_hung_up_on(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.settimeout(5)
        here.setblocking(False)
        with suppress(BlockingIOError):
            here.send(data)
        here.shutdown(socket.SHUT_WR)
        try:
            why, address = _read_hello(there, lambda shown: shown == b"token")
        except ConnectionError:
            return
        assert bool(why) or data.startswith(_GREETING + b"\x05\x00token")
        assert len(address) < 70_000


BODY = b'{"a": 1}\n{"b": [1, 2]}\n'
EVENT = b'[{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data_base64": "e30="}]'
KINDS = st.sampled_from(
    [
        "",
        "application/json",
        "application/cloudevents+json",
        "application/cloudevents-batch+json; charset=utf-8",
    ]
)


@fuzz
@given(
    body=damaged(BODY)
    | damaged(EVENT)
    | damaged(gzip.compress(BODY, mtime=0))
    | st.binary(max_size=60),
    encoding=st.sampled_from(["", "gzip", "deflate", "zstd", "x-gzip", "br", "gzip, gzip"]),
    kind=KINDS,
    ce=st.dictionaries(
        st.sampled_from(["ce-specversion", "ce-id", "ce-source", "ce-type"]), st.text(max_size=8)
    ),
)
@example(gzip.compress(b"\n" * 5_000_000, mtime=0), "gzip", "", {})
@example(b"[" * 100_000, "", "application/cloudevents-batch+json", {})
@example(base64.b64decode("KLUv/QRYaQAAYWFhYWFhYWFhYWFhAAAA"), "zstd", "", {})
@example(b"{}\n" * 200_000, "", "", {})
def test_a_body_is_records_or_refused(
    body: bytes, encoding: str, kind: str, ce: dict[str, str]
) -> None:
    began_s = process_time()
    try:
        plain = unpacked(body, encoding, 1_000_000)
        assert len(plain) <= 1_000_000
        posted = read_body(plain, {"content-type": kind, **ce})
        for line in posted.lines:
            assert isinstance(msgspec.json.decode(line), dict)
    except (BodyError, EncodingError, TooLargeError):
        pass
    assert process_time() - began_s < 3


@fuzz
@given(
    changed=st.dictionaries(st.sampled_from(RECORD.__struct_fields__), PLAIN, max_size=3),
    data=st.data(),
)
@example(
    {"shards": [{"node": "..", "shard": "../../x", "lo": "0", "hi": "1", "token": 1, "commit": 1}]},
    None,
)
@example({"named": {"../x": 1}}, None)
def test_a_record_of_a_savepoint_is_whole_or_a_sentence(
    tmp_path: Path, changed: dict[str, Any], data: Any
) -> None:
    from xxhash import xxh3_128_hexdigest

    body = msgspec.json.encode({**msgspec.to_builtins(RECORD), **changed})
    sealed = msgspec.json.encode(
        {"checksum": xxh3_128_hexdigest(body), "savepoint": msgspec.Raw(body)}
    )
    for content in (
        sealed,
        *([data.draw(damaged(encode_record(RECORD)))] if data is not None else ()),
    ):
        (tmp_path / RECORD_FILE).write_bytes(content)
        try:
            record = read_record(tmp_path)
        except SetupError:
            continue
        for name in (record.name, *record.named, *(each.shard for each in record.shards)):
            assert "/" not in name
            assert not name.startswith(".")


PARTS = st.sampled_from(
    ["clicks.n", "clicks", "2", "-1", "10**9", "1e308", "'a'", "'\\\\'", "[1]", "None", "true",
    "field('__class__')",
     "round(", "str(", "int(", "min(", "max(", "len(", "matches(", "lower(", "get(n, ", "(", ")",
     ",", " + ", " * ",
     " ** ", " // ", " % ", " in ", " and ", " if ", " else ", " == ", ".n", "[0]", "not ",
     "lambda: "]
)  # fmt: skip


@fuzz
@given(text=st.lists(PARTS, max_size=25).map("".join) | st.text(max_size=60))
@example("round(clicks.n, -1000000000)")
@example("matches('" + "a" * 40 + "b', '(a+)+$') or clicks.n")
@example("'a' * 99999 * ('b' * 99999) == clicks.n")
@example("str([" * 60 + "'\"'" + "])" * 60 + " == clicks.n")
@example("10**1000 ** 2 + clicks.n")
@example("clicks.n + (-8) ** 0.5")
def test_a_formula_has_a_value_or_is_refused_at_once(text: str) -> None:
    began_s = process_time()
    with suppress(ValueError, RecordError):
        compile_foreign(text).evaluate({"clicks": {"n": 10**15}, "n": 3})
    with suppress(QueryError):
        formula = literal(text)
        value = formula.value({name: {"n": 10**15} for name in formula.computations})
        msgspec.json.encode(value)
    assert process_time() - began_s < 1
