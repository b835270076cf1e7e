from __future__ import annotations

from typing import Any

import pytest

from millwheel.connect.connectors.kafka.sink_options import KafkaSinkOptions
from millwheel.connect.options import read_options


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
