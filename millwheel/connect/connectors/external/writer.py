"""Publishes the batches of one shard to a target, each once and in order, on the shard's own
thread.

The rows are in our journal before anything is sent, so a transaction of the target that fails,
times out or is lost with its reply is simply sent again. The runtime removes a row that the target
refuses: one commit of ours holds the dead letter and the batch without the row, and nothing of the
batch is written before that commit. Where the target does not tell which row it refuses, the batch
is halved, again by a commit of ours, until the row stands alone.
"""

from __future__ import annotations

import threading

from millwheel.connect.connectors.external.absence import Absence, BackOff
from millwheel.connect.connectors.external.batches import (
    RowBatch,
    decode_rows,
    encode_rows,
    encode_what_can,
)
from millwheel.connect.connectors.external.meanings import (
    RowToBlameError,
    UnknownError,
    given_up,
    in_words,
    is_of_client,
)
from millwheel.connect.connectors.external.target import ExternalTarget, RowsRefusedError
from millwheel.connect.connectors.external.tries import Next, Tries
from millwheel.connect.sinks.base import (
    BatchRefusedError,
    BatchSplitError,
    Refused,
    SinkBatch,
    Writer,
)
from millwheel.errors import FencedError, UnavailableError


class ExternalWriter(Writer):
    """``lane`` is unique to the shard, so an unavailable target delays no other shard."""

    publishes_aside = True
    publishes_in_order = True

    def __init__(
        self,
        target: ExternalTarget,
        lane: str,
        absence: Absence,
        back_off: BackOff,
        where: str = "",
    ) -> None:
        self.lane = lane
        self._where = where or "the target"
        self._tries = Tries()
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

    def renumbered(self, committable: bytes, number: int) -> bytes:
        return encode_rows(number, decode_rows(committable).records())

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
        # Until the target has answered, it is not known what it holds: the next try asks it first.
        # One that goes by what it remembers writes a batch twice whose answer was lost
        # (test_a_lost_answer_is_looked_up).
        last, self._last = self._last, None
        sent = 0
        try:
            if last is None:
                last = self._target.fence()
            if batch.number > last:
                sent = len(batch.rows)
                self._target.write(batch.number, batch.records())
        except RowsRefusedError as ex:
            self._tries.answered()
            raise _without(batch, ex.reasons) from ex
        except BaseException as ex:
            if not is_of_client(ex):
                raise
            last = self._after(batch, sent, in_words(ex, self._where))
        self._last = max(last, batch.number)
        self._tries.worked(len(batch.rows))
        self._back_off.worked()
        self._absence.over()

    def _after(self, batch: RowBatch, sent: int, error: Exception) -> int:
        """Raise what the runtime is to do about an error; ``sent`` rows had been sent when it came.
        Returns the number of the last batch in the target if ours is there in spite of the
        error."""
        if isinstance(error, UnavailableError):
            raise self._again(error)
        if not isinstance(error, RowToBlameError | UnknownError):
            raise error
        what = self._tries.failed(error, sent)
        if what is Next.AGAIN:
            raise self._again(error)
        if what is Next.STOP:
            raise given_up(error)
        # The client may have failed behind the commit: what is there is neither refused nor sent
        # again in parts (test_a_batch_that_was_written_before_its_client_failed_is_not_split).
        if (last := self._looked()) >= batch.number:
            return last
        raise (
            BatchSplitError(str(error), halves(batch))
            if what is Next.HALVE
            else _without(batch, {0: str(error)})
        )

    def _looked(self) -> int:
        try:
            return self._target.fence()
        except BaseException as ex:
            if not is_of_client(ex):
                raise
            error = in_words(ex, self._where)
            raise (
                self._again(error) if isinstance(error, UnavailableError | UnknownError) else error
            ) from ex

    def _again(self, error: Exception) -> UnavailableError:
        self._back_off.failed()
        self._absence.noted(str(error))
        return error if isinstance(error, UnavailableError) else UnavailableError(str(error))


def halves(batch: RowBatch) -> list[bytes]:
    """A batch of at least two rows in two, numbered from its number on."""
    records, middle = batch.records(), len(batch.rows) // 2
    return [
        encode_rows(batch.number, records[:middle]),
        encode_rows(batch.number + 1, records[middle:]),
    ]


def _without(batch: RowBatch, reasons: dict[int, str]) -> BatchRefusedError:
    records = batch.records()
    # Under the same number: with a new one the target would miss a batch, and what it holds would
    # count for another (test_refused_rows_are_told_with_the_batch_without_them).
    accepted = [record for index, record in enumerate(records) if index not in reasons]
    refused = [Refused(records[index], reason) for index, reason in sorted(reasons.items())]
    return BatchRefusedError(refused, encode_rows(batch.number, accepted))
