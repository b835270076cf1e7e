"""Writes a stream to the outside world in cuts: prepared, committed, and only then published."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from millwheel.core.column_batch import ColumnBatch
from millwheel.core.layout import CUTS, RECEIPT, number8, number_from8
from millwheel.core.times import MAX_TIME
from millwheel.errors import UnavailableError
from millwheel.ports import StateStore
from millwheel.sinks.base import Cut, SinkRecord, SinkWriter
from millwheel.workers.callbacks import Decode
from millwheel.workers.turn import Hold, Turn

_RETRY_US = 100_000


@dataclass(slots=True)
class _Pending:
    """A cut that is prepared; committed once ``commit`` is durable; then to be published."""

    commit: int
    number: int
    receipt: bytes
    min_timestamp: int
    born: list[int]
    records: int


class SinkOperator:
    """The operator of a ``sink.*`` shard. ``flush_us`` is how long a record may wait for its cut to fill up."""

    def __init__(
        self, writer: SinkWriter, token: int, store: StateStore, decode: Decode, flush_us: int, cut_records: int
    ) -> None:
        self._writer = writer
        self._token = token
        self._decode = decode
        self._in_columns: bool = getattr(writer, "takes_columns", False)
        self._flush_us = flush_us
        self._cut_records = cut_records
        self._waiting_since = MAX_TIME
        self._pending: deque[_Pending] = deque()
        self._published: list[int] = []
        self._retry_at = MAX_TIME
        self._durable = 0
        self.latencies_ms: list[float] = []
        self._next_number = self._recover(store)

    def appetite(self, waiting: int, now: int, watermark: int) -> int:
        self._waiting_since = min(self._waiting_since, now)
        full = waiting >= self._cut_records or watermark == MAX_TIME
        return self._cut_records if full or now >= self._waiting_since + self._flush_us else 0

    def wakes_at(self, now: int) -> int:
        flush_at = self._waiting_since + self._flush_us if self._waiting_since < MAX_TIME else MAX_TIME
        return min(flush_at, self._retry_at)

    def due_at(self) -> int:
        return MAX_TIME

    def run(self, turn: Turn) -> None:
        self._waiting_since = MAX_TIME
        for number in self._published:
            turn.overlay.delete(RECEIPT + number8(number))
        self._published.clear()
        if self._retry_at <= turn.now:
            self._publish(turn.now)
        records, columns = self._records(turn)
        count = len(records) + sum(map(len, columns))
        if not count:
            return
        number = self._next_number
        self._next_number += 1
        receipt = self._writer.prepare(Cut(number, f"{self._token}-{turn.number}", records, columns))
        turn.overlay.put(RECEIPT + number8(number), receipt)
        turn.overlay.put(CUTS, self._next_number.to_bytes(8, "big"))
        turn.count("records_out", count)
        earliest = min(arrival.batch.earliest for arrival in turn.arrivals)
        born = [arrival.batch.born_us for arrival in turn.arrivals if arrival.batch.born_us]
        self._pending.append(_Pending(turn.number, number, receipt, earliest, born, count))

    def durable(self, number: int, now: int) -> None:
        self._durable = number
        self._publish(now)

    def hold(self, now: int) -> Hold:
        if not self._pending:
            return Hold()
        first = self._pending[0]
        return Hold(min(cut.min_timestamp for cut in self._pending), f"cut {first.number}, not yet published")

    def close(self) -> None:
        self._writer.close()

    def _records(self, turn: Turn) -> tuple[list[SinkRecord], list[ColumnBatch]]:
        """What has come, one by one, or in columns if all of it is and the writer takes that."""
        columns = [arrival.batch for arrival in turn.arrivals if isinstance(arrival.batch, ColumnBatch)]
        if len(columns) == len(turn.arrivals) and self._in_columns:
            return [], [batch for batch in columns if len(batch)]
        records: list[SinkRecord] = []
        for arrival in turn.arrivals:
            batch = arrival.batch.rows()
            values = self._decode(batch.stream, batch.values)
            records += map(SinkRecord, batch.keys, values, batch.timestamps)
        return records, []

    def _publish(self, now: int) -> None:
        self._retry_at = MAX_TIME
        while self._pending and self._pending[0].commit <= self._durable:
            cut = self._pending[0]
            try:
                self._writer.publish(cut.receipt)
            except UnavailableError:
                self._retry_at = now + _RETRY_US
                return
            self._pending.popleft()
            self._published.append(cut.number)
            self.latencies_ms += [(now - born) / 1000 for born in cut.born]

    def _recover(self, store: StateStore) -> int:
        """Publish every committed cut again (it is idempotent), sweep what was never committed."""
        found = [(number_from8(place[1:]), receipt) for place, receipt in store.scan(RECEIPT)]
        for number, receipt in found:
            self._writer.publish(receipt)
            self._published.append(number)
        self._writer.sweep([receipt for _, receipt in found])
        data = store.get(CUTS)
        return 0 if data is None else int.from_bytes(data, "big")
