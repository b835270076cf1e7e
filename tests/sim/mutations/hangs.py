"""Deliberate mistakes about callbacks that never return, and workers that end of themselves."""

from __future__ import annotations

from typing import Any

from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.bundle.hangs import Avoided, Hangs
from millwheel.engine.workers.operators import callbacks
from millwheel.engine.workers.operators.batch_callbacks import BatchOperator
from millwheel.engine.workers.operators.callbacks import CallbackOperator
from millwheel.launch import watch
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=3, faults="none", workload="hanging")
def hang_not_remembered() -> Context:
    """Nobody reads the notes: what did not return is called again for ever."""
    return replaced(Hangs, "read_notes", lambda self, node, entry: None)


@mistake(within=10, faults="none", workload="hanging")
def slow_calls_taken_for_one_that_hangs() -> Context:
    """All calls of a bundle count as one, so a healthy record is a dead letter."""
    return replaced(CallbackOperator, "progress", lambda self: (0, 0))


@mistake(within=20, faults="none", workload="hanging", first=4)
def records_that_did_not_return_together_come_together_again() -> Context:
    """A call with several records accuses none of them, and nobody calls them one by one."""
    return replaced(BatchOperator, "_run_records", _always_together)


def _always_together(self: BatchOperator, bundle: Bundle) -> None:
    self._attempts.avoided.apart = False
    _run_records(self, bundle)


_run_records = BatchOperator._run_records


@mistake(within=10, faults="none", workload="hanging", first=7)
def neighbour_of_a_hang_refused() -> Context:
    """A record is known by a number that the one before it has, too."""
    right = callbacks.record_mark  # type: ignore[attr-defined]
    return replaced(
        callbacks,
        "record_mark",
        lambda batch, channel, index: right(batch, channel, max(index - 1, 0)),
    )


@mistake(within=20, faults="kill kill-in-a-call", workload="hanging")
def note_about_a_hang_met_by_any_record() -> Context:
    """Every record of a bundle that may meet a note is refused."""

    def wrong(self: Avoided, mark: bytes, number: int) -> Any:
        return next(iter(self.hangs.values()), None)

    return replaced(Avoided, "meet", wrong)


@mistake(within=30, faults="kill kill-again", workload="dying", first=8)
def kills_from_outside_count_as_deaths() -> Context:
    """Whatever ended a worker, what it was doing has done it."""
    return replaced(watch, "ended_of_itself", lambda code, lacked_memory: True)


@mistake(within=3, faults="none", workload="dying")
def note_of_the_record_in_progress_forgotten() -> Context:
    """That one record alone was in progress is not written down: nobody finds out which it was."""

    def wrong(self: Avoided, mark: bytes, what: str, key: object) -> bytes:
        return self.together(1)

    return replaced(Avoided, "alone", wrong)
