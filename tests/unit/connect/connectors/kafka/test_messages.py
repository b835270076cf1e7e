from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from millwheel import Retraction
from millwheel.connect.connectors.kafka.messages import (
    Committable,
    Message,
    Rows,
    as_record,
    decode,
    encode,
    with_header,
)
from millwheel.connect.connectors.kafka.sink import build_kafka_sink
from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.connect.formats.choice import build_encoder
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.errors import CorruptionError


def rows(**options: Any) -> Rows:
    return Rows(msgspec.convert({"brokers": "b:1", "topic": "t", **options}, KafkaSinkOptions))


def test_a_committable_survives_the_journal() -> None:
    made = Committable(
        7, [Message(b"k", None, [("h", b"x")], 2, 5), Message(None, b"v", [], -1, 0)]
    )
    assert decode(encode(made)) == made
    with pytest.raises(CorruptionError):
        decode(b"\xc1")
    former = msgspec.msgpack.encode([7, [[b"k", None, [], 2, 5]]])
    assert decode(former).messages == [Message(b"k", None, [], 2, 5)], (
        "roots of earlier versions are read"
    )


def test_key_partition_and_headers_are_computed_from_the_value() -> None:
    made = rows(key="ad", partition="ad % 4", headers={"kind": "'click'"}, event_time=True)
    (message,), refused = made.messages([SinkRecord("k", {"ad": 6}, 9_000_000)])
    assert message == Message(b"6", b'{"ad":6}', [("kind", b"click")], 2, 9_000, "", "k", 9_000_000)
    assert not refused


@pytest.mark.parametrize(
    ("options", "value", "told"),
    [
        ({"key": "missing"}, {"ad": 1}, "missing"),
        (
            {"topic": {"by": "'t' + str(ad)", "among": ["t0"]}},
            {"ad": 1, "missing": 1},
            "gave 't1', which is not among t0",
        ),
        ({"partition": "0 - ad"}, {"ad": 1}, "gave -1, which is not a partition"),
        ({}, {"text": "x" * 1_000_000}, "more than message.max.bytes"),
    ],
)
def test_a_record_that_cannot_be_a_message_is_refused_and_no_other(
    options: dict[str, Any], value: dict[str, Any], told: str
) -> None:
    good = {"missing": 1, "ad": 0}
    messages, refused = rows(**options).messages(
        [SinkRecord(1, good, 0), SinkRecord(2, value, 0), SinkRecord(3, good, 0)]
    )
    assert len(messages) == 2
    assert [each.record.key for each in refused] == [2]
    assert told in refused[0].reason


def test_what_a_writer_refused_is_told_once() -> None:
    writer = build_kafka_sink({"brokers": "b:1", "topic": "t", "key": "k"}, "root").open(
        "sink.t-0", 1
    )
    writer.prepare(SinkBatch(0, "1-1", [SinkRecord(1, {}, 0)]))
    assert len(writer.take_refused()) == 1
    assert writer.take_refused() == []


def test_a_retraction_is_a_tombstone_or_a_change() -> None:
    back = SinkRecord(1, Retraction({"k": 1}), 0)
    assert rows(mode="upsert", key="k").messages([back])[0][0] == Message(
        b"1", None, [], -1, 0, "", 1
    )
    assert rows(mode="changelog").messages([back])[0][0].value == b'{"change":"-","k":1}'


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"guarantee": "exactly"}, "did you mean 'exactly_once'"),
        ({"mode": "upsert"}, "needs the option 'key'"),
        ({"key": "a +"}, "option 'key'"),
        ({"topic": {"by": "a +", "among": ["t"]}}, "option 'topic'"),
        ({"topic": {"by": "a"}}, "write a name, or {by:"),
        ({"config": {"transactional.id": "x"}}, "sets transactional.id"),
    ],
)
def test_options_that_cannot_work_are_a_sentence(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        build_kafka_sink({"brokers": "b:1", "topic": "t"} | options)


AVRO: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "ad", "type": "long"}]}
BY_ID = {"avro": {"schema": AVRO, "registry": {"url": "mock://r"}}}


def test_rows_of_a_schema_are_encoded_and_those_that_do_not_fit_refused() -> None:
    given = {
        "brokers": "b:1",
        "topic": "t",
        "format": {"avro": {"schema": AVRO}},
        "mode": "upsert",
        "key": "ad",
    }
    options = msgspec.convert(given, KafkaSinkOptions)
    made = Rows(options, build_encoder(options.form(), "", options.subject()))
    records = [
        SinkRecord("k", value, 0) for value in ({"ad": 1}, {"ad": "x"}, Retraction({"ad": 1}))
    ]
    messages, refused = made.messages(records)
    assert [(message.key, message.value) for message in messages] == [(b"1", b"\x02"), (b"1", None)]
    assert [(each.record, each.reason) for each in refused] == [
        (records[1], "field 'ad' is str 'x', but the Avro schema requires a long")
    ]
    headed = with_header(Committable(3, messages), b"\0\0\0\0\7")
    assert [message.value for message in headed.messages] == [b"\0\0\0\0\7\x02", None]


def test_changes_are_written_as_debezium_does() -> None:
    made = rows(format="debezium", mode="changelog", with_key=True)
    messages, _ = made.messages(
        [SinkRecord("k", {"n": 1}, 2_000), SinkRecord("k", Retraction({"n": 1}), 3_000)]
    )
    row = {"key": "k", "n": 1}
    assert [msgspec.json.decode(message.value or b"") for message in messages] == [
        {"before": None, "after": row, "op": "c", "ts_ms": 2},
        {"before": row, "after": None, "op": "d", "ts_ms": 3},
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "debezium"}, "option 'mode': format debezium writes"),
        (
            {"format": {"debezium": {"add": {"a": "b"}}}, "mode": "changelog"},
            "debezium has no options in a sink",
        ),
        ({"format": "avro"}, "avro needs 'schema' to write"),
        ({"format": "csv"}, "csv needs 'columns'"),
        ({"format": BY_ID, "topic": {"by": "t", "among": ["a"]}}, "needs 'subject'"),
    ],
)
def test_formats_that_cannot_work_are_sentences(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build_kafka_sink({"brokers": "b:1", "topic": "t", **options})


@pytest.mark.parametrize(
    ("line", "value"),
    [(b'{"n":1}', {"n": 1}), (b"no json", "no json"), (b"\xff\x00", b"\xff\x00"), (None, None)],
)
def test_of_a_message_that_the_brokers_refuse_the_letter_has_what_was_to_be_written(
    line: bytes | None, value: Any
) -> None:
    stored = decode(
        encode(Committable(0, [Message(b"k", line, [], -1, 0, "", ("a", 7), 5_000_000)]))
    )
    assert as_record(stored.messages[0]) == SinkRecord(("a", 7), value, 5_000_000)
