"""Deliberate mistakes in labels: which timers come before a record; and in what is moved for the
load's sake."""

from __future__ import annotations

from typing import Any

import numpy as np

from millwheel.control.master.balance import Balancer
from millwheel.control.master.speeds import Speeds
from millwheel.core.model.records import NO_LABEL, Batch
from millwheel.core.windows.lateness import labels_of
from millwheel.engine.workers.bundle.record_order import Positions
from millwheel.engine.workers.operators import callback_context
from millwheel.engine.workers.operators.callback_context import CallbackContext
from millwheel.engine.workers.shard import shard
from millwheel.engine.workers.sources import sorting
from millwheel.engine.workers.sources.partitions import Partitions
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20, workload="placed", faults="none")
def records_are_labelled_by_the_end_of_their_read() -> Context:
    """All records of a read have the watermark behind its last one."""

    def wrong(times_us: Any, highest_us: int, max_delay_us: int) -> Any:
        found = labels_of(times_us, highest_us, max_delay_us)
        return np.full_like(found, found[-1])

    return replaced(sorting, "labels_of", wrong)


@mistake(within=20, workload="placed", faults="none")
def timers_do_not_look_at_labels() -> Context:
    """Which timers come before a record is a matter of the watermark alone."""
    return replaced(Positions, "_comes", lambda self, *given: True)


@mistake(within=30, workload="placed")
def labels_end_behind_a_computation() -> Context:
    """What a callback produces has no labels."""
    right = CallbackContext.label_as
    return replaced(CallbackContext, "label_as", lambda self, label: right(self, NO_LABEL))


@mistake(within=60, faults="kill move", workload="placed", first=40)
def records_in_flight_hold_no_label() -> Context:
    """A record holds the watermark at its timestamp alone."""
    return replaced(
        Batch, "earliest", property(lambda self: min(self.timestamps, default=NO_LABEL))
    )


@mistake(within=40, workload="placed")
def each_partition_of_several_has_the_watermark() -> Context:
    """A label is taken for the watermark of all input, however many partitions there are."""
    return replaced(Partitions, "alone", True)


@mistake(within=60, workload="placed")
def labels_are_followed_behind_computations() -> Context:
    """A computation behind another one takes the label of a record for the watermark of all its
    input."""
    right = Positions.__init__

    def wrong(self: Positions, overlay: Any, decode: Any, follows: bool) -> None:
        right(self, overlay, decode, True)

    return replaced(Positions, "__init__", wrong)


@mistake(within=60, workload="placed")
def timers_of_the_past_forget_when_they_were_set() -> Context:
    """The call of a timer has the time of the timer for a label, whenever it was set."""
    return replaced(callback_context, "label_bytes", lambda label: b"")


@mistake(within=10, faults="kill partition one-way", workload="placed", first=13)
def labels_of_stored_productions_lost_in_a_crash() -> Context:
    """What a dead owner has produced and not sent comes without labels."""
    right = shard.read_productions  # type: ignore[attr-defined]

    def wrong(pending: Any, fanout: Any) -> Any:
        found = right(pending, fanout)
        for batch in [
            batch for chunk in found for _, batch in chunk.batches if isinstance(batch, Batch)
        ]:
            batch.labels = None
        return found

    return replaced(shard, "read_productions", wrong)


@mistake(within=1, faults="none", workload="straggling")
def slow_workers_are_moved_from_like_busy_ones() -> Context:
    """Nobody is found slow: who takes four times as long only looks busy."""
    return replaced(Speeds, "_judge", lambda self, seen, evidence, now_us: None)


@mistake(within=1, faults="none", workload="straggling", first=2)
def what_was_given_away_comes_back_as_quickly() -> Context:
    """A worker that is sound again gets its shards back at once, and is slow again soon."""

    def looks(self: Any, step: Any, cluster: Any, relieving: bool) -> int:
        found: int = self.config.certain
        return found

    return replaced(Balancer, "_looks", looks)
