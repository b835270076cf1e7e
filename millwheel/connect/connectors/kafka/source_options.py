"""The options below ``source: {kafka: …}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from millwheel.connect.connectors.kafka.client import check_config
from millwheel.connect.formats.choice import MESSAGE_FORMATS
from millwheel.connect.formats.options import FORMS, Format, Given, read_format
from millwheel.connect.options import Brokers, Option
from millwheel.core.instants.texts import text_us
from millwheel.errors import RecordError


class KafkaSourceOptions(msgspec.Struct, frozen=True):
    """Messages of Kafka topics."""

    brokers: Brokers
    topics: Annotated[
        str | list[str],
        Option("[clicks]", text="a list of names, or one pattern that begins with `^`"),
    ]
    format: Annotated[
        Given,
        Option(
            "json",
            MESSAGE_FORMATS,
            forms=FORMS,
            text="how messages are written; [formats](formats.md) with options",
        ),
    ] = "json"
    start: Annotated[
        str | dict[str, Any],
        Option(
            "earliest",
            ("earliest", "latest"),
            text=(
                "where to begin a partition that is new to the root: `earliest`,"
                " `latest`, `{time: 2026-01-01T00:00:00Z}`, or `{group: name}` for the"
                " committed offsets of a consumer group"
            ),
        ),
    ] = "earliest"
    until: Annotated[
        str | None,
        Option(
            "latest",
            ("latest",),
            text="`latest`: end after the messages that exist when the root is new",
            default="never ends",
        ),
    ] = None
    group: Annotated[
        str | None,
        Option(
            "my-pipeline",
            text=(
                "a consumer group that gets our positions, for tools that show lag; they are"
                " never read back"
            ),
        ),
    ] = None
    on_gap: Annotated[
        str,
        Option(
            "stop",
            ("stop", "continue"),
            text=(
                "if retention has deleted unread messages: `stop` the run with an error, or"
                " `continue` with the oldest message and make a dead letter that names the"
                " missing offsets"
            ),
        ),
    ] = "stop"
    isolation: Annotated[
        str,
        Option(
            "read_committed",
            ("read_committed", "read_uncommitted"),
            text="`read_uncommitted` also reads messages of open and aborted transactions",
        ),
    ] = "read_committed"
    key_field: Annotated[
        str | None, Option("_key", text="a field for the message's key (text)")
    ] = None
    timestamp_field: Annotated[
        str | None, Option("_timestamp", text="a field for the message's timestamp (ms)")
    ] = None
    headers_field: Annotated[
        str | None, Option("_headers", text="a field for the message's headers (a map)")
    ] = None
    tombstones: Annotated[
        str | None,
        Option(
            "skip",
            ("reject", "skip", "delete"),
            text=(
                "`reject`: a message without a value becomes a dead letter; `skip`: it is ignored;"
                " `delete`: it deletes the row of its key from the [table](pipeline.md#table) that"
                " the stream is"
            ),
            default="`reject` (`debezium`: `skip`)",
        ),
    ] = None
    config: Annotated[
        dict[str, Any],
        Option(
            "{security.protocol: ssl}",
            text=(
                "any other setting of librdkafka, for example `{security.protocol: ssl}`; use"
                " `${secret:NAME}` for passwords"
            ),
        ),
    ] = {}

    def __post_init__(self) -> None:
        self.form()
        check_config(self.config)
        self._check_topics()
        self._check_start()
        if self.tombstones == "delete" and self.key_field is None:
            raise ValueError(
                "option 'tombstones': delete needs the key of the message; write key_field: FIELD"
            )

    def form(self) -> Format:
        """The format. Raises ValueError for an invalid one."""
        return read_format(self.format, MESSAGE_FORMATS)

    def skips_tombstones(self) -> bool:
        """Whether messages without a value are skipped; among change events one follows each
        delete."""
        return self.tombstones == "skip" or (
            self.tombstones is None and self.form().name == "debezium"
        )

    def names(self) -> list[str]:
        """The topics, [] when there is a pattern."""
        names = [self.topics] if isinstance(self.topics, str) else self.topics
        return [name for name in names if not name.startswith("^")]

    def pattern(self) -> re.Pattern[str] | None:
        """The pattern of the names of topics, None for a list of names."""
        names = [self.topics] if isinstance(self.topics, str) else self.topics
        return next((re.compile(name) for name in names if name.startswith("^")), None)

    def start_ms(self) -> int | None:
        """The moment with which ``start: {time: …}`` begins, in ms since 1970 UTC."""
        if not isinstance(self.start, Mapping) or "time" not in self.start:
            return None
        return _ms(self.start["time"])

    def start_group(self) -> str | None:
        """The consumer group at whose committed offsets reading begins."""
        return (
            str(self.start["group"])
            if isinstance(self.start, Mapping) and "group" in self.start
            else None
        )

    def _check_topics(self) -> None:
        names = [self.topics] if isinstance(self.topics, str) else self.topics
        if not names or "" in names:
            raise ValueError("option 'topics' is empty; write for example topics: [clicks]")
        if len(names) > 1 and any(name.startswith("^") for name in names):
            raise ValueError(
                "option 'topics' mixes a pattern with names; write one pattern, or names only"
            )
        try:
            self.pattern()
        except re.error as ex:
            raise ValueError(
                f"option 'topics': {names[0]} is not a regular expression: {ex}"
            ) from ex

    def _check_start(self) -> None:
        forms = ("time", "group")
        if isinstance(self.start, dict) and (
            len(self.start) != 1 or next(iter(self.start)) not in forms
        ):
            raise ValueError(
                "option 'start' is a map; write {time: 2026-01-01T00:00:00Z} or {group: name}"
            )
        self.start_ms()


_MS = 1_000  # Fixed: µs


def _ms(moment: Any) -> int:
    try:
        return text_us(str(moment)) // _MS
    except RecordError:
        raise ValueError(
            f"option 'start': {moment!r} is not an ISO 8601 time; write for example {{time:"
            " 2026-01-01T00:00:00Z}"
        ) from None
