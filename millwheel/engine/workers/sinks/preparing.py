"""Batches of sinks that another thread prepares, while the bundle that will commit them waits and
other shards work on.

The bundle runs, and so is committed, only once its batch is written: a committable never names a
batch that a power cut may take back. See mistake batches_committed_before_they_are_prepared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from millwheel.adapters.waits import Wait
from millwheel.connect.connectors.external.meanings import is_of_client, named
from millwheel.connect.sinks.base import Refused, SinkBatch, SinkRecord, Writer
from millwheel.connect.sinks.result_rows import records_of
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.instants.decimals import NO_SCALES, Scales, beyond, with_decimals
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.ports import BackgroundTask
from millwheel.errors import InvariantError, UnavailableError

RETRY_US = 100_000  # before a batch that could not be prepared or published is tried again
_BOUNDARY = ColumnBoundary("a sink")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared batch. ``refused`` are records that are not in it."""

    committable: bytes
    refused: Sequence[Refused]


def prepared(writer: Writer, batch: SinkBatch, scales: Scales = NO_SCALES) -> Prepared:
    """Prepare a batch, on this thread. If that fails in columns, it is tried record by record. The
    writer gets decimals, which have ``scales``, as numbers; such a batch is never in columns."""
    if scales:
        shown, refused = _shown(batch, scales)
        done = _prepared(writer, shown)
        return Prepared(done.committable, [*refused, *done.refused])
    if batch.columns:
        with suppress(Inexact), _BOUNDARY.inside():
            return _prepared(writer, batch)
        batch = replace(
            batch,
            records=[one for columns in batch.columns for one in records_of(columns)],
            columns=[],
        )
    return _prepared(writer, batch)


def _shown(batch: SinkBatch, scales: Scales) -> tuple[SinkBatch, list[Refused]]:
    """The batch with its decimals as numbers, and the records that have some beyond 64 bits."""
    reasons = [beyond(each.value, scales) for each in batch.records]
    records = [
        SinkRecord(each.key, with_decimals(each.value, scales), each.timestamp)
        for each, reason in zip(batch.records, reasons, strict=True)
        if not reason
    ]
    refused = [Refused(*each) for each in zip(batch.records, reasons, strict=True) if each[1]]
    # the indexes of traces are those of all records
    return replace(batch, records=records, traces={} if refused else batch.traces), refused


def _prepared(writer: Writer, batch: SinkBatch) -> Prepared:
    committable = writer.prepare(batch)
    return Prepared(committable, writer.take_refused())


@dataclass(frozen=True, slots=True)
class Preparation:
    """A batch for another thread to prepare. ``report(found, error)`` is called by the loop."""

    shard: ShardName
    token: Token
    batch: SinkBatch
    writer: Writer
    report: Callable[[Prepared | None, Exception | None], None]
    scales: Scales = field(default_factory=dict)

    @property
    def lane(self) -> str:
        """Each shard has a thread of its own: its batches are prepared one after the other, and a
        large one delays no publication."""
        return f"prepare {self.shard}"

    def carried_out(self) -> ev.WorkDone:
        """Prepare it. The loop raises an error."""
        outcome, error = self._prepared()
        return ev.WorkDone(self.shard, self.token, lambda _: self.report(outcome, error))

    def _prepared(self) -> tuple[Prepared | None, Exception | None]:
        try:
            return prepared(self.writer, self.batch, self.scales), None
        except Exception as ex:
            return None, ex
        except BaseException as ex:  # of a library: the thread must not end in silence
            if not is_of_client(ex):
                raise
            return None, InvariantError(
                f"a batch was not prepared, and its thread was asked to end: {named(ex)}"
            )


class Preparing:
    """The batch of the bundle that waits until it is prepared. While its target has no room, or
    does not answer, the bundle waits, and the input with it: nothing of it is committed, and
    nothing is lost. ``wait`` has the reason."""

    def __init__(
        self,
        shard: ShardName,
        token: Token,
        writer: Writer,
        wait: Wait,
        scales: Scales = NO_SCALES,
    ) -> None:
        self._scales = scales
        self._shard = shard
        self._token = token
        self._writer = writer
        self._wait = wait
        self._asking = False
        self._failed = False
        self._found: Prepared | None = None
        self.batch: SinkBatch | None = None
        self.again_at_us = 0
        """When to look again (wall clock); MAX_TIME: once another thread has answered."""

    def begin(self, batch: SinkBatch) -> None:
        """Take the batch of the bundle."""
        self.batch, self.again_at_us = batch, 0

    def waits(self, aside: Callable[[BackgroundTask], None] | None, now_us: int) -> bool:
        """Whether the bundle must wait: prepares its batch, on another thread if ``aside`` is
        given. Raises the error of the writer, unless it is unavailable."""
        assert self.batch is not None
        if (
            self._found is None
            and not self._asking
            and not self._failed
            and now_us >= self.again_at_us
        ):
            self._try(self.batch, aside)
        if self._failed:
            self._failed, self.again_at_us = False, now_us + RETRY_US
        return self._found is None

    def _try(self, batch: SinkBatch, aside: Callable[[BackgroundTask], None] | None) -> None:
        if aside is not None:
            self._asking, self.again_at_us = True, MAX_TIME
            aside(
                Preparation(
                    self._shard,
                    self._token,
                    batch,
                    self._writer,
                    self._preparation_ended,
                    self._scales,
                )
            )
            return
        try:
            self._preparation_ended(prepared(self._writer, batch, self._scales), None)
        except UnavailableError as ex:
            self._preparation_ended(None, ex)

    def _preparation_ended(self, outcome: Prepared | None, error: Exception | None) -> None:
        """Take a prepared batch, or the error."""
        self._asking, self.again_at_us = False, 0
        if error is None:
            self._found = outcome
            self._wait.over()
        elif isinstance(error, UnavailableError):
            self._failed = True
            self._wait.noted(str(error))
        else:
            raise error

    def take(self) -> tuple[SinkBatch, Prepared] | None:
        """The batch of the bundle that runs now, if it has waited."""
        batch, outcome = self.batch, self._found
        self.batch = self._found = None
        return None if batch is None or outcome is None else (batch, outcome)
