"""Runs a user's Computation: one key at a time, each record behind the timers that are due earlier.

A bundle runs at full speed first. If a callback raises, everything of the bundle is taken back and
it runs again with a savepoint before each record, so that only the record that fails is retried
and, in the end, sent to the dead-letter stream, in the same commit as everything else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, repeat
from operator import length_hint
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from millwheel.adapters.ports import StoreView
from millwheel.api import Computation, Context
from millwheel.core.formats.codec import encode_value, handed_out
from millwheel.core.model.keys import Key
from millwheel.core.model.limits import Limits
from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import NO_LABEL, Batch, Domain, Record, Timer
from millwheel.core.model.timers import Due
from millwheel.core.model.times import BEGINNING, MIN_TIME
from millwheel.core.order.labels import NO_USE, LabelUse
from millwheel.core.pipeline.graph import runs_user_code
from millwheel.core.pipeline.production_ids import Cause, record_causes, timer_cause
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.rows.latest import Located, is_located, table_without_times
from millwheel.engine.queries.model import Finding, Query
from millwheel.engine.workers.boundaries import passes
from millwheel.engine.workers.bundle.attempts import Attempts, Subject, code_of
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import (
    TOGETHER_MARK,
    Avoided,
    Doing,
    Watched,
    record_mark,
    timer_mark,
)
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.bundle.record_order import (
    Positions,
    order_buffer,
)
from millwheel.engine.workers.operators.call_order import CallOrder, Fire
from millwheel.engine.workers.operators.callback_context import CallbackContext
from millwheel.engine.workers.operators.suspension import SUSPENDED_TAG, Resumed, Suspending
from millwheel.engine.workers.state.cells import TTL_TAG
from millwheel.engine.workers.state.keyed_state import KeyedState, callback_state
from millwheel.engine.workers.state.overlay import Overlay

T = TypeVar("T")
Decode = Callable[[str, list[Any] | msgspec.Raw], list[Any]]
"""(stream, values as they travelled) -> values as the callback sees them."""
Process = Callable[[Context, Record], None]


class _LookCloserError(Exception):
    """A sign that a call in this bundle did not return before, so that each call must be looked
    at."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One record or timer to process, as the careful mode sees it."""

    key: Key
    timestamp: int
    record: Record | None
    timer: Due | None
    cause: Cause
    origin: Due | tuple[Batch, ChannelName, int]

    def mark(self) -> bytes:
        """Its identity if it does not return."""
        return (
            timer_mark(self.origin) if isinstance(self.origin, Due) else record_mark(*self.origin)
        )


@dataclass(slots=True)
class Together:
    """Some records of one key, in one call."""

    key: Key = None


@dataclass(frozen=True, slots=True)
class _Running:
    """A batch of a channel during its processing. ``keys`` are those of the remaining records."""

    batch: Batch
    channel: ChannelName
    keys: Iterator[Key]


