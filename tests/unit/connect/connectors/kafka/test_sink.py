"""A sink of Kafka before it meets a broker."""

from __future__ import annotations

import pytest

from millwheel.connect.connectors.kafka.rows import decode
from millwheel.connect.connectors.kafka.sink import build_kafka_sink
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.core.tracing.contexts import TraceContext
from millwheel.errors import SetupError

OPTIONS = {"brokers": "127.0.0.1:1", "topic": "out"}


def test_exactly_once_needs_the_name_of_its_root() -> None:
    with pytest.raises(SetupError, match=r"does not know which root.*identity\.json"):
        build_kafka_sink(OPTIONS, "").open("sink.out-0", 1)
    build_kafka_sink(OPTIONS, "p-1").open("sink.out-0", 1)
    build_kafka_sink({**OPTIONS, "guarantee": "at_least_once"}, "").open("sink.out-0", 1)


def test_rows_of_traced_records_have_their_contexts_as_headers_also_beside_refused_rows() -> None:
    options = {**OPTIONS, "partition": "n", "headers": {"kind": "'row'", "traceparent": "'mine'"}}
    writer = build_kafka_sink(options, "p-1").open("sink.out-0", 1)
    records = [SinkRecord("k", {"n": number}, 1) for number in (0, -1, 2, 3)]
    traces = {1: TraceContext("refused"), 2: TraceContext("two", "v=1"), 3: TraceContext("three")}
    messages = decode(writer.prepare(SinkBatch(0, "1-1", records, traces=traces))).messages
    assert [each.record.value for each in writer.take_refused()] == [{"n": -1}]
    assert [message.headers for message in messages] == [
        [("kind", b"row"), ("traceparent", b"mine")],
        [("kind", b"row"), ("traceparent", b"two"), ("tracestate", b"v=1")],
        [("kind", b"row"), ("traceparent", b"three")],
    ]
    plain = decode(writer.prepare(SinkBatch(1, "1-2", records[:1]))).messages
    assert plain[0].headers == [("kind", b"row"), ("traceparent", b"mine")]
