"""The records of a request as JSON texts with ids, from JSON lines, JSON, or CloudEvents in their
three modes; compressed ones, too, as agents that ship logs send them."""

from __future__ import annotations

import base64
import io
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from millwheel.connect.sources.files.compression import Gzip
from millwheel.core.tracing import TRACEPARENT, TRACESTATE, context_of

_EVENT, _EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
MOST_RECORDS = 100_000
"""The most records of a request: a record of a few bytes takes hundreds while it is on its way."""
_PREFIX = "ce-"
_NEEDED = ("specversion", "id", "source", "type")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class BodyError(Exception):
    """The request is refused as a whole. ``line`` is the faulty line, from 1, or 0 if the body has
    no lines."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.line = line


@dataclass(slots=True)
class Posted:
    """Records as JSON texts, the ids that the request gave them, and the trace contexts of events
    that have one of their own ("" for none): ``traceparent``, and ``tracestate`` on a second
    line."""

    lines: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)

    def add(self, line: bytes, name: str = "", trace: str = "") -> None:
        """Add a record. Raises BodyError beyond :data:`MOST_RECORDS`."""
        if len(self.lines) >= MOST_RECORDS:
            raise BodyError(f"a request has at most {MOST_RECORDS:,} records; send several")
        self.lines.append(line)
        self.ids.append(name)
        self.traces.append(trace)


def read_body(body: bytes, headers: Mapping[str, str]) -> Posted:
    """The records of a request; ``headers`` by names in lower case. Raises BodyError if one of them
    is invalid."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _EVENT:
        return _events([_object(body, 0)])
    if kind == _EVENTS:
        events = _json(body, 0)
        if not isinstance(events, list):
            raise BodyError("a batch of CloudEvents is a JSON array")
        return _events(events)
    if f"{_PREFIX}specversion" in headers:
        event: dict[str, Any] = {
            name.removeprefix(_PREFIX): _attribute(name, value)
            for name, value in headers.items()
            if name.startswith(_PREFIX)
        }
        is_json = kind.endswith("json") or not kind
        event["data"] = _json(body, 0) if is_json else body.decode("utf-8", "replace")
        return _events([event])
    return _lines(body)


def trace_in(attributes: Mapping[str, Any]) -> str:
    """The trace context in the headers of a request or the attributes of an event (CloudEvents'
    Distributed Tracing extension), "" for none."""
    context = context_of(*(_if_text(attributes.get(name)) for name in (TRACEPARENT, TRACESTATE)))
    return "" if context is None else f"{context.parent}\n{context.state}".rstrip("\n")


def _if_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _lines(body: bytes) -> Posted:
    posted, number, start = Posted(), 0, 0
    # one at a time: a list of them would take many times the memory of the body
    while start < len(body):
        end = body.find(b"\n", start)
        line, start, number = (
            body[start : end if end >= 0 else None].strip(),
            end + 1 or len(body),
            number + 1,
        )
        if line:
            _object(line, number)
            posted.add(line)
    return posted


def _events(events: list[Any]) -> Posted:
    posted = Posted()
    for number, event in enumerate(events, 1):
        if not isinstance(event, dict):
            raise BodyError(f"event {number} is not a JSON object")
        missing = [
            name for name in _NEEDED if not isinstance(event.get(name), str) or not event[name]
        ]
        if missing:
            raise BodyError(
                f"event {number} is not a CloudEvent: it has no {' and no '.join(missing)}"
            )
        posted.add(_encode(_value(event)), event_id(event["source"], event["id"]), trace_in(event))
    return posted


def event_id(source: str, name: str) -> str:
    """The id of a CloudEvent. The specification promises that source and id together identify it.
    Either may hold any character, so the length of the one shows where the other begins."""
    return f"{len(source)} {source} {name}"


def _attribute(header: str, value: str) -> str:
    """An attribute in a header of the binary mode: quoted or not, and percent-encoded where it is
    more than printable ASCII. So it is the text that the structured mode has."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    if _BAD_PERCENT.search(value):
        # not encoded at all: senders that ignore the rule write a plain percent sign
        return value
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeError:
        raise BodyError(
            f"the header {header} is not UTF-8, percent-encoded: {value[:100]!r}"
        ) from None


def _value(event: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event's data, and its attributes as ``ce_NAME``."""
    data = event.get("data")
    if "data_base64" in event:
        try:
            data = _decode(base64.b64decode(event["data_base64"], validate=True))
        except (ValueError, TypeError, msgspec.DecodeError):
            data = event["data_base64"]
    value = dict(data) if isinstance(data, dict) else {} if data is None else {"data": data}
    for name, attribute in event.items():
        if name not in ("data", "data_base64"):
            value[f"ce_{name}"] = attribute
    return value


def _object(text: bytes, line: int) -> dict[str, Any]:
    record = _json(text, line)
    if not isinstance(record, dict):
        raise BodyError("a record is a JSON object", line)
    return record


def _json(text: bytes, line: int) -> Any:
    try:
        return _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BodyError(f"no valid JSON: {error}", line) from error


ENCODINGS = "gzip, deflate, zstd"
_RAW = -15  # Fixed: deflate without zlib's header, which some clients send


class TooLargeError(Exception):
    """The body has more bytes than a request may have."""


class EncodingError(Exception):
    """The body has an encoding that is not supported here."""


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """The body of a request with this ``Content-Encoding``. Never more than ``most`` bytes are
    unpacked. Raises TooLargeError, EncodingError for another encoding, BodyError for a body in
    another encoding than the header names."""
    names = [
        name
        for name in encoding.lower().replace(" ", "").split(",")
        if name not in ("", "identity")
    ]
    if not names:
        return body
    unpack = _UNPACK.get(names[0].removeprefix("x-"))
    if len(names) > 1 or unpack is None:
        raise EncodingError(
            f"Content-Encoding: {encoding} is not taken; send {ENCODINGS}, or no encoding"
        )
    try:
        content = unpack(body, most + 1)
    except (OSError, zlib.error) as error:
        raise BodyError(
            f"the body is not {names[0]}, as its Content-Encoding says: {error}"
        ) from error
    if len(content) > most:
        raise TooLargeError
    return content


def _gzip(body: bytes, most: int) -> bytes:
    stream = Gzip(io.BytesIO(body))
    content = stream.read(most)
    if stream.damage or (body and not content and not body.startswith(b"\x1f\x8b")):
        raise BodyError(
            f"the body is not gzip, as its Content-Encoding says: {stream.damage or 'it is empty'}"
        )
    return content


def _deflate(body: bytes, most: int) -> bytes:
    try:
        return _inflated(body, zlib.MAX_WBITS, most)
    except zlib.error:
        return _inflated(body, _RAW, most)


def _inflated(body: bytes, bits: int, most: int) -> bytes:
    stream = zlib.decompressobj(bits)
    content = stream.decompress(body, most)
    if not stream.eof and len(content) < most:
        raise zlib.error("it is cut off")
    return content


def _zstd(body: bytes, most: int) -> bytes:
    import pyarrow as pa

    return bytes(pa.CompressedInputStream(pa.BufferReader(body), "zstd").read(most))


_UNPACK = {"gzip": _gzip, "deflate": _deflate, "zstd": _zstd}