class CallbackOperator(Operator):
    """The operator of a computation with a ``callback``."""

    emits_at_floor = True
    """Its processing-time timers produce at the shard's floor."""

    def __init__(
        self,
        spec: ComputationSpec,
        pipeline: str,
        instance: Computation,
        overlay: Overlay,
        decode: Decode,
        cache_entries: int,
        limits: Limits,
        labels: LabelUse = NO_USE,
    ) -> None:
        self._instance = instance
        self._decode = decode
        self._state = KeyedState(instance, overlay, cache_entries, limits.state)
        self._identified = spec.identified
        self._changes = runs_user_code(spec)
        outputs, passes_on = frozenset(spec.outputs), spec.called is None
        self._context = CallbackContext(outputs, self._state, limits, self._identified, passes_on)
        suspends = isinstance(instance, Suspending)
        if not suspends or self._identified or labels.takes or labels.gives:
            # the name of a production and its wait belong to its record's own step
            self._context.suspension.most_room = sys.maxsize
        self._labels = labels.gives
        self._located = is_located(spec.work)
        self._order = CallOrder(
            self._context,
            self._state,
            order_buffer(spec, overlay, decode),
            Positions(overlay, decode, labels.follows) if labels.takes else None,
            labels.gives,
            self._identified,
            table_without_times(spec.work),
        )
        self._attempts = Attempts(spec, pipeline, code_of(spec.work), self._state)
        self._process: Process = instance.process_record
        self._at: Due | _Running | Together | None = None
        """The position of the fast mode: at a timer, in a batch, or at some records of a key."""

    def answer(self, query: Query, state: StoreView, watermark_us: int) -> Finding:
        """Its declared states by name, as a call at the watermark would find them."""
        states = callback_state(type(self._instance), state, query.key, watermark_us)
        if not states:
            return super().answer(query, state, watermark_us)
        return Finding(query.chosen(states))

    def run(self, bundle: Bundle) -> None:
        self._context.begin(bundle)
        bundle.outputs.label = NO_LABEL if self._labels else None
        bundle.overlay.savepoint()
        marks = {domain: queue.savepoint() for domain, queue in bundle.timers.items()}
        start, produced = bundle.overlay.savepoint(), bundle.outputs.mark()
        try:
            if self._attempts.avoided.lone or (
                self._attempts.avoided.hangs and self._may_hang(bundle)
            ):
                raise _LookCloserError
            self._run_fast(bundle)
            # Encoded before the try ends: a value that cannot be stored is the fault of one record
            # as well. See test_state_that_grows_over_the_limit_keeps_what_it_was.
            changed = self._state.encoded()
            self._at = None
        except BaseException as ex:  # any exception of a callback concerns one record: find it
            if passes(ex):
                raise
            # All that the first try did must go: its state, its timers, its outputs, and the list
            # of the timers that fired. What is left happens twice. See
            # test_what_a_failing_record_did_to_a_timer_that_is_due_never_happened.
            bundle.overlay.undo_to(start)
            for domain, queue in bundle.timers.items():
                queue.undo_to(marks[domain])
            # letters about records that were left out before it ran stay
            bundle.outputs.cut_to(produced)
            bundle.due.clear()
            bundle.clock = MIN_TIME
            self._order.forget()
            self._state.forget()
            if bundle.traced is not None:
                bundle.traced.forget_made()
            self._context.begin(bundle)
            self._at = None
            self._run_carefully(bundle)
            changed = self._state.encoded()
        bundle.overlay.forget_savepoints()
        self._state.write(changed)
        self._context.suspension.hold()
        self._order.write()

    def intake(self, waiting: int, now_us: int, watermark: int) -> int:
        return 0 if self._context.suspension.crowded else waiting

    def durable(self, number: int, now_us: int) -> None:
        self._attempts.avoided.durable(number)

    # --- watching ---------------------------------------------------------------------------------

    def watched(self) -> Watched:
        return self

    def avoid(self, avoided: Avoided) -> None:
        """See :class:`millwheel.engine.workers.bundle.hangs.Watched`, as for the next three."""
        self._attempts.avoided = avoided

    def busy(self) -> bool:
        return self._at is not None or self._attempts.current is not None

    def progress(self) -> tuple[int, int]:
        at = self._at
        ahead = length_hint(at.keys) if isinstance(at, _Running) else 0
        return self._context.calls - ahead, self._attempts.calls

    def doing(self) -> Doing | None:
        at, current = self._at, self._attempts.current
        if current is not None:
            mark, subject = current
            about = subject()
            return Doing(about.what, about.key, mark())
        if isinstance(at, Due):
            return Doing("timer", at.key, timer_mark(at))
        if isinstance(at, Together):
            return Doing("batch", at.key, TOGETHER_MARK)
        if at is None:
            return None
        batch, index = at.batch, len(at.batch) - length_hint(at.keys) - 1
        return (
            Doing("record", batch.keys[index], record_mark(batch, at.channel, index))
            if index >= 0
            else None
        )

    def _may_hang(self, bundle: Bundle) -> bool:
        arrivals = [(arrival.channel, arrival.batch.rows()) for arrival in bundle.arrivals]
        return self._attempts.avoided.may_meet(arrivals)

    # --- calls ------------------------------------------------------------------------------------

    def _run_fast(self, bundle: Bundle) -> None:
        self._fire_due(bundle, self._fire_one)
        self._run_records(bundle)
        self._order.ring_due(bundle, self._fire_one)

    def _run_records(self, bundle: Bundle) -> None:
        """Call for one record after the other, in the order of arrival."""
        context, state, process = self._context, self._state, self._process
        for number, arrival in enumerate(self._order.at_once(bundle, self._fire_one)):
            batch = arrival.batch.rows()
            times, records = batch.timestamps, self._records(batch, arrival.channel)
            # Where the iterator stands is where we are: nothing has to be counted for that.
            keys = iter(batch.keys)
            self._at = _Running(batch, arrival.channel, keys)
            state.read_ahead(batch.keys)
            if self._identified:
                causes = record_causes(batch, arrival.channel)
                caused = zip(keys, times, records, causes, strict=True)
                for key, timestamp, record, cause in self._order.coming(
                    _watched(caused, number, bundle), batch, bundle, self._fire_one
                ):
                    context.point(key, timestamp, cause)
                    process(context, record)
                    if state.unsettled:
                        self._order.settle(bundle, self._fire_one)
                continue
            context.calls += len(batch)
            moments = state.moments(times, batch.labels)
            rows = zip(keys, times, moments, records, strict=True)
            coming = self._order.coming(
                _watched(rows, number, bundle), batch, bundle, self._fire_one
            )
            for key, context.timestamp, state.timestamp, record in coming:
                context.key = state.key = key
                process(context, record)
                if state.unsettled:
                    self._order.settle(bundle, self._fire_one)

    def _records(self, batch: Batch, channel: ChannelName) -> Iterable[Record]:
        """The records of a batch as calls get them."""
        parts = batch.keys, self._handed_out(batch), batch.timestamps, repeat(batch.stream)
        if self._located:
            return map(Located, *parts, repeat(channel), batch.seqs or repeat(0))
        return map(Record, *parts)

    def _handed_out(self, batch: Batch) -> list[Any]:
        return (
            handed_out(batch, self._decode)
            if self._changes
            else self._decode(batch.stream, batch.held_values)
        )

    def _fire_due(self, bundle: Bundle, fire: Fire) -> None:
        if self.first is not None and not self.first.left:
            # The watermark of the other input may take longer. See
            # test_records_wait_for_the_table_and_not_for_their_own_watermark.
            bundle.clock = max(bundle.clock, BEGINNING + 1)
        self._order.fire_due(bundle, fire)

    def _fire_one(self, due: Due) -> None:
        at, self._at = self._at, due
        if due.tag == SUSPENDED_TAG:
            for resumed in _resumed(self._instance, self._context, due):
                self._context.point(due.key, resumed.timestamp)
                self._process(self._context, resumed)
                self._state.settle()
        elif not self._context.suspension.postpones(due):
            self._call_due(due)
        self._at = at

    def _call_due(self, due: Due) -> None:
        record = self._order.begin(due)
        self._context.point(
            due.key,
            _time_of(due, record, self._context.floor),
            timer_cause(due) if self._identified else None,
        )
        if record is not None:
            self._process(self._context, record)
        elif due.tag.startswith(TTL_TAG):
            self._state.expire(due.tag, due.at)
        else:
            with self._context.chains.call(due):
                self._instance.process_timer(
                    self._context, Timer(due.key, due.tag, due.at, due.domain)
                )
        self._state.settle()

    def _run_carefully(self, bundle: Bundle) -> None:
        def fire(due: Due) -> None:
            if due.tag != SUSPENDED_TAG:
                if not self._context.suspension.postpones(due):
                    self._attempt(bundle, self._call_of(due))
                return
            for each in _resumed(self._instance, self._context, due):
                call = _Call(due.key, each.timestamp, each, None, None, due)
                self._attempt(bundle, call)

        self._fire_due(bundle, fire)
        for number, arrival in enumerate(self._order.at_once(bundle, fire)):
            batch = arrival.batch.rows()
            causes = (
                record_causes(batch, arrival.channel) if self._identified else [None] * len(batch)
            )
            rows = zip(count(), self._records(batch, arrival.channel), causes)
            watched = _watched(rows, number, bundle)
            for index, record, cause in self._order.coming(watched, batch, bundle, fire):
                origin = batch, arrival.channel, index
                self._attempt(
                    bundle, _Call(record.key, record.timestamp, record, None, cause, origin)
                )
                self._order.settle(bundle, fire)
        self._order.ring_due(bundle, fire)

    def _call_of(self, due: Due) -> _Call:
        record, cause = self._order.begin(due), timer_cause(due) if self._identified else None
        return _Call(
            due.key,
            _time_of(due, record, self._context.floor),
            record,
            None if record is not None else due,
            cause,
            due,
        )

    def _attempt(self, bundle: Bundle, call: _Call) -> None:
        record = call.record
        encoded = msgspec.Raw(b"" if record is None else encode_value(record.value))
        room = self._context.suspension.room

        def as_it_came(record: Record) -> Record:
            return structs.replace(record, value=self._decode(record.stream, [encoded])[0])

        def once() -> None:
            # With less, a second attempt would stop before it comes to the failure, and be resumed
            # for ever.
            self._context.suspension.room = room
            if record is not None:
                self._context.point(call.key, call.timestamp, call.cause)
                self._process(self._context, as_it_came(record))
                self._state.settle()
            elif call.timer is not None:
                self._fire_one(call.timer)

        self._attempts.run(
            bundle, once, lambda: _subject(call, record and as_it_came(record)), call.mark
        )
        self._at = None


