from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from millwheel import Retraction
from millwheel.connectors.kafka.rows import Committable, Message, Rows, decode, encode
from millwheel.connectors.kafka.sink import build_kafka_sink
from millwheel.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.errors import CorruptionError
from millwheel.sinks.base import SinkBatch, SinkRecord


def rows(**options: Any) -> Rows:
    return Rows(msgspec.convert({"brokers": "b:1", "topic": "t", **options}, KafkaSinkOptions))


def test_a_committable_survives_the_journal() -> None:
    made = Committable(7, [Message(b"k", None, [("h", b"x")], 2, 5), Message(None, b"v", [], -1, 0)])
    assert decode(encode(made)) == made
    with pytest.raises(CorruptionError):
        decode(b"\xc1")
    former = msgspec.msgpack.encode([7, [[b"k", None, [], 2, 5]]])
    assert decode(former).messages == [Message(b"k", None, [], 2, 5)], "roots of earlier versions are read"


def test_key_partition_and_headers_are_computed_from_the_value() -> None:
    made = rows(key="ad", partition="ad % 4", headers={"kind": "'click'"}, event_time=True)
    (message,), refused = made.messages([SinkRecord("k", {"ad": 6}, 9_000_000)])
    assert message == Message(b"6", b'{"ad":6}', [("kind", b"click")], 2, 9_000)
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
        ({"partition": "0 - ad"}, {"ad": 1}, "gave -1, which is no partition"),
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
    writer = build_kafka_sink({"brokers": "b:1", "topic": "t", "key": "k"}, "root").open("sink.t-0", 1)
    writer.prepare(SinkBatch(0, "1-1", [SinkRecord(1, {}, 0)]))
    assert len(writer.take_refused()) == 1
    assert writer.take_refused() == []


def test_a_retraction_is_a_tombstone_or_a_change() -> None:
    back = SinkRecord(1, Retraction({"k": 1}), 0)
    assert rows(mode="upsert", key="k").messages([back])[0][0] == Message(b"1", None, [], -1, 0)
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
