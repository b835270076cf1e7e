"""Writes a stream to the outside world in batches: prepared, committed, and only then published."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from millwheel.adapters.ports import StateStore
from millwheel.adapters.waits import wait_for
from millwheel.connect.sinks.base import (
    BatchRefusedError,
    BatchSplitError,
    Refused,
    SinkBatch,
    SinkRecord,
    Writer,
)
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.formats.store_layout import COMMITTABLE, NEXT_BATCH, number8, number_from8
from millwheel.core.instants.decimals import Scales
from millwheel.core.metrics import Figure
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.records import DeadLetter
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.operators.callbacks import Decode
from millwheel.engine.workers.ports import BackgroundTask
from millwheel.engine.workers.sinks.pending_batches import (
    NO_COMMIT_YET,
    PendingBatch,
    Publication,
    SinkFigures,
    in_parts,
    published,
)
from millwheel.engine.workers.sinks.preparing import RETRY_US, Prepared, Preparing, prepared
from millwheel.errors import InvariantError, UnavailableError, invariant

_ON_THEIR_WAY = 2
"""The most batches being published at a time; the next one waits and grows."""
_FORMER = 0  # the commit of batches of a former owner: durable before we opened
LAST_FLUSH_US = 20_000
"""How long a record waits for others of its batch once the sources have ended."""


@dataclass(frozen=True, slots=True)
class SinkShard:
    """Name, token and store of a shard. ``aside`` hands its batches to another thread; None: the
    loop does all. ``scales`` are the decimals of the records: the writer gets them as numbers."""

    name: ShardName
    token: Token
    store: StateStore
    aside: Callable[[BackgroundTask], None] | None = None
    pipeline: str = ""
    stream: str = ""
    scales: Scales = field(default_factory=dict)


class SinkOperator(Operator):
    """The operator of a ``sink.*`` shard. ``flush_us`` is how long a record may wait for its batch
    to fill up. ``at_once``: batches are visible before they are committed, and after a crash some
    become visible again."""

    collects = True
    asks_for = "their batch to be written"

    def __init__(
        self,
        writer: Writer,
        shard: SinkShard,
        decode: Decode,
        flush_us: int,
        cut_records: int,
        at_once: bool = False,
    ) -> None:
        self._writer = writer
        self._shard = shard
        self._at_once = at_once
        self._aside = shard.aside if writer.publishes_aside and not at_once else None
        self._prepares_from = writer.prepares_aside if self._aside is not None else 0
        self._decode = decode
        self._in_order = self._aside is not None and writer.publishes_in_order
        self._in_columns = writer.takes_columns and not shard.scales
        self.flush_us = flush_us
        self.cut_records = cut_records
        self._waiting_since_us = MAX_TIME
        self._pending: deque[PendingBatch] = deque()
        self._published: list[int] = []
        self._retry_at_us = MAX_TIME
        self._durable = 0
        self._resting = False
        self._unswept: list[bytes] | None = None
        self.news = self._figures = SinkFigures()
        self._refusals = False
        """The target has refused records that are not dead letters yet."""
        self._preparing = Preparing(
            shard.name, shard.token, writer, wait_for(f"sink {shard.stream}"), shard.scales
        )
        self._next_number = self._recover(shard.store)

    def intake(self, waiting: int, now_us: int, watermark: int) -> int:
        if self._aside is not None and len(self._pending) >= _ON_THEIR_WAY:
            return 0
        full = waiting >= self.cut_records or watermark == MAX_TIME or self._resting or self.lone
        return (
            self.cut_records
            if full or now_us >= min(self._waiting_since_us, now_us) + self.flush_us
            else 0
        )

    def records_wait(self, now_us: int) -> None:
        self._waiting_since_us = min(self._waiting_since_us, now_us)

    def wakes_at(self, now_us: int) -> int:
        if self._refusals or (self._resting and self._published):
            return now_us
        flush_at_us = (
            self._waiting_since_us + self.flush_us
            if self._waiting_since_us < MAX_TIME
            else MAX_TIME
        )
        return min(flush_at_us, self._retry_at_us)

    def sources_ended(self) -> None:
        """Note the end of the input: no further records will fill the batch."""
        self.flush_us = min(self.flush_us, LAST_FLUSH_US)

    def ask(self, bundle: Bundle, now_us: int) -> bool:
        records = sum(len(arrival.batch) for arrival in bundle.arrivals)
        if not records:
            return False
        if self._preparing.batch is None:
            self._preparing.begin(self._batch_of(bundle))
        return self._preparing.waits(
            self._aside if 0 < self._prepares_from <= records else None, now_us
        )

    def asks_at(self) -> int:
        return self._preparing.again_at_us

    def run(self, bundle: Bundle) -> None:
        self._waiting_since_us = MAX_TIME
        for number in self._published:
            bundle.overlay.delete(COMMITTABLE + number8(number))
        self._published.clear()
        self._leave_out_refused(bundle)
        if self._retry_at_us <= bundle.now_us:
            self._publish(bundle.now_us)
        if not any(len(arrival.batch) for arrival in bundle.arrivals):
            return
        batch, outcome = self._preparing.take() or self._prepared_now(bundle)
        count = len(batch.records) + sum(map(len, batch.columns))
        number, committable = self._next_number, outcome.committable
        if number != batch.number:  # one before it was split while this one was prepared
            committable = self._writer.renumbered(committable, number)
        self._next_number += 1
        count -= self._refuse(bundle, outcome.refused)
        bundle.overlay.put(NEXT_BATCH, self._next_number.to_bytes(8, "big"))
        bundle.count("records_out", count)
        earliest = min(arrival.batch.earliest for arrival in bundle.arrivals)
        born = [arrival.batch.born_us for arrival in bundle.arrivals if arrival.batch.born_us]
        pending = PendingBatch(
            bundle.number, number, committable, earliest, born, traced=bundle.traced
        )
        if self._at_once and not self._pending and self._shown(pending, bundle.now_us):
            return
        # They are stored by their numbers: one of two would take the place of the other.
        if self._pending and number <= self._pending[-1].number:
            raise InvariantError(
                f"batch {number} of {self._shard.name} follows {self._pending[-1].number}"
            )
        bundle.overlay.put(COMMITTABLE + number8(number), committable)
        self._pending.append(pending)

    def _refuse(self, bundle: Bundle, refused: Sequence[Refused]) -> int:
        """Turn refused records into dead letters. Returns their number."""
        for each in refused:
            key, value, timestamp = each.record.key, each.record.value, each.record.timestamp
            stream = self._shard.stream
            letter = DeadLetter(
                self._shard.pipeline, f"sink.{stream}", stream, each.reason, key, value, timestamp
            )
            bundle.dead_letter(letter, timestamp)
        return len(refused)

    def _leave_out_refused(self, bundle: Bundle) -> None:
        """Batches of which the target took nothing, because of some of their records, are committed
        without them, or in parts where it does not name those records."""
        if self._pending and self._pending[0].parts:
            self._pending = in_parts(self._pending, self._writer, bundle.number)
            for pending in self._pending:
                bundle.overlay.put(COMMITTABLE + number8(pending.number), pending.committable)
            self._next_number = self._pending[-1].number + 1
            bundle.overlay.put(NEXT_BATCH, self._next_number.to_bytes(8, "big"))
        for pending in self._pending:
            if pending.refused:
                # In one commit: a crash before it finds the whole batch, which the target is then
                # asked to take again, and one after it finds letters and the rest. See
                # test_a_crash_around_a_refusal_makes_one_letter.
                bundle.count("records_out", -self._refuse(bundle, pending.refused))
                bundle.overlay.put(COMMITTABLE + number8(pending.number), pending.committable)
                pending.commit, pending.refused = bundle.number, ()
        self._refusals = False

    def durable(self, number: int, now_us: int) -> None:
        self._durable = number
        self._publish(now_us)

    def hold(self, now_us: int) -> Hold:
        if not self._pending:
            return Hold()
        first, why = self._pending[0], self._figures.why
        return Hold(
            min(pending.min_timestamp for pending in self._pending),
            f"sink batch {first.number}, not yet published{f': {why}' if why else ''}",
        )

    def figures(self) -> Sequence[Figure]:
        return self._figures.figures()

    def rest(self, active: bool, now_us: int) -> None:
        """While ``active``, no record waits for its batch to fill up, and committables go once
        their batches are visible."""
        self._resting = active

    def unfinished(self) -> int:
        """How many batches are not visible, or not forgotten."""
        return len(self._pending) + len(self._published)

    def close(self) -> None:
        self._writer.close()

    def _prepared_now(self, bundle: Bundle) -> tuple[SinkBatch, Prepared]:
        batch = self._batch_of(bundle)
        return batch, prepared(self._writer, batch, self._shard.scales)

    def _batch_of(self, bundle: Bundle) -> SinkBatch:
        """The records of a bundle as the next batch."""
        batch = SinkBatch(
            self._next_number, f"{self._shard.token}-{bundle.number}", *self._records(bundle)
        )
        if bundle.traced is None:
            return batch
        return replace(
            batch, traces=bundle.traced.rows([len(arrival.batch) for arrival in bundle.arrivals])
        )

    def _records(self, bundle: Bundle) -> tuple[list[SinkRecord], list[ColumnBatch]]:
        """The records of the batch: in columns if all of them are and the writer accepts columns,
        else one by one."""
        columns = [
            arrival.batch for arrival in bundle.arrivals if isinstance(arrival.batch, ColumnBatch)
        ]
        if len(columns) == len(bundle.arrivals) and self._in_columns:
            return [], [batch for batch in columns if len(batch)]
        records: list[SinkRecord] = []
        for arrival in bundle.arrivals:
            batch = arrival.batch.rows()
            values = self._decode(batch.stream, batch.values)
            records += map(SinkRecord, batch.keys, values, batch.timestamps)
        return records, []

    def _publish(self, now_us: int) -> None:
        # A commit of later records is no reason to try an unavailable target again at once.
        if self._in_order and now_us < self._retry_at_us < MAX_TIME:
            return
        self._retry_at_us = MAX_TIME
        for pending in self._pending:
            # Shown before its commit is durable, it is shown again by the next owner, in a batch
            # that is divided otherwise. See test_a_batch_waits_for_its_own_commit.
            if pending.commit > self._durable:
                break
            # Also behind a former batch that the target refused, and that we have committed without
            # its bad records: else neither goes on. See
            # test_a_refused_batch_of_a_former_owner_does_not_stop_those_behind_it.
            if not pending.former and self._unswept is not None:
                break
            if pending.asked and self._in_order:
                break
            if pending.asked:
                continue
            pending.asked = True
            if pending.traced is not None:
                pending.traced.publish(pending.number)
            if self._aside is not None:
                name, token, answer = (
                    self._shard.name,
                    self._shard.token,
                    (self._publication_ended, self._figures.publish_s),
                )
                self._aside(
                    Publication(
                        name, token, pending.number, pending.committable, self._writer, *answer
                    )
                )
                if self._in_order:
                    break
            elif not self._shown(pending, now_us):
                break
        self._forget_visible()
        if self._sweep():
            self._publish(now_us)

    def _shown(self, pending: PendingBatch, now_us: int) -> bool:
        """Publish a batch on this thread; False when it is to be tried again."""
        self._take_outcome(
            pending, published(self._writer, pending.committable, self._figures.publish_s), now_us
        )
        return pending.visible

    def _publication_ended(self, number: int, error: Exception | None, now_us: int) -> None:
        """Take the outcome of another thread that was to publish a batch."""
        self._take_outcome(
            next(pending for pending in self._pending if pending.number == number), error, now_us
        )
        self._forget_visible()
        if error is None and (self._in_order or self._unswept is not None):
            self._publish(now_us)

    def _take_outcome(self, pending: PendingBatch, error: Exception | None, now_us: int) -> None:
        """Note a batch as visible, or as to be tried again."""
        if pending.traced is not None:
            pending.traced.published("" if error is None else str(error))
        if error is None:
            pending.visible = True
            self._figures.visible(now_us, pending.born, pending.min_timestamp)
        elif isinstance(error, UnavailableError):
            self._figures.away(str(error))
            pending.asked = False
            self._retry_at_us = now_us + RETRY_US
        elif isinstance(error, BatchRefusedError):
            pending.asked = False
            pending.commit, pending.committable, pending.refused = (
                NO_COMMIT_YET,
                error.committable,
                error.refused,
            )
            self._refusals = bool(error.refused) or self._refusals
        elif isinstance(error, BatchSplitError):
            invariant(self._in_order, "only a writer that publishes in order may split a batch")
            pending.asked = False
            pending.commit, pending.parts, self._refusals = NO_COMMIT_YET, error.parts, True
        else:
            raise error

    def _forget_visible(self) -> None:
        # In their order, although threads answer in any: the hold is that of the first, and a
        # number that is missing before one that is gone looks like a batch that was lost. See
        # test_answers_may_come_in_any_order_and_committables_go_in_theirs.
        while self._pending and self._pending[0].visible:
            self._published.append(self._pending.popleft().number)

    def _recover(self, store: StateStore) -> int:
        """Publish every committed batch again (this is idempotent), and delete the batches that
        were never committed."""
        committables = [
            (number_from8(store_key[1:]), committable)
            for store_key, committable in store.scan(COMMITTABLE)
        ]
        self._unswept = [committable for _, committable in committables]
        self._pending += [
            PendingBatch(_FORMER, number, committable, MIN_TIME, [], True)
            for number, committable in committables
        ]
        self._publish(0)
        data = store.get(NEXT_BATCH)
        return 0 if data is None else int.from_bytes(data, "big")

    def _sweep(self) -> bool:
        """Delete the batches that were never committed, once all committed ones are visible.
        Returns whether it did."""
        # Not sooner: a sweep could remove what a publication is about to show. Nor may a batch of
        # our own be published before it: a sink that keeps the latest is fenced by it. See
        # test_nothing_is_swept_before_it_is_published.
        if self._unswept is None or any(each.former and not each.visible for each in self._pending):
            return False
        self._writer.sweep(self._unswept)
        self._unswept = None
        return True
