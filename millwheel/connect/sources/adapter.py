"""Sources and readers of third parties that are not derived from the base classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.connect.plug_ins import require, take_over
from millwheel.connect.sources.base import Chunk, Partition, Reader, Source


def as_source(instance: Any) -> Source:
    """``instance`` itself if it is a Source, else wrapped. Raises SetupError when a required member
    is missing."""
    if isinstance(instance, Source):
        return instance
    require(instance, Source, "bounded")
    return _AdaptedSource(instance)


def as_reader(instance: Any) -> Reader:
    """``instance`` itself if it is a Reader, else wrapped. Raises SetupError when a required member
    is missing."""
    if isinstance(instance, Reader):
        return instance
    require(instance, Reader)
    return _AdaptedReader(instance)


class _AdaptedSource(Source):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(self, instance, "poll_us", "list_us", "warm_up", "committed", "ends")

    @property
    def bounded(self) -> bool:  # type: ignore[override]  # it may change: a source may learn that it ends
        return bool(self._made.bounded)

    def partitions(self) -> Sequence[Partition]:
        partitions: Sequence[Partition] = self._made.partitions()
        return partitions

    def open(self, partition: Partition) -> Reader:
        return as_reader(self._made.open(partition))


class _AdaptedReader(Reader):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(
            self,
            instance,
            "resume",
            "read_frame",
            "skip",
            "stop_at",
            "reached",
            "tell_traces",
            "close",
        )

    def read(self, position: int, max_records: int) -> Chunk:
        read: Chunk = self._made.read(position, max_records)
        return read
