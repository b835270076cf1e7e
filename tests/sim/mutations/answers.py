"""Deliberate mistakes in answers to questions, and in the slices that they are made of."""

from __future__ import annotations

from typing import Any

from millwheel.queries.slices import SliceAnswers
from millwheel.workers.queries.answering import Answering
from millwheel.workers.slices.sliced import SlicesOperator
from tests.sim.asking import AnswerLease
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, workload="sliced")
def answers_before_commit() -> Context:
    """A durable answer leaves before the commit that it shows is durable."""
    return replaced(Answering, "_is_durable", lambda self, batch: True)


@mistake(within=10, faults="zombie partition pause", workload="sliced")
def zombie_answers() -> Context:
    """A worker answers without a look at the seal of its journal."""
    return replaced(AnswerLease, "_is_fresh", lambda self: True)


@mistake(within=10, workload="sliced")
def expired_slice_answered() -> Context:
    """A window is answered although its first slices have expired."""
    return replaced(SliceAnswers, "_check_kept", lambda self, span, expired_us, name: None)


@mistake(within=10, workload="sliced")
def late_record_in_the_newest_slice() -> Context:
    """A late record is counted in the newest slice of its key in the bundle."""
    right = SlicesOperator._add

    def wrong(self: SlicesOperator, key: Any, records: list[Any], bundle: Any) -> None:
        newest = max(records, key=lambda record: record.timestamp)
        for record in records:
            record.timestamp, record.start_end = newest.timestamp, newest.start_end
        right(self, key, records, bundle)

    return replaced(SlicesOperator, "_add", wrong)
