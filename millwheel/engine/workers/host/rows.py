"""Samples of the rows that the shards of a worker process, for people. Nothing is kept while no one
looks.

An answer has the rows since the last request, so the first answer is empty. Values are shortened,
and fields whose names sound like secrets are hidden, before they leave the worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

import msgspec
import numpy as np

from millwheel.adapters.redaction import redacted, redacted_text
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.loop.shard_handle import Served, WorkMeter

PATIENCE_S = 10.0
"""How long rows are kept after the last question."""
_KEPT = 10  # rows of a shard
_OF_A_BUNDLE = 2  # deliveries of a bundle that are looked at, and rows of each: the last ones
_KEY_CHARS = 120  # of a key that are shown


class SeenRow(msgspec.Struct, frozen=True):
    """A row that ``node`` has taken from ``stream``. ``key`` is in words, ``value`` plain and
    shortened."""

    stream: str
    node: str
    shard: str
    timestamp_us: int
    key: str
    value: Any


class RowWatch:
    """Keeps the last rows of one shard as long as requests come. Called by the loop, once per
    bundle."""

    def __init__(self, meter: WorkMeter, node: NodeName, shard: str) -> None:
        self._meter = meter
        self._of = node, shard
        self._until_s = 0.0
        self._rows: deque[SeenRow] = deque(maxlen=_KEPT)

    def __call__(self, arrivals: Sequence[Arrival]) -> None:
        if monotonic() > self._until_s:
            self._meter.watcher = None
            return
        for arrival in arrivals[-_OF_A_BUNDLE:]:
            try:
                self._rows.extend(self._seen(arrival.batch))
            # a look must not end the worker: values may be objects of any class
            except Exception as ex:
                node, shard = self._of
                why = f"cannot be shown: {type(ex).__name__}"
                self._rows.append(
                    SeenRow(arrival.batch.stream, node, shard, arrival.min_timestamp, "", why)
                )

    def taken(self) -> list[SeenRow]:
        """The rows since the last call; the next ones are kept, too."""
        self._until_s = monotonic() + PATIENCE_S
        rows = list(self._rows)
        self._rows.clear()
        return rows

    def _seen(self, batch: AnyBatch) -> list[SeenRow]:
        node, shard = self._of
        few = _last(batch)
        rows = zip(few.timestamps, few.keys, few.values, strict=True)
        return [
            SeenRow(
                few.stream,
                node,
                shard,
                at,
                redacted_text(repr(key)[:_KEY_CHARS]),
                redacted(_plain(value)),
            )
            for at, key, value in rows
        ]


def rows_of(served: Iterable[Served]) -> list[SeenRow]:
    """The rows that these shards have taken since the last question."""
    rows: list[SeenRow] = []
    for each in served:
        if not isinstance(each.done.watcher, RowWatch):
            each.done.watcher = RowWatch(each.done, each.node, each.shard.identity.shard)
        rows += each.done.watcher.taken()
    return rows


def _last(batch: AnyBatch) -> Batch:
    start = max(0, len(batch) - _OF_A_BUNDLE)
    return (
        batch.where(np.arange(len(batch)) >= start).rows()
        if isinstance(batch, ColumnBatch)
        else batch.tail(start)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        value = msgspec.msgpack.decode(value)
    return msgspec.to_builtins(value, str_keys=True, enc_hook=repr, builtin_types=(bytes,))
