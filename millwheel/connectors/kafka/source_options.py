"""The options below ``source: {kafka: …}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from millwheel.connectors.kafka.client import check_config
from millwheel.core.instants.texts import text_us
from millwheel.errors import RecordError
from millwheel.formats.choice import MESSAGE_FORMATS
from millwheel.formats.options import Format, Given, read_format
from millwheel.options import one_of

EXAMPLES = {
    "brokers": 'brokers: "127.0.0.1:9092"',
    "topics": "topics: [clicks]",
    "format": "format: json",
    "start": "start: earliest",
    "until": "until: latest",
    "group": "group: my-pipeline",
    "on_gap": "on_gap: stop",
    "isolation": "isolation: read_committed",
    "key_field": "key_field: _key",
    "timestamp_field": "timestamp_field: _timestamp",
    "headers_field": "headers_field: _headers",
    "tombstones": "tombstones: skip",
    "config": "config: {security.protocol: ssl}",
}


class KafkaSourceOptions(msgspec.Struct, frozen=True):
    """``topics`` are names, or one pattern that begins with ``^``. ``start`` is the first position in a partition that
    is new to the root: ``earliest``, ``latest``, ``{time: …}`` or ``{group: …}`` (the committed offsets of a consumer
    group). ``until: latest`` reads the messages that exist when the root is new, and ends. ``group`` is the consumer
    group to which positions are reported for lag tools; they are never read back. ``key_field``, ``timestamp_field``
    (ms) and ``headers_field`` add the other parts of a message to each record.
    """

    brokers: str
    topics: str | list[str]
    format: Given = "json"
    start: str | dict[str, Any] = "earliest"
    until: str | None = None
    group: str | None = None
    on_gap: str = "stop"
    isolation: str = "read_committed"
    key_field: str | None = None
    timestamp_field: str | None = None
    headers_field: str | None = None
    tombstones: str | None = None
    config: dict[str, Any] = {}

    def __post_init__(self) -> None:
        self.form()
        one_of("on_gap", self.on_gap, ("stop", "continue"))
        one_of("isolation", self.isolation, ("read_committed", "read_uncommitted"))
        if self.tombstones is not None:
            one_of("tombstones", self.tombstones, ("reject", "skip"))
        if self.until is not None:
            one_of("until", self.until, ("latest",))
        check_config(self.config)
        self._check_topics()
        self._check_start()

    def form(self) -> Format:
        """The format. Raises ValueError for an invalid one."""
        return read_format(self.format, MESSAGE_FORMATS)

    def skips_tombstones(self) -> bool:
        """Whether messages without a value are skipped; among change events one follows each delete."""
        return self.tombstones == "skip" or (self.tombstones is None and self.form().name == "debezium")

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
        return str(self.start["group"]) if isinstance(self.start, Mapping) and "group" in self.start else None

    def _check_topics(self) -> None:
        names = [self.topics] if isinstance(self.topics, str) else self.topics
        if not names or "" in names:
            raise ValueError("option 'topics' is empty; write for example topics: [clicks]")
        if len(names) > 1 and any(name.startswith("^") for name in names):
            raise ValueError("option 'topics' mixes a pattern with names; write one pattern, or names only")
        try:
            self.pattern()
        except re.error as ex:
            raise ValueError(f"option 'topics': {names[0]} is no regular expression: {ex}") from ex

    def _check_start(self) -> None:
        if isinstance(self.start, str):
            one_of("start", self.start, ("earliest", "latest"))
        elif len(self.start) != 1 or next(iter(self.start)) not in ("time", "group"):
            raise ValueError("option 'start' is a map; write {time: 2026-01-01T00:00:00Z} or {group: name}")
        self.start_ms()


_MS = 1_000  # Fixed: µs


def _ms(moment: Any) -> int:
    try:
        return text_us(str(moment)) // _MS
    except RecordError:
        raise ValueError(
            f"option 'start': {moment!r} is no ISO 8601 time; write for example {{time: 2026-01-01T00:00:00Z}}"
        ) from None
