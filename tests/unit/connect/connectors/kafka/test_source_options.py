from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.connectors.kafka.source import build_kafka_source

ROOT = Path(__file__).parents[5]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": ["a"]}, "needs the option 'brokers'"),
        ({"brokers": "b:1"}, "needs the option 'topics'"),
        ({"brokers": "b:1", "topics": []}, "option 'topics' is empty"),
        ({"brokers": "b:1", "topics": ["^a", "b"]}, "mixes a pattern with names"),
        ({"brokers": "b:1", "topics": "^(", "format": "json"}, "is not a regular expression"),
        ({"brokers": "b:1", "topics": ["a"], "format": "jsn"}, "did you mean 'json'"),
        ({"brokers": "b:1", "topics": ["a"], "start": "lates"}, "did you mean 'latest'"),
        (
            {"brokers": "b:1", "topics": ["a"], "start": {"when": 1}},
            "option 'start' is a map; write {time:",
        ),
        (
            {"brokers": "b:1", "topics": ["a"], "start": {"time": "soon"}},
            "'soon' is not an ISO 8601 time",
        ),
        ({"brokers": "b:1", "topics": ["a"], "until": "tomorrow"}, "option 'until' is 'tomorrow'"),
        (
            {"brokers": "b:1", "topics": ["a"], "config": {"isolation.level": "x"}},
            "sets isolation.level, which",
        ),
        (
            {"brokers": "b:1", "topics": ["a"], "config": {"ssl": [1]}},
            "option 'config': ssl is not a text",
        ),
    ],
)
def test_options_that_cannot_work_are_a_sentence(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        build_kafka_source(options)


def test_a_source_with_an_end_is_bounded() -> None:
    options = {"brokers": "b:1", "topics": ["a"]}
    assert build_kafka_source({**options, "until": "latest"}).bounded
    assert not build_kafka_source(options).bounded


def test_the_page_shows_the_example_that_is_tested() -> None:
    example = (ROOT / "examples" / "kafka" / "clicks.yaml").read_text().partition("\n")[2]
    assert f"```yaml\n{example}```" in (ROOT / "docs" / "kafka.md").read_text()
