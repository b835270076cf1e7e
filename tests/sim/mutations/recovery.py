"""Deliberate mistakes of recoveries side by side, of a new owner's lanes, and of commits in the
middle of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millwheel.engine.workers.delivery import outbox
from millwheel.engine.workers.loop.commits import CommitGroups
from millwheel.engine.workers.recovery.journal_reads import ReadOnce
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=40)
def journal_forgotten_while_it_is_answered() -> Context:
    """A recovery finds the journal known, and looks for its entries once more after another
    recovery may have ended."""
    right = ReadOnce.read

    def wrong(
        self: ReadOnce, incarnation: str, upto: int, since: Any = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        entries = right(self, incarnation, upto, since, prefix)
        if upto < 0 or since is not None:
            return entries
        kept = self._journals_read.get((incarnation, upto))
        return kept.beginning_with(prefix) if kept is not None else iter(())

    return replaced(ReadOnce, "read", wrong)


@mistake(within=40)
def journal_of_another_dead_worker() -> Context:
    """Of several journals that are kept, a recovery is answered from the first, whosever it is."""
    right = ReadOnce.read

    def wrong(
        self: ReadOnce, incarnation: str, upto: int, since: Any = None, prefix: bytes = b""
    ) -> Iterator[bytes]:
        kept = dict(self._journals_read)
        if upto < 0 or since is not None or not kept:
            return right(self, incarnation, upto, since, prefix)
        return next(iter(kept.values())).beginning_with(prefix)

    return replaced(ReadOnce, "read", wrong)


@mistake(within=10)
def epochs_run_into_the_next_token() -> Context:
    """The count of an owner's epochs has so few bits that restarts of its lanes carry into the
    token."""
    return replaced(outbox, "_COUNT_BITS", 2)


@mistake(within=60, first=25)
def middle_of_a_step_without_its_beginning() -> Context:
    """In the middle of a step only the last shards' commits are handed over, without those that
    they rest on."""
    right = CommitGroups.submit_after

    def wrong(self: CommitGroups, took_us: int, shards: Any, now_us: int) -> Any:
        return right(self, took_us, lambda: shards()[-1:], now_us)

    return replaced(CommitGroups, "submit_after", wrong)
