"""Sinks and writers of third parties that are not derived from the base classes."""

from __future__ import annotations

from typing import Any

from millwheel.connect.plug_ins import require, take_over
from millwheel.connect.sinks.base import Sink, SinkBatch, Writer

_WRITER_OPTIONS = (
    "takes_columns",
    "publishes_aside",
    "prepares_aside",
    "publishes_in_order",
    "lane",
    "take_refused",
    "close",
)
_SINK_OPTIONS = (
    "flush_us",
    "cut_records",
    "takes_retractions",
    "replaces_rows",
    "keeps_latest",
    "shows_at_once",
    "adopt",
)


def as_sink(instance: Any) -> Sink:
    """``instance`` itself if it is a Sink, else wrapped. SetupError when a necessary member is
    missing."""
    if isinstance(instance, Sink):
        return instance
    require(instance, Sink)
    return _AdaptedSink(instance)


def as_writer(instance: Any) -> Writer:
    """``instance`` itself if it is a Writer, else wrapped. SetupError when a necessary member is
    missing."""
    if isinstance(instance, Writer):
        return instance
    require(instance, Writer)
    return _AdaptedWriter(instance)


class _AdaptedSink(Sink):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(self, instance, *_SINK_OPTIONS)

    def check(self, identity: str) -> None:
        self._made.check(identity)

    def open(self, shard: str, token: int) -> Writer:
        return as_writer(self._made.open(shard, token))


class _AdaptedWriter(Writer):
    def __init__(self, instance: Any) -> None:
        self._made = instance
        take_over(self, instance, *_WRITER_OPTIONS)

    def prepare(self, batch: SinkBatch) -> bytes:
        committable: bytes = self._made.prepare(batch)
        return committable

    def publish(self, committable: bytes) -> None:
        self._made.publish(committable)

    def sweep(self, committables: list[bytes]) -> None:
        self._made.sweep(committables)
