"""Deliberate mistakes about commits and productions."""

from __future__ import annotations

from millwheel.workers.shard import Shard
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=400, features="weak at_least_once")
def productions_need_no_commit() -> Context:
    """A bundle that changes nothing but makes productions is not committed, and they are dropped."""
    return replaced(
        Shard,
        "_changes_nothing",
        lambda self, chunk, turn, rises: not self.overlay and not turn.counters and not rises,
    )
