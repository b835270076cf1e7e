"""A sink of Kafka before it meets a broker."""

from __future__ import annotations

import pytest

from millwheel.connectors.kafka.sink import build_kafka_sink
from millwheel.errors import SetupError

OPTIONS = {"brokers": "127.0.0.1:1", "topic": "out"}


def test_exactly_once_needs_the_name_of_its_root() -> None:
    with pytest.raises(SetupError, match=r"does not know which root.*identity\.json"):
        build_kafka_sink(OPTIONS, "").open("sink.out-0", 1)
    build_kafka_sink(OPTIONS, "p-1").open("sink.out-0", 1)
    build_kafka_sink({**OPTIONS, "guarantee": "at_least_once"}, "").open("sink.out-0", 1)
