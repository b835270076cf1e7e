"""A sink of Kafka before it meets a broker."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.connectors.kafka.messages import decode
from millwheel.connect.connectors.kafka.sink import build_kafka_sink
from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.connect.options import read_options
from millwheel.connect.sinks.base import SinkBatch, SinkRecord
from millwheel.core.tracing import TraceContext
from millwheel.errors import SetupError

OPTIONS = {"brokers": "127.0.0.1:1", "topic": "out"}


def test_exactly_once_needs_the_name_of_its_root() -> None:
    with pytest.raises(SetupError, match=r"lacks its root's identity.*identity\.json"):
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


# sink_options.py


def options(**more: Any) -> KafkaSinkOptions:
    return read_options("it", {"brokers": "b:1", "topic": "t", **more}, KafkaSinkOptions)


def test_a_topic_is_a_name_or_chosen_among_names() -> None:
    assert (options().topics(), options().topic_by()) == (["t"], None)
    chosen = options(topic={"by": "country", "among": ["a", "b"]})
    assert (chosen.topics(), chosen.topic_by()) == (["a", "b"], "country")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": {"by": "x"}}, "option 'topic' is a map"),
        ({"topic": {"by": "x", "among": []}}, "option 'topic' is a map"),
        ({"mode": "upsert"}, "needs the option 'key'"),
        ({"key": "a +"}, "option 'key'"),
        ({"headers": {"h": "("}}, "option 'headers'"),
        ({"guarantee": "twice"}, "guarantee"),
        ({"format": "xml9"}, "format"),
        ({"flush": "soon"}, "flush"),
        ({"config": {"transactional.id": "x"}}, "the connector decides"),
    ],
)
def test_what_cannot_work_is_told_at_its_option(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        options(**given)
