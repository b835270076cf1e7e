"""Deliberate mistakes in dictionaries and in unique visitors."""

from __future__ import annotations

from typing import Any

from millwheel.engine.workers.dictionaries.numbers import Counters
from tests.search.mistakes import Context, mistake, replaced
from tests.sim import mistakes_of_both


@mistake(within=12, features="dictionary dictionary_ttl", variants="reference")
def values_live_until_a_bundle_removes_them() -> Context:
    """A value is known as long as it is in the table, and when it is removed depends on bundles."""
    return mistakes_of_both.values_last_while_they_are_stored()


@mistake(within=4, features="uv", variants="reference")
def two_visitors_get_one_number() -> Context:
    """A partition gives each of its numbers to two values."""
    right = Counters.next

    def wrong(self: Counters, partitions: Any) -> Any:
        right(self, partitions)
        return self._next[partitions] // 2

    return replaced(Counters, "next", wrong)
