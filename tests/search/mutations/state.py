"""Deliberate mistakes about times to live and timers of callbacks, and objects that
cross into user code. The features that a pipeline must have to show one stand in its docstring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from millwheel.core.model.records import Domain, Record
from millwheel.core.model.timers import Due
from millwheel.core.model.times import LAST_TIME, MAX_TIME
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.operators.callback_context import CallbackContext
from millwheel.engine.workers.state.cells import ABSENT, Cell, Typed
from millwheel.engine.workers.state.handles import ListCells
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.engine.workers.state.waiting_records import WaitingRecords
from millwheel.errors import EndlessTimerError
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=10, features="ttl callback many_writes", variants="together bundles")
def what_was_written_in_a_bundle_does_not_expire_in_it() -> Context:
    """Only what is in the store already has a time to live. (``ttl`` or ``deduplicate``, and two
    records of a key, further apart than that, in one bundle.)"""
    right = Typed.found

    def wrong(self: Typed, cell: Cell) -> Any:
        return cell.value if cell.dirty else right(self, cell)

    return replaced(Typed, "found", wrong)


@mistake(
    within=10, features="ttl callback many_writes disorder", variants="reference uncached together"
)
def what_is_over_is_removed_by_a_look() -> Context:
    """A look at what has outlived its time removes it, as far as the cache is concerned. (``ttl``,
    records out of order, and caches or none.)"""
    right = Typed.found

    def wrong(self: Typed, cell: Cell) -> Any:
        found = right(self, cell)
        if found is ABSENT:
            cell.value = ABSENT
        return found

    return replaced(Typed, "found", wrong)


@mistake(within=40, features="ttl", variants="reference", first=19)
def each_write_moves_the_timer_of_a_removal() -> Context:
    """What is to be removed waits until its key is silent for the time to live. (A map with
    ``ttl``, or ``deduplicate``, a busy key, and a look at what lies in the store: results do not
    show it.)"""

    def wrong(self: KeyedState, tag: str, at: int) -> None:
        self._timers.set(self.key, self._tags + tag, min(at, LAST_TIME))

    return replaced(KeyedState, "look_at", wrong)


@mistake(within=10, features="ttl callback many_writes", variants="reference")
def a_list_is_as_old_as_its_last_item() -> Context:
    """An item that comes out of order makes the list older. (A ``ListState`` with ``ttl``, records
    out of order.)"""
    right = ListCells.append

    def wrong(self: ListCells, item: Any) -> None:
        right(self, item)
        store_key = self._owner.prefix(self._name)
        header = msgspec.msgpack.encode((self._header(store_key)[0], self._owner.timestamp))
        self._owner.overlay.put(store_key, header)

    return replaced(ListCells, "append", wrong)


@mistake(within=40, features="timers callback stated wall_clock", variants="clocks clocks-crashes")
@contextmanager
def wall_clock_timers_leave_their_queue_before_the_records() -> Iterator[None]:
    """A timer that is due fires, whatever the records of its step do to it.

    Whether a record or the clock comes first is nowhere promised, so runs that are compared do not
    tell; a callback that knows which timers it has set does."""
    waiting: dict[int, list[Due]] = {}
    right = Bundle._event_timers

    def events(self: Bundle) -> Iterator[Due]:
        queue = self.timers[Domain.PROCESSING]
        due = waiting.setdefault(id(self), [])
        clock = MAX_TIME if self.watermark == MAX_TIME else self.now_us
        while (timer := queue.pop_due(clock)) is not None:
            due.append(timer)
        return right(self)

    def rings(self: Bundle) -> Iterator[Due]:
        for timer in waiting.pop(id(self), []):
            self.timers[Domain.PROCESSING].cancel(timer.key, timer.tag)
            self.due.append(timer)
            yield timer

    with replaced(Bundle, "_event_timers", events), replaced(Bundle, "_processing_timers", rings):
        yield


@mistake(within=60, features="timers stated", variants="reference together", first=13)
def timers_that_timers_set_wait_for_the_next_step() -> Context:
    """A timer that is set for a time that the watermark has passed fires behind the records of the
    step. (Timers that set timers, or ``past_timers``, and a watermark that rises in large steps, or
    bundles.)"""

    def wrong(self: Bundle) -> Iterator[Due]:
        queue = self.timers[Domain.EVENT]
        if self.due:
            return
        while (timer := queue.pop_due(self.watermark)) is not None:
            self.due.append(timer)
        for timer in self.due:
            queue.set(timer.key, timer.tag, timer.at, timer.cause)
        for timer in list(self.due):
            if queue.get(timer.key, timer.tag) == timer.at:
                queue.cancel(timer.key, timer.tag)
                yield timer

    return replaced(Bundle, "_event_timers", wrong)


@mistake(within=20, features="order_by", variants="crashes")
def records_that_have_come_wait_for_the_next_owner() -> Context:
    """Which records of a segment have come is not stored until all have. (``order_by``, and a
    crash.)"""
    right = WaitingRecords._write_gone

    def wrong(self: WaitingRecords, number: int) -> None:
        if not self._open[number].left:
            right(self, number)

    return replaced(WaitingRecords, "_write_gone", wrong)


@mistake(within=5, features="timer_limit order_by", variants="bundles together reference", first=11)
def records_that_wait_count_as_timers() -> Context:
    """Every timer of a key counts towards its limit, also those of the system. (``order_by`` or
    ``enrich``, a callback that sets timers, and a low ``limits.timers_per_key``.)"""
    return replaced(CallbackContext, "owns", lambda self, tag: True)


@mistake(within=20, features="timers_after_end", variants="bundles together reference")
def what_records_set_before_the_end_counts_as_endless() -> Context:
    """Every timer of a key that is set again counts as one that timers set after the end of the
    input. (A callback that sets timers, and a low ``limits.timers_after_end``.)"""

    counts: Counter[tuple[int, Any]] = Counter()

    def wrong(self: CallbackContext, tag: str, at: int, domain: Domain = Domain.EVENT) -> None:
        counts[id(self), self.key] += 1
        if counts[id(self), self.key] > self.chains._most:
            raise EndlessTimerError(tag)
        right(self, tag, at, domain)

    right = CallbackContext.set_timer
    return replaced(CallbackContext, "set_timer", wrong)


@mistake(within=60, features="deduplicate global_window", variants="reference")
def what_is_written_at_the_last_instant_is_over_at_once() -> Context:
    """A time to live ends with time itself. (``deduplicate`` or ``ttl`` behind a global window that
    fires early.)"""

    def wrong(self: Typed, at: int, now_us: int) -> bool:
        return self.ttl_us is not None and now_us >= min(at + self.ttl_us, LAST_TIME)

    return replaced(Typed, "gone_by", wrong)


@mistake(within=10, features="batches ttl many_writes", variants="together bundles")
def records_that_come_together_are_of_one_time() -> Context:
    """A call with several records sees the state that lives at the time of the first.
    (``process_batch`` and ``ttl``, and two records of a key, further apart than that, in one
    bundle.)"""

    def wrong(
        self: BatchOperator, records: list[Record], watermark: int, spans: object
    ) -> Iterator[list[Record]]:
        yield records

    return replaced(BatchOperator, "_parts", wrong)


@mistake(within=10, features="batches", variants="together bundles")
def records_come_together_in_no_order() -> Context:
    """A key's records are given from the newest to the oldest. (``process_batch``, and two records
    of a key in one bundle.)"""
    right = BatchOperator._by_key

    def wrong(self: BatchOperator, *given: Any) -> Any:
        return {key: records[::-1] for key, records in right(self, *given).items()}

    return replaced(BatchOperator, "_by_key", wrong)


@mistake(
    within=5,
    features="owning",
    variants="bundles together shards spread crashes careful uncached",
    first=1010,
)
def consumers_share_the_objects_of_a_source() -> Context:
    """A callback that changes its record changes it for the other consumers of the stream. (Two
    consumers.)"""
    return replaced(Fanout, "_own", lambda self, found: found)


@mistake(
    within=5,
    features="owning",
    variants="bundles together shards spread crashes careful uncached",
    first=1010,
)
def state_is_the_object_that_was_set() -> Context:
    """What a callback changes after it has set it is changed in the state, and is of another type
    until a crash."""

    def wrong(self: Typed, cell: Cell, value: Any) -> None:
        cell.value = value

    return replaced(Typed, "keep", wrong)
