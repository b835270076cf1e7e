"""What flows: records, timers, and the batches they travel in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millwheel.core.keys import Key


class Domain(Enum):
    """The clock a timer obeys."""

    EVENT = "event"
    """The low watermark of the computation's inputs."""
    PROCESSING = "processing"
    """The worker's wall clock."""


class Record:
    """What ``process_record`` receives: ``key``, ``value``, ``timestamp`` (µs UTC) and ``stream`` it came by."""

    __slots__ = ("key", "stream", "timestamp", "value")

    def __init__(self, key: Key, value: Any, timestamp: int, stream: str) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.stream = stream

    def __repr__(self) -> str:
        return f"Record(key={self.key!r}, value={self.value!r}, timestamp={self.timestamp}, stream={self.stream!r})"


class Timer:
    """What ``process_timer`` receives: the ``tag`` and time ``at`` (µs) it was set for, and its ``domain``."""

    __slots__ = ("at", "domain", "key", "tag")

    def __init__(self, key: Key, tag: str, at: int, domain: Domain) -> None:
        self.key = key
        self.tag = tag
        self.at = at
        self.domain = domain

    def __repr__(self) -> str:
        return f"Timer(key={self.key!r}, tag={self.tag!r}, at={self.at}, domain={self.domain.value})"


@dataclass(slots=True)
class Batch:
    """Records of one stream in order, as parallel columns of equal length.

    ``seqs`` rise strictly and number the records in their channel. ``keys`` are under the extractor of the
    computation the batch goes to. ``ids`` are external ids (None: the stream has none).
    ``born_us`` is the wall clock at which the oldest of them entered the system, for latency figures.
    """

    stream: str
    seqs: list[int]
    timestamps: list[int]
    keys: list[Key]
    values: list[Any]
    ids: list[Any] | None = None
    born_us: int = 0

    def __len__(self) -> int:
        return len(self.seqs)


@dataclass(slots=True)
class DeadLetter:
    """A record that could not be used, with all that is needed to understand and replay it."""

    pipeline: str
    computation: str
    stream: str
    reason: str
    key: Any = None
    value: Any = None
    timestamp: int | None = None
    exception: str = ""
    location: str = ""
    attempts: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    position: str = ""
