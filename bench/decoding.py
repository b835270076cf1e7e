"""What it takes to decode one message: ``python -m bench decoding``.

Rounds of the formats alternate, so that other work on the machine slows all of them alike; the
fastest round counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from millwheel.connect.formats.avro.messages import AvroEncoder, AvroMessages
from millwheel.connect.formats.base import MessageDecoder
from millwheel.connect.formats.lines import CsvMessages, JsonMessages
from millwheel.connect.formats.options import CsvOptions

_MESSAGES, _ROUNDS = 20_000, 15
_FIELDS = {"ad": "int", "at": "int", "page": "str", "spent": "float"}
_SCHEMA = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "ad", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "page", "type": "string"},
        {"name": "spent", "type": ["null", "double"]},
    ],
}


def main() -> None:
    rows = [
        {"ad": n, "at": 1_700_000_000_000_000 + n, "page": f"page-{n % 97}", "spent": 1.5}
        for n in range(_MESSAGES)
    ]
    encoder = AvroEncoder(_SCHEMA)
    cases: dict[str, tuple[MessageDecoder, Sequence[bytes]]] = {
        "json": (JsonMessages(None, _FIELDS), [json.dumps(row).encode() for row in rows]),
        "avro": (AvroMessages(_SCHEMA, fields=_FIELDS), [encoder.encode(row) for row in rows]),
        "csv": (CsvMessages(CsvOptions(list(_FIELDS)), _FIELDS), [_csv(row) for row in rows]),
    }
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(_ROUNDS):
        for name, (decoder, messages) in cases.items():
            begun = time.perf_counter()
            found = decoder.decode(messages)
            best[name] = min(best[name], time.perf_counter() - begun)
            assert found.records == rows
    for name, took in best.items():
        print(f"{name}: {took / _MESSAGES * 1e6:.2f} µs a message")


def _csv(row: dict[str, object]) -> bytes:
    return ",".join(map(str, row.values())).encode()
