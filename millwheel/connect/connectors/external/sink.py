"""The base class of sinks for other systems, and the writer that publishes the batches of one shard
to a target, each once and in order, on the shard's own thread.

A batch is bytes in our journal before anything is sent, so a transaction of the target that fails,
times out or is lost with its reply is simply sent again. The runtime removes a row that the target
refuses: one commit of ours holds the dead letter and the batch without the row, and nothing of the
batch is written before that commit. Where the target does not name the row that it refuses, the
batch is halved, again by a commit of ours, until the row stands alone.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from millwheel.connect.connectors.external.absence import (
    LONGEST_WAIT_S,
    Absence,
    BackOff,
    absence_of,
)
from millwheel.connect.connectors.external.meanings import (
    Next,
    RowToBlameError,
    Tries,
    UnknownError,
    given_up,
    in_words,
    is_of_client,
)
from millwheel.connect.connectors.external.target import ExternalTarget, Owner, RowsRefusedError
from millwheel.connect.sinks.base import (
    BatchRefusedError,
    BatchSplitError,
    Refused,
    Sink,
    SinkBatch,
    SinkRecord,
    Writer,
)
from millwheel.core.formats.codec import encode_value, tuple_key
from millwheel.core.model.damage import checked
from millwheel.errors import FencedError, SetupError, UnavailableError, invariant


class RowBatch(msgspec.Struct, frozen=True, array_like=True):
    """The records that one transaction writes, as (key, value, timestamp). ``number`` counts from 0
    in the shard."""

    number: int
    rows: list[tuple[Any, Any, int]]

    def records(self) -> list[SinkRecord]:
        """The records as the sink received them."""
        return [SinkRecord(tuple_key(key), value, timestamp) for key, value, timestamp in self.rows]


_encode = msgspec.msgpack.Encoder().encode
decode_rows = checked(msgspec.msgpack.Decoder(RowBatch).decode, "the rows of a batch")
"""The inverse of :func:`encode_rows`. Raises CorruptionError for damaged bytes."""


def encode_rows(number: int, records: Sequence[SinkRecord]) -> bytes:
    """A batch in the form in which its shard's commit stores it. Raises msgspec's errors for values
    that are not plain data."""
    return _encode(
        RowBatch(number, [(record.key, record.value, record.timestamp) for record in records])
    )


def encode_what_can(number: int, records: Sequence[SinkRecord]) -> tuple[bytes, list[Refused]]:
    """:func:`encode_rows` without the records whose values are not plain data; these records are
    returned beside it."""
    try:
        return encode_rows(number, records), []
    except (TypeError, ValueError, OverflowError):
        reasons = [_why_not(record) for record in records]
    good = [record for record, reason in zip(records, reasons, strict=True) if not reason]
    refused = [
        Refused(record, reason) for record, reason in zip(records, reasons, strict=True) if reason
    ]
    return encode_rows(number, good), refused


def _why_not(record: SinkRecord) -> str:
    try:
        encode_value((record.key, record.value))
    except (TypeError, ValueError, OverflowError) as ex:
        return f"the value cannot be written: {ex}"
    return ""


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
        # Until the target has answered, its last batch is unknown: the next try asks it first.
        # Going by memory would write a batch twice whose answer was lost
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
        """Raise the error by which the runtime acts; ``sent`` rows had been sent when it came.
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
        # The client may have failed behind the commit: written rows are neither refused nor sent
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
    # One half would be the batch itself, again and again.
    invariant(len(batch.rows) > 1, f"batch {batch.number} of {len(batch.rows)} rows is halved")
    records, middle = batch.records(), len(batch.rows) // 2
    return [
        encode_rows(batch.number, records[:middle]),
        encode_rows(batch.number + 1, records[middle:]),
    ]


def _without(batch: RowBatch, reasons: dict[int, str]) -> BatchRefusedError:
    # A batch without fewer rows would be refused for ever.
    invariant(
        bool(reasons) and reasons.keys() <= set(range(len(batch.rows))),
        f"batch {batch.number} has {len(batch.rows)} rows; refused are {sorted(reasons)}",
    )
    records = batch.records()
    # Under the same number: with a new one the target would miss a batch, and its last batch would
    # count for another (test_refused_rows_are_told_with_the_batch_without_them).
    accepted = [record for index, record in enumerate(records) if index not in reasons]
    refused = [Refused(records[index], reason) for index, reason in sorted(reasons.items())]
    return BatchRefusedError(refused, encode_rows(batch.number, accepted))


class ExternalSink(Sink):
    """A sink whose rows stay in the journal until a target has accepted them. ``where`` names the
    target in sentences, without secrets: ``PostgreSQL at db:5432``. ``longest_wait_s`` bounds the
    wait between two tries to write to a target that is away."""

    cut_records = 2_000
    where: str = "the target"
    longest_wait_s: float = LONGEST_WAIT_S

    @abstractmethod
    def target(self, owner: Owner) -> ExternalTarget:
        """The target for one owner of a shard. It connects when it is first used, not here."""

    def open(self, shard: str, token: int) -> ExternalWriter:
        if not self.identity:
            raise SetupError(
                f"the sink of {shard} lacks its root's identity: rows of two runs in {self.where}"
                " would be taken for the same. Set the attribute 'identity' of the sink before"
                " open()"
            )
        name = f"{self.identity}/{shard}"
        return ExternalWriter(
            self.target(Owner(name, token)),
            name,
            absence_of(self.where),
            BackOff(self.longest_wait_s),
            self.where,
        )
