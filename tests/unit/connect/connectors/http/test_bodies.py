"""What a request holds, and which line is wrong."""

from __future__ import annotations

import gzip
import json
import zlib
from urllib.parse import quote

import pyarrow as pa
import pytest

from millwheel.connect.connectors.http.bodies import (
    BodyError,
    EncodingError,
    TooLargeError,
    read_body,
    trace_in,
    unpacked,
)

EVENT = {
    "specversion": "1.0",
    "id": "7",
    "source": "shop",
    "type": "sale",
    "data": {"page": "a", "ts": 1},
}
VALUE = {
    "page": "a",
    "ts": 1,
    "ce_specversion": "1.0",
    "ce_id": "7",
    "ce_source": "shop",
    "ce_type": "sale",
}


def test_each_line_is_a_record() -> None:
    posted = read_body(b'{"n":1}\r\n\n {"n":2}', {})
    assert (posted.lines, posted.ids) == ([b'{"n":1}', b'{"n":2}'], ["", ""])


@pytest.mark.parametrize(
    ("body", "line", "text"),
    [(b'{"n":1}\n\n{"n":', 3, "line 3: no valid JSON"), (b"[1]", 1, "is a JSON object")],
)
def test_a_line_that_is_no_record_is_named_by_its_number(body: bytes, line: int, text: str) -> None:
    with pytest.raises(BodyError, match=text) as found:
        read_body(body, {})
    assert found.value.line == line


def test_an_event_is_the_same_record_in_each_mode() -> None:
    body = json.dumps(EVENT).encode()
    structured = read_body(body, {"content-type": "application/cloudevents+json; charset=utf-8"})
    batch = read_body(b"[%s]" % body, {"content-type": "application/cloudevents-batch+json"})
    headers = {f"ce-{name}": value for name, value in EVENT.items() if isinstance(value, str)}
    binary = read_body(b'{"page": "a", "ts": 1}', {"content-type": "application/json", **headers})
    for posted in (structured, batch, binary):
        assert [json.loads(line) for line in posted.lines] == [VALUE]
        assert posted.ids == ["4 shop 7"]


def test_data_that_is_no_object_is_a_field() -> None:
    event = {**EVENT, "data": [1, 2]}
    posted = read_body(json.dumps(event).encode(), {"content-type": "application/cloudevents+json"})
    assert json.loads(posted.lines[0])["data"] == [1, 2]


def test_what_is_no_event_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(BodyError, match="event 2 is not a CloudEvent: it has no id and no type"):
        read_body(
            json.dumps([EVENT, {"specversion": "1.0", "source": "shop"}]).encode(),
            {"content-type": "application/cloudevents-batch+json"},
        )


def test_an_event_brings_the_trace_that_it_names_in_each_mode() -> None:
    parent = f"00-{'a' * 32}-{'c' * 16}-01"
    event = {**EVENT, "traceparent": parent, "tracestate": "v=1"}
    body = json.dumps(event).encode()
    kind = "application/cloudevents"
    plain = json.dumps({**EVENT, "traceparent": 7}).encode()
    both = read_body(b"[%s,%s]" % (body, plain), {"content-type": f"{kind}-batch+json"})
    assert both.traces == [f"{parent}\nv=1", ""]
    assert json.loads(both.lines[0])["ce_traceparent"] == parent, "it stays a field of the record"
    headers = {f"ce-{name}": value for name, value in event.items() if isinstance(value, str)}
    assert read_body(b"{}", headers).traces == [f"{parent}\nv=1"]
    assert read_body(b'{"n":1}', {"traceparent": parent}).traces == [""], (
        "that of a request is not that of a record"
    )
    assert trace_in({"traceparent": parent}) == parent


def event_with(source: str, name: str) -> bytes:
    return json.dumps({**EVENT, "source": source, "id": name}).encode()


def test_events_of_different_sources_have_different_ids() -> None:
    structured = {"content-type": "application/cloudevents+json"}
    pairs = [
        ("/shop", "9 17"),
        ("/shop 9", "17"),
        ("1 /shop", "9 17"),
        ("é", "1"),
        ("%C3%A9", "1"),
        ("\u0000", "1"),
    ]
    ids = [read_body(event_with(*pair), structured).ids[0] for pair in pairs]
    assert len({*ids}) == len(pairs)


@pytest.mark.parametrize("text", ["a b", "100%", "café", "50%25", 'say "so"', "a+b", "€ uro"])
def test_an_attribute_counts_once_in_headers_and_in_json(text: str) -> None:
    structured = read_body(event_with(text, text), {"content-type": "application/cloudevents+json"})
    headers = {f"ce-{name}": value for name, value in EVENT.items() if isinstance(value, str)}
    headers |= {"ce-source": quote(text, safe=" +"), "ce-id": quote(text)}
    binary = read_body(b'{"page": "a", "ts": 1}', headers)
    assert (binary.ids, json.loads(binary.lines[0])) == (
        structured.ids,
        json.loads(structured.lines[0]),
    )
    plain = read_body(b'{"page": "a", "ts": 1}', {**headers, "ce-id": '"' + quote(text) + '"'})
    assert plain.ids == structured.ids, "a header may be quoted"


def test_a_header_that_is_no_text_is_refused() -> None:
    headers = {f"ce-{name}": value for name, value in EVENT.items() if isinstance(value, str)}
    with pytest.raises(BodyError, match="the header ce-id is not UTF-8"):
        read_body(b"{}", {**headers, "ce-id": "%FF%FE"})
    assert read_body(b"{}", {**headers, "ce-id": "100% sure"}).ids == ["4 shop 100% sure"]


TEXT = b'{"n": 1}\n' * 100
PACKED = {
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "zstd": bytes(pa.compress(TEXT, "zstd", asbytes=True)),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_may_be_as_large_as_the_limit_and_no_byte_larger(encoding: str) -> None:
    assert unpacked(PACKED[encoding], encoding, len(TEXT)) == TEXT
    with pytest.raises(TooLargeError):
        unpacked(PACKED[encoding], encoding, len(TEXT) - 1)


@pytest.mark.parametrize("encoding", ["", "identity", " Identity , "])
def test_a_body_without_an_encoding_stays_as_it_is(encoding: str) -> None:
    assert unpacked(PACKED["gzip"], encoding, 10_000) == PACKED["gzip"]


@pytest.mark.parametrize("encoding", ["br", "gzip, deflate", "x-"])
def test_another_encoding_is_refused_with_those_that_are_taken(encoding: str) -> None:
    with pytest.raises(
        EncodingError, match=f"Content-Encoding: {encoding} is not taken; send gzip, deflate, zstd"
    ):
        unpacked(TEXT, encoding, 10_000)


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("cut", [False, True])
def test_a_body_that_is_plain_or_cut_off_is_not_what_it_says(encoding: str, cut: bool) -> None:
    with pytest.raises(
        BodyError, match=f"the body is not {encoding}, as its Content-Encoding says: "
    ):
        unpacked(PACKED[encoding][:-5] if cut else TEXT, encoding, 10_000)
