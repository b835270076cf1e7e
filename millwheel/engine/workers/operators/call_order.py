"""The calls of a user's Computation in a bundle, one after the other: no record comes before timers
that are due earlier, and those that wait come in their turn.

The caller decides how a timer is called: at full speed, or carefully.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from millwheel.core.model.names import ChannelName
from millwheel.core.model.records import NO_LABEL, Batch, Domain, Record
from millwheel.core.model.timers import Due
from millwheel.core.model.times import BEGINNING
from millwheel.core.windows.lateness import is_behind, late_among
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.record_order import (
    ASIDE_TAG,
    OrderBuffer,
    Positions,
    label_of,
)
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.operators.callback_context import CallbackContext
from millwheel.engine.workers.state.keyed_state import KeyedState
from millwheel.engine.workers.state.waiting_records import ORDER_TAG

T = TypeVar("T")
Fire = Callable[[Due], None]
"""The call of a timer."""


@dataclass(frozen=True, slots=True)
class CallOrder:
    """The order of the calls of one shard. ``buffer``: the records that wait for the watermark;
    ``positions``: those that wait among timers. ``labels``: calls pass them on. ``identified``:
    productions have ids. ``table``: the stream of a table without times ("": there is none)."""

    context: CallbackContext
    state: KeyedState
    buffer: OrderBuffer | None
    positions: Positions | None
    labels: bool
    identified: bool
    table: str

    # --- records ----------------------------------------------------------------------------------

    def coming(self, rows: Iterable[T], batch: Batch, bundle: Bundle, fire: Fire) -> Iterable[T]:
        """The rows of a batch that come now, each behind the timers that its label has made due."""
        positions = self.positions
        if positions is None or (
            batch.labels is None and not self.labels and positions.none_wait(bundle)
        ):
            return rows

        def begin(label: int) -> None:
            labelled = label != NO_LABEL
            self.state.clock = label if labelled else max(bundle.watermark, bundle.clock)
            if labelled and positions.follows:
                self.context.watermark = label
            if self.labels:
                self.context.label_as(label)

        return positions.rows(rows, batch, bundle, begin, lambda: self.fire_passed(bundle, fire))

    def at_once(self, bundle: Bundle, fire: Fire) -> list[Arrival]:
        """The arrivals that are processed in this bundle: none, if they wait for the watermark."""
        if self.buffer is None:
            return bundle.arrivals
        if self.table:
            return self._with_table(bundle)
        for arrival in bundle.arrivals:
            self._keep(arrival.batch.rows(), arrival.channel, bundle, fire)
        return []

    def _with_table(self, bundle: Bundle) -> list[Arrival]:
        """The rows of a table without times; and other records, once all of it is there and those
        before them have come."""
        assert self.buffer is not None
        if bundle.timers[Domain.EVENT].earliest > BEGINNING and is_behind(
            BEGINNING, max(bundle.watermark, bundle.clock)
        ):
            return bundle.arrivals
        for arrival in bundle.arrivals:
            if arrival.batch.stream != self.table:
                batch = arrival.batch.rows()
                every = range(len(batch))
                self.buffer.keep(batch, arrival.channel, bundle, every)
        return [arrival for arrival in bundle.arrivals if arrival.batch.stream == self.table]

    def _keep(self, batch: Batch, channel: ChannelName, bundle: Bundle, fire: Fire) -> None:
        """Put records aside. One that is behind the watermark has waited long enough, and those
        behind it in the batch come after it: so it is when they come one by one."""
        assert self.buffer is not None
        start = 0
        for index in late_among(batch.timestamps, bundle.watermark):
            # Fired here and not behind the batch: sorted with its neighbours it would depend on how
            # records were bundled. See
            # test_records_behind_the_watermark_come_in_their_order_one_by_one_or_together.
            self.buffer.keep(batch, channel, bundle, range(start, index + 1))
            self.fire_passed(bundle, fire)
            start = index + 1
        self.buffer.keep(batch, channel, bundle, range(start, len(batch)))

    # --- timers -----------------------------------------------------------------------------------

    def fire_due(self, bundle: Bundle, fire: Fire) -> None:
        """Fire the event-time timers that come before the records. Each call counts as of the time
        of its timer, or of one that has fired before: time does not go back for a call that sets a
        timer for the past."""
        state = self.state
        for due in bundle.fires(Domain.EVENT):
            # As of the timer, not of the watermark: in smaller steps of the watermark the timer
            # would have seen state that has a ttl. See
            # test_a_timer_sees_what_lives_at_its_own_time_however_far_the_watermark_has_jumped.
            state.clock = max(state.clock, due.at)
            fire(due)
        state.clock = bundle.watermark
        self.context.passed = False

    def settle(self, bundle: Bundle, fire: Fire) -> None:
        """Do the work after a call."""
        self.state.settle()
        # Now, and not with the next bundle: records may follow in this one. See mistake
        # timers_that_timers_set_wait_for_the_next_step.
        if self.context.passed:
            self.fire_passed(bundle, fire)

    def fire_passed(self, bundle: Bundle, fire: Fire) -> None:
        """Fire the timers that a call has set for a time that the watermark has passed, before the
        next call: that could have come a bundle later."""
        state = self.state
        for due in bundle.fires(Domain.EVENT):
            state.clock = max(state.clock, due.at)
            fire(due)
        self.context.passed = False

    def ring_due(self, bundle: Bundle, fire: Fire) -> None:
        """Fire the processing-time timers, behind the records."""
        self.state.clock = max(bundle.watermark, bundle.clock)
        self.context.suspension.room = self.context.suspension.most_room
        for due in bundle.fires(Domain.PROCESSING):
            fire(due)
            self.settle(bundle, fire)

    def begin(self, due: Due) -> Record | None:
        """A timer's call begins; the record, if it is the system's own, for one that has waited."""
        label = label_of(due, self.identified) if due.domain is Domain.EVENT else NO_LABEL
        if self.labels:
            self.context.label_as(label)
        if self.buffer is not None and due.tag.startswith(ORDER_TAG):
            return self.buffer.take(due)
        if self.positions is None or not due.tag.startswith(ASIDE_TAG):
            return None
        self.state.clock = max(self.state.clock, label)
        return self.positions.take(due)

    # --- the bundle -------------------------------------------------------------------------------

    def forget(self) -> None:
        """Undo the changes of the bundle."""
        if self.positions is not None:
            self.positions.forget()
        if self.buffer is not None:
            self.buffer.forget()

    def write(self) -> None:
        """Write the records that wait to the store."""
        if self.buffer is not None:
            self.buffer.write()
