"""One partition of a source as its shard reads it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from millwheel.core.layout import Position
from millwheel.sources.base import Partition, Reader
from millwheel.workers.outbox import Chunk
from millwheel.workers.silence import Silence
from millwheel.workers.source_frames import ReadSize


@dataclass(slots=True)
class Outstanding:
    """A read that the consumers have not applied yet, and what it makes true once they have."""

    chunks: list[Chunk]
    after: Position
    counters: dict[str, int]

    @property
    def applied(self) -> bool:
        """True once every consumer has all of it."""
        return all(chunk.finished for chunk in self.chunks)


@dataclass(slots=True)
class Part:
    """One partition as its shard reads it. ``position`` and ``max_timestamp`` run ahead of ``committed``. Nothing more
    is read before commit number ``awaits`` of the shard is durable."""

    partition: Partition
    channel: str
    committed: Position
    position: int
    max_timestamp: int
    read_all: bool
    judged: set[int]
    silence: Silence
    reader: Reader | None = None
    next_poll: int = 0
    next_chunk: int = 1
    size: ReadSize = field(default_factory=ReadSize)
    rows_until: int = 0
    outstanding: deque[Outstanding] = field(default_factory=deque)
    certain: bool = True
    awaits: int = 0
