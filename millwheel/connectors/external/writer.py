"""Publishes the batches of one shard to a target, each once and in order, on the shard's own thread.

The rows are in our journal before anything is sent, so a transaction of the target that fails, times out or is lost
with its reply is simply sent again. The runtime removes a row that the target refuses: one commit of ours holds the
dead letter and the batch without the row, and nothing of the batch is written before that commit.
"""

from __future__ import annotations

import threading

from millwheel.connectors.external.absence import Absence, BackOff
from millwheel.connectors.external.batches import RowBatch, decode_rows, encode_rows, encode_what_can
from millwheel.connectors.external.target import ExternalTarget, RowsRefusedError
from millwheel.errors import FencedError, UnavailableError
from millwheel.sinks.base import BatchRefusedError, Refused, SinkBatch, Writer


class ExternalWriter(Writer):
    """``lane`` is unique to the shard, so an unavailable target delays no other shard."""

    publishes_aside = True
    publishes_in_order = True

    def __init__(self, target: ExternalTarget, lane: str, absence: Absence, back_off: BackOff) -> None:
        self.lane = lane
        self._target = target
        self._absence = absence
        self._back_off = back_off
        self._last: int | None = None
        self._refused: list[Refused] = []
        self._using = threading.Lock()
        self._closed = False

    def prepare(self, batch: SinkBatch) -> bytes:
        """The rows themselves: the commit stores them in the journal."""
        committable, self._refused = encode_what_can(batch.number, batch.records)
        return committable

    def take_refused(self) -> list[Refused]:
        refused, self._refused = self._refused, []
        return refused

    def publish(self, committable: bytes) -> None:
        batch = decode_rows(committable)
        with self._using:
            try:
                self._back_off.wait()
                self._write(batch)
            finally:
                if self._closed:  # while we wrote
                    self._target.close()

    def sweep(self, committables: list[bytes]) -> None:
        """Nothing is left behind: ``fence`` ends any write that a former owner has begun."""

    def close(self) -> None:
        self._closed = True
        if self._using.acquire(blocking=False):  # else the thread that publishes closes
            try:
                self._target.close()
            finally:
                self._using.release()

    def _write(self, batch: RowBatch) -> None:
        if self._closed:
            raise FencedError(f"{self.lane} is closed here: another worker publishes its batches")
        # Until the target has answered, it is not known what it holds: the next try asks it first. One that goes by
        # what it remembers writes a batch twice whose answer was lost (test_a_lost_answer_is_looked_up).
        last, self._last = self._last, None
        try:
            if last is None:
                last = self._target.fence()
            if batch.number > last:
                self._target.write(batch.number, batch.records())
        except UnavailableError as ex:
            self._back_off.failed()
            self._absence.noted(str(ex))
            raise
        except RowsRefusedError as ex:
            raise _without(batch, ex.reasons) from ex
        self._last = max(last, batch.number)
        self._back_off.worked()
        self._absence.over()


def _without(batch: RowBatch, reasons: dict[int, str]) -> BatchRefusedError:
    records = batch.records()
    # Under the same number: with a new one the target would miss a batch, and what it holds would count for another
    # (test_refused_rows_are_told_with_the_batch_without_them).
    kept = [record for index, record in enumerate(records) if index not in reasons]
    refused = [Refused(records[index], reason) for index, reason in sorted(reasons.items())]
    return BatchRefusedError(refused, encode_rows(batch.number, kept))
