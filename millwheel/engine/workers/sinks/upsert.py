"""A sink that shows the current rows: the latest of each identity, without those that were taken
back.

The rows are state of the shard, in the same commits as the high-water marks of the channels they
came by: exactly the latest row per identity, through all crashes, and no more than that. From time
to time all of them are written out as one batch, which replaces the one before. Acks do not wait
for that; rows that are not visible yet hold the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from millwheel.adapters.ports import StateStore
from millwheel.adapters.waits import wait_for
from millwheel.connect.sinks.base import LostError, SinkBatch, SinkRecord, Writer
from millwheel.core.formats.codec import decode_value, encode_value, tuple_key
from millwheel.core.formats.store_layout import NEXT_BATCH, ROW, key_prefix, pack, unpack
from millwheel.core.instants.decimals import NO_SCALES, Scales, beyond, with_decimals
from millwheel.core.metrics import Figure
from millwheel.core.model.keys import key_hash
from millwheel.core.model.names import Token
from millwheel.core.model.records import DeadLetter
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.panes import as_retraction
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.sinks.pending_batches import SinkFigures
from millwheel.engine.workers.sinks.preparing import RETRY_US
from millwheel.engine.workers.sinks.sink import LAST_FLUSH_US
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import UnavailableError

ROWS_PER_FLUSH = 50_000
"""A table of this many rows is written once per ``flush`` at most, one of twice as many half as
often."""
_MOST_SAMPLES = 10_000  # latencies of a flush that are kept
_AT_ONCE = MIN_TIME // 2
"""The rows that are not visible since then are due at any time."""


@dataclass(frozen=True, slots=True)
class Table:
    """The current rows, in the store of a shard. A row is identified by its key, and with
    ``by_window`` by its window too if it has one. ``watermark`` is that of the input as the last
    commit saw it."""

    by_window: bool
    watermark: int

    def apply(self, overlay: Overlay, record: SinkRecord) -> None:
        """Let a record replace the row of its identity, or a retraction remove it if it is the
        current one."""
        back = as_retraction(record.value)
        value = decode_value(encode_value(record.value if back is None else back.value))
        row_key = key_prefix(ROW, record.key, key_hash(record.key))
        if (
            self.by_window
            and type(value) is dict
            and "window_start" in value
            and "window_end" in value
        ):
            row_key += pack((value["window_start"], value["window_end"]))
        if back is None:
            overlay.put(row_key, pack((record.key, record.timestamp, value)))
            return
        standing = overlay.get(row_key)
        if standing is not None and _same(read_row(standing).value, value):
            overlay.delete(row_key)


@dataclass(slots=True)
class _Unseen:
    """Records that are not visible: their earliest timestamp, since when, and when they entered the
    system."""

    min_timestamp: int = MAX_TIME
    since_us: int = MAX_TIME
    born: list[int] | None = None

    def join(self, timestamp: int, since_us: int, born: list[int]) -> None:
        self.min_timestamp = min(self.min_timestamp, timestamp)
        self.since_us = min(self.since_us, since_us)
        self.born = [*(self.born or []), *born][:_MOST_SAMPLES]


@dataclass(slots=True)
class _Pending:
    """Rows that are prepared; to be published once ``commit`` is durable."""

    commit: int
    committable: bytes
    unseen: _Unseen


class UpsertOperator(Operator):
    """The operator of a ``sink.*`` shard whose sink ``keeps_latest``."""

    collects = True

    def __init__(
        self,
        writer: Writer,
        token: Token,
        store: StateStore,
        decode: Decode,
        table: Table,
        flush_us: int,
        stream: str = "",
        scales: Scales = NO_SCALES,
        pipeline: str = "",
    ) -> None:
        self._pipeline = pipeline
        self._stream = stream
        self._writer = writer
        self._scales = scales
        self._wait = wait_for(f"sink {stream}")
        self._write_at_us = MIN_TIME
        """Before this (wall clock) no rows are prepared: the target had no room for them."""
        self._table = table
        self._token = token
        self._decode = decode
        self._flush_us = flush_us
        self._rows = 0
        self._pending: _Pending | None = None
        self._retry_at_us = MAX_TIME
        self._durable = 0
        self._resting = False
        self.news = self._figures = SinkFigures()
        self._writer.sweep([])
        stored = store.get(NEXT_BATCH)
        self._next_number = 0 if stored is None else int.from_bytes(stored, "big")
        written = stored is not None or any(True for _ in store.scan(ROW))
        self._unseen = (
            _Unseen(min(table.watermark, MAX_TIME - 1), _AT_ONCE) if written else _Unseen()
        )

    def wakes_at(self, now_us: int) -> int:
        if self._pending is not None:
            return self._retry_at_us
        if self._unseen.since_us == MAX_TIME:
            return MAX_TIME
        return max(
            now_us if self._resting else self._unseen.since_us + self._wait_us(), self._write_at_us
        )

    def sources_ended(self) -> None:
        """Note the end of the input: no further records will fill the batch."""
        self._flush_us = min(self._flush_us, LAST_FLUSH_US)

    def due_at(self) -> int:
        idle = (
            self._pending is not None
            or self._unseen.since_us == MAX_TIME
            or self._write_at_us > MIN_TIME
        )
        return MAX_TIME if idle else MAX_TIME - 1

    def run(self, bundle: Bundle) -> None:
        if self._retry_at_us <= bundle.now_us:
            self._publish(bundle.now_us)
        for arrival in bundle.arrivals:
            batch = arrival.batch.rows()
            values = self._decode(batch.stream, batch.values)
            for key, value, timestamp in zip(batch.keys, values, batch.timestamps, strict=True):
                if self._scales and (reason := beyond(value, self._scales)):
                    of = f"sink.{self._stream}", self._stream
                    letter = DeadLetter(self._pipeline, *of, reason, key, value, timestamp)
                    bundle.dead_letter(letter, timestamp)
                    continue
                self._table.apply(bundle.overlay, SinkRecord(key, value, timestamp))
            if len(batch):
                bundle.count("records_out", len(batch))
                self._unseen.join(
                    batch.earliest, bundle.now_us, [batch.born_us] if batch.born_us else []
                )
        if self._unseen.since_us < MAX_TIME and self._pending is None and self._is_time(bundle):
            self._write(bundle)

    def durable(self, number: int, now_us: int) -> None:
        self._durable = number
        self._publish(now_us)

    def hold(self, now_us: int) -> Hold:
        waiting = self._unseen.min_timestamp
        if self._pending is not None:
            waiting = min(waiting, self._pending.unseen.min_timestamp)
        why = f": {self._figures.why}" if self._figures.why else ""
        return (
            Hold() if waiting == MAX_TIME else Hold(waiting, f"rows that are not visible yet{why}")
        )

    def figures(self) -> Sequence[Figure]:
        return self._figures.figures()

    def rest(self, active: bool, now_us: int) -> None:
        """While ``active``, rows become visible at once."""
        self._resting = active

    def unfinished(self) -> int:
        """1 while rows are not visible."""
        return int(self._pending is not None or self._unseen.since_us < MAX_TIME)

    def close(self) -> None:
        self._writer.close()

    def _wait_us(self) -> int:
        return self._flush_us * max(1, self._rows // ROWS_PER_FLUSH)

    def _is_time(self, bundle: Bundle) -> bool:
        if bundle.now_us < self._write_at_us:
            return False
        return (
            self._resting
            or bundle.watermark == MAX_TIME
            or bundle.now_us >= self._unseen.since_us + self._wait_us()
        )

    def _write(self, bundle: Bundle) -> None:
        records = [read_row(data) for _, data in bundle.overlay.scan(ROW)]
        if self._scales:
            records = [
                SinkRecord(each.key, with_decimals(each.value, self._scales), each.timestamp)
                for each in records
            ]
        self._rows = len(records)
        batch = SinkBatch(self._next_number, f"{self._token}-{bundle.number}", records)
        try:
            committable = self._writer.prepare(batch)
        except UnavailableError as ex:
            self._write_at_us = bundle.now_us + RETRY_US
            self._wait.noted(str(ex))
            return
        self._write_at_us = MIN_TIME
        self._wait.over()
        self._next_number += 1
        bundle.overlay.put(NEXT_BATCH, self._next_number.to_bytes(8, "big"))
        self._pending = _Pending(bundle.number, committable, self._unseen)
        self._unseen = _Unseen()

    def _publish(self, now_us: int) -> None:
        self._retry_at_us = MAX_TIME
        pending = self._pending
        # Rows of a commit that is not durable may never have stood: see mistake
        # uncommitted_rows_shown.
        if pending is None or pending.commit > self._durable:
            return
        began_s = monotonic()
        try:
            self._writer.publish(pending.committable)
        except LostError:
            self._pending = None
            self._unseen.join(pending.unseen.min_timestamp, _AT_ONCE, pending.unseen.born or [])
        except UnavailableError as ex:
            self._retry_at_us = now_us + RETRY_US
            self._figures.away(str(ex))
        else:
            self._pending = None
            self._figures.publish_s.add(monotonic() - began_s)
            self._figures.visible(now_us, pending.unseen.born or [], pending.unseen.min_timestamp)


def read_row(data: bytes) -> SinkRecord:
    """A row as it is stored."""
    row: Any = unpack(data)
    key, timestamp, value = row
    return SinkRecord(tuple_key(key), value, timestamp)


def _same(standing: Any, back: Any) -> bool:
    """Equal, also where a value is not a number (NaN), which is never equal to itself."""
    return bool(standing == back) or encode_value(standing) == encode_value(back)