def _resumed(instance: Computation, context: CallbackContext, due: Due) -> Iterator[Resumed]:
    """The records of a timer's key that go on."""
    assert isinstance(instance, Suspending)
    context.point(due.key, MIN_TIME)
    return instance.resumed(context)


def _watched(rows: Iterable[T], arrival: int, bundle: Bundle) -> Iterable[T]:
    """The rows of an arrival; a traced one is credited with its productions."""
    return (
        rows
        if bundle.traced is None
        else bundle.traced.watched(rows, arrival, bundle.outputs.lengths)
    )


def _time_of(due: Due, record: Record | None, floor: int) -> int:
    """The earliest time for productions of the call."""
    # A wall-clock timer has no event time. Before the floor its results would be behind a published
    # watermark, and windows would drop them:
    # test_a_new_owner_never_goes_behind_a_watermark_published_beside_a_waiting_timer.
    if record is not None:
        return record.timestamp
    return due.at if due.domain is Domain.EVENT else floor


def _timer_text(due: Due) -> str:
    """The text of a timer in a dead letter."""
    # Without its cause: that names channels, and they depend on how many shards there are. See
    # test_the_letter_of_a_timer_does_not_tell_its_cause.
    return repr(Timer(due.key, due.tag, due.at, due.domain))


def _subject(call: _Call, record: Record | None) -> Subject:
    if record is not None:
        return Subject("record", call.key, call.timestamp, record.value, record.stream, call.cause)
    assert call.timer is not None
    return Subject("timer", call.key, call.timestamp, _timer_text(call.timer), cause=call.cause)
