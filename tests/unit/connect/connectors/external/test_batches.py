from __future__ import annotations

import datetime as dt

from millwheel.connect.connectors.external.batches import decode_rows, encode_rows, encode_what_can
from millwheel.connect.sinks.base import SinkRecord


def test_rows_survive_the_journal() -> None:
    moment = dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)
    records = [
        SinkRecord(("a", 1), {"n": 1, "b": b"x", "t": moment, "l": [1, None]}, 5),
        SinkRecord(None, "text", -1),
    ]
    batch = decode_rows(encode_rows(7, records))
    assert (batch.number, batch.records()) == (7, records)


def test_what_is_no_plain_data_is_left_out() -> None:
    records = [
        SinkRecord("a", 1, 0),
        SinkRecord("b", object(), 0),
        SinkRecord("c", 1 << 70, 0),
        SinkRecord("d", 2, 0),
    ]
    data, refused = encode_what_can(0, records)
    assert decode_rows(data).records() == [records[0], records[3]]
    assert [each.record for each in refused] == records[1:3]
