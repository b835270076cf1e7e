"""The options below ``kafka:`` of a sink."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from millwheel.connect.connectors.kafka.client import check_config
from millwheel.connect.formats.choice import MESSAGE_FORMATS
from millwheel.connect.formats.options import FORMS, DebeziumOptions, Format, Given, read_format
from millwheel.connect.options import Brokers, Flush, Mark, Option, WithKey, WithTimestamp
from millwheel.connect.own_functions import expression_of
from millwheel.connect.sinks.base import flush_us
from millwheel.connect.sinks.result_rows import MODES, Mode

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"


class KafkaSinkOptions(msgspec.Struct, frozen=True):
    """Messages to Kafka topics."""

    brokers: Brokers
    topic: Annotated[
        str | dict[str, Any],
        Option(
            "results",
            text=(
                "a topic that exists, or `{by: \"'clicks-' + country\", among: [clicks-de,"
                " clicks-fr]}`, which computes it per row; a row for any other topic becomes a"
                " dead letter"
            ),
        ),
    ]
    format: Annotated[
        Given,
        Option(
            "json",
            MESSAGE_FORMATS,
            forms=FORMS,
            text="as for the source; `debezium` writes changes, with `mode: changelog`",
        ),
    ] = "json"
    key: Annotated[
        str | None, Option("ad_id", text="an expression over the record's value: the message's key")
    ] = None
    headers: Annotated[
        dict[str, str], Option("{source: name}", text="expressions that make the message's headers")
    ] = {}
    partition: Annotated[
        str | None,
        Option(
            "ad_id % 4",
            text="an expression for the number of the message's partition",
            default="the key decides",
        ),
    ] = None
    guarantee: Annotated[
        str,
        Option(
            "exactly_once",
            (EXACTLY_ONCE, AT_LEAST_ONCE),
            text=(
                "`exactly_once` writes rows and their number in one transaction; after a"
                " crash `at_least_once` may repeat rows"
            ),
        ),
    ] = EXACTLY_ONCE
    mode: Annotated[
        str,
        Option(
            "append",
            MODES,
            text=(
                "`changelog`: a retraction is a row with a mark; `upsert`: a retraction is a"
                " tombstone of its `key`"
            ),
        ),
    ] = "append"
    mark: Mark = "change"
    flush: Flush = "20ms"
    marks_topic: Annotated[
        str,
        Option(
            "millwheel-marks",
            text=(
                "the compacted topic with the number of the last batch that each shard of the"
                " sink has published; created if it does not exist. If you delete it while a"
                " pipeline is stopped, its last batch may be published twice"
            ),
        ),
    ] = "millwheel-marks"
    event_time: Annotated[
        bool,
        Option(
            "true",
            text=(
                "`true` gives each message the time of its record. Brokers apply retention to"
                " that time, so they would delete a replay of old data at once, and they"
                " refuse times in the future"
            ),
        ),
    ] = False
    with_key: WithKey = False
    with_timestamp: WithTimestamp = False
    config: Annotated[
        dict[str, Any], Option("{compression.type: zstd}", text="any other setting of librdkafka")
    ] = {}

    def __post_init__(self) -> None:
        self._check_format()
        flush_us(self.flush)
        self._check_topic()
        check_config(self.config)
        if self.mode == Mode.UPSERT and self.key is None:
            raise ValueError(
                "option 'mode' is upsert, which needs the option 'key', which identifies a row"
            )
        for name, text in self._expressions():
            try:
                expression_of(text)
            except ValueError as ex:
                raise ValueError(f"option {name!r}: {ex}") from ex

    def topics(self) -> list[str]:
        """All topics to which rows may go."""
        return [self.topic] if isinstance(self.topic, str) else list(self.topic["among"])

    def topic_of(self, named: str) -> str:
        """The topic of a message; ``named`` is "" where there is only one."""
        return named or self.topics()[0]

    def subject(self) -> str:
        """The default subject of a schema in the registry; "" where several topics are written
        to."""
        return f"{self.topic}-value" if isinstance(self.topic, str) else ""

    def topic_by(self) -> str | None:
        """The expression that names the topic of a row."""
        return None if isinstance(self.topic, str) else str(self.topic["by"])

    def _check_topic(self) -> None:
        topic = self.topic
        if isinstance(topic, str):
            return
        names = topic.get("among")
        sound = (
            isinstance(names, list)
            and names
            and all(isinstance(name, str) and name for name in names)
        )
        if set(topic) != {"by", "among"} or not sound:
            raise ValueError(
                "option 'topic' is a map; write a name, or {by: \"'clicks-' + country\", among:"
                " [clicks-de, clicks-fr]}"
            )

    def form(self) -> Format:
        """The format. Raises ValueError for an invalid one."""
        return read_format(self.format, MESSAGE_FORMATS)

    def _check_format(self) -> None:
        form = self.form()
        if form.name != "debezium":
            return
        if self.mode != Mode.CHANGELOG:
            raise ValueError(
                "option 'mode': format debezium writes values as inserts and retractions as"
                " deletes, which is mode: changelog; write that"
            )
        if form.options != DebeziumOptions():
            raise ValueError(
                "option 'format': debezium has no options in a sink; write format: debezium"
            )

    def _expressions(self) -> list[tuple[str, str]]:
        expressions = [
            ("key", self.key),
            ("partition", self.partition),
            ("topic", self.topic_by()),
            *(("headers", text) for text in self.headers.values()),
        ]
        return [(name, text) for name, text in expressions if text is not None]
