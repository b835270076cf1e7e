"""The options below ``kafka:`` of a sink."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.connectors.kafka.client import check_config
from millwheel.core.expressions.language import compile_expression
from millwheel.formats.choice import MESSAGE_FORMATS
from millwheel.formats.options import DebeziumOptions, Format, Given, read_format
from millwheel.options import one_of
from millwheel.sinks.base import flush_us
from millwheel.sinks.changes import Mode, mode_of

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
EXAMPLES = {
    "brokers": 'brokers: "127.0.0.1:9092"',
    "topic": "topic: results",
    "format": "format: json",
    "key": "key: ad_id",
    "headers": "headers: {source: name}",
    "partition": "partition: ad_id % 4",
    "guarantee": "guarantee: exactly_once",
    "mode": "mode: append",
    "mark": "mark: change",
    "flush": "flush: 20ms",
    "marks_topic": "marks_topic: millwheel-marks",
    "event_time": "event_time: true",
    "with_key": "with_key: true",
    "with_timestamp": "with_timestamp: true",
    "config": "config: {compression.type: zstd}",
}


class KafkaSinkOptions(msgspec.Struct, frozen=True):
    """``topic`` is a name, or ``{by: expression, among: [names]}``. ``key``, ``headers`` and ``partition`` are
    expressions over the record's value. ``guarantee: exactly_once`` writes rows and their number in one transaction;
    ``at_least_once`` does without, so a crash may repeat some rows. ``mode: upsert`` writes a retraction as a tombstone
    of its ``key``, ``changelog`` as a row with a mark. ``event_time`` gives a message the time of its record instead of
    the time at which it is sent: the brokers then delete messages older than the retention at once, and refuse messages
    from the future. ``marks_topic`` is the compacted topic that remembers, for each shard of a sink, which rows it has
    published."""

    brokers: str
    topic: str | dict[str, Any]
    format: Given = "json"
    key: str | None = None
    headers: dict[str, str] = {}
    partition: str | None = None
    guarantee: str = EXACTLY_ONCE
    mode: str = "append"
    mark: str = "change"
    flush: str | int = "20ms"
    marks_topic: str = "millwheel-marks"
    event_time: bool = False
    with_key: bool = False
    with_timestamp: bool = False
    config: dict[str, Any] = {}

    def __post_init__(self) -> None:
        self._check_format()
        one_of("guarantee", self.guarantee, (EXACTLY_ONCE, AT_LEAST_ONCE))
        flush_us(self.flush)
        self._check_topic()
        check_config(self.config)
        if mode_of(self.mode) is Mode.UPSERT and self.key is None:
            raise ValueError("option 'mode' is upsert, which needs the option 'key': what identifies a row")
        for name, text in self._expressions():
            try:
                compile_expression(text)
            except ValueError as ex:
                raise ValueError(f"option {name!r}: {ex}") from ex

    def topics(self) -> list[str]:
        """All topics that rows may go to."""
        return [self.topic] if isinstance(self.topic, str) else list(self.topic["among"])

    def topic_of(self, named: str) -> str:
        """The topic of a message; ``named`` is "" where there is only one."""
        return named or self.topics()[0]

    def subject(self) -> str:
        """The default subject of a schema in the registry; "" where several topics are written to."""
        return f"{self.topic}-value" if isinstance(self.topic, str) else ""

    def topic_by(self) -> str | None:
        """The expression that decides where a row goes."""
        return None if isinstance(self.topic, str) else str(self.topic["by"])

    def _check_topic(self) -> None:
        topic = self.topic
        if isinstance(topic, str):
            return
        names = topic.get("among")
        sound = isinstance(names, list) and names and all(isinstance(name, str) and name for name in names)
        if set(topic) != {"by", "among"} or not sound:
            raise ValueError(
                "option 'topic' is a map; write a name, or {by: \"'clicks-' + country\", among: [clicks-de, clicks-fr]}"
            )

    def form(self) -> Format:
        """The format. Raises ValueError for an invalid one."""
        return read_format(self.format, MESSAGE_FORMATS)

    def _check_format(self) -> None:
        form = self.form()
        if form.name != "debezium":
            return
        if mode_of(self.mode) is not Mode.CHANGELOG:
            raise ValueError(
                "option 'mode': format debezium writes values as inserts and retractions as deletes, which "
                "is mode: changelog; write that"
            )
        if form.options != DebeziumOptions():
            raise ValueError("option 'format': debezium has no options in a sink; write format: debezium")

    def _expressions(self) -> list[tuple[str, str]]:
        given = [
            ("key", self.key),
            ("partition", self.partition),
            ("topic", self.topic_by()),
            *(("headers", text) for text in self.headers.values()),
        ]
        return [(name, text) for name, text in given if text is not None]
