"""Deliberate mistakes about workers that end of themselves."""

from __future__ import annotations

from millwheel.engine.workers.bundle.hangs import Avoided
from millwheel.launch.launchers import deaths
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=30, faults="kill kill-again", workload="dying", first=8)
def kills_from_outside_count_as_deaths() -> Context:
    """Whatever ended a worker, what it was doing has done it."""
    return replaced(deaths, "ended_of_itself", lambda code, lacked_memory: True)


@mistake(within=3, faults="none", workload="dying")
def note_of_the_record_in_progress_forgotten() -> Context:
    """That one record alone was in progress is not written down: nobody finds out which it was."""

    def wrong(self: Avoided, mark: bytes, what: str, key: object) -> bytes:
        return self.together(1)

    return replaced(Avoided, "alone", wrong)
