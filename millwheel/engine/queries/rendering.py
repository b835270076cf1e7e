"""Answers as replies of the Redis protocol, and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from millwheel.engine.queries.model import Answer, Consistency, QueryError
from millwheel.engine.queries.resp import bulk, error, mapping, null

_json = msgspec.json.Encoder(enc_hook=repr).encode
_RETRY = {"unavailable": "TRYAGAIN"}
_decode = msgspec.json.Decoder().decode


def value_text(value: object) -> bytes | None:
    """A value as text: numbers in digits, text as it is, None as None, anything else as JSON."""
    match value:
        case None:
            return None
        case bool():
            return b"1" if value else b"0"
        case int():
            return b"%d" % value
        case float():
            return repr(value).encode()
        case str():
            return value.encode()
        case Decimal():
            return str(value).encode()
        case bytes():
            return value
        case _:
            return _json(value)


def value_reply(value: object, protocol: int) -> bytes:
    """A value as a bulk string, or the null of the protocol."""
    text = value_text(value)
    return null(protocol) if text is None else bulk(text)


def get_reply(answer: Answer, protocol: int) -> bytes:
    """GET: the value; if there are several, a JSON object."""
    if len(answer.values) == 1:
        (value,) = answer.values.values()
        return (
            b"$%d\r\n%d\r\n" % (len(str(value)), value)
            if type(value) is int
            else value_reply(value, protocol)
        )
    return bulk(_json(dict(answer.values)))


def hash_reply(answer: Answer, protocol: int) -> bytes:
    """HGETALL: the values, and ``covered_start``, ``covered_end``, ``watermark`` (µs) and
    ``complete`` (0 or 1). An answer of a standby also has ``consistency``, ``commit``, and ``lag``
    (µs) where it is known."""
    parts = {name: value_reply(value, protocol) for name, value in answer.values.items()}
    for name, time_us in (
        ("covered_start", answer.covered_start_us),
        ("covered_end", answer.covered_end_us),
    ):
        if time_us is not None:
            parts[name] = bulk(b"%d" % time_us)
    parts["watermark"] = bulk(b"%d" % answer.watermark_us)
    parts["complete"] = bulk(b"1" if answer.complete else b"0")
    if answer.consistency is Consistency.STANDBY:
        parts["consistency"], parts["commit"] = bulk(b"standby"), bulk(b"%d" % answer.commit)
        if answer.lag_us is not None:
            parts["lag"] = bulk(b"%d" % answer.lag_us)
    return mapping(parts, protocol)


def document(answer: Answer) -> Mapping[str, Any]:
    """An answer with all its attributes."""
    return {
        "values": dict(answer.values),
        "covered_start": answer.covered_start_us,
        "covered_end": answer.covered_end_us,
        "watermark": answer.watermark_us,
        "complete": answer.complete,
        "shard": answer.shard,
        "token": answer.token,
        "commit": answer.commit,
        "consistency": answer.consistency.value,
        "lag": answer.lag_us,
    }


def answer_of(data: bytes) -> Answer:
    """The answer in the JSON of a :func:`document`."""
    return answer_from(_decode(data))


def answer_from(fields: Mapping[str, Any]) -> Answer:
    """The inverse of :func:`document`."""
    return Answer(
        fields["values"],
        fields["covered_start"],
        fields["covered_end"],
        fields["watermark"],
        fields["complete"],
        fields["shard"],
        fields["token"],
        fields["commit"],
        Consistency(fields["consistency"]),
        fields.get("lag"),
    )


def json_reply(answer: Answer) -> bytes:
    """MW.QUERY: :func:`document` as JSON."""
    return bulk(_json(document(answer)))


def error_reply(ex: QueryError) -> bytes:
    """An error of the protocol: its code, and a sentence."""
    kind = _RETRY.get(ex.code)
    return error(ex.sentence, kind) if kind else error(f"{ex.code}: {ex.sentence}")
