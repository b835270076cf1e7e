"""Deliberate mistakes in dictionaries and in unique visitors."""

from __future__ import annotations

from typing import Any

import numpy as np

from millwheel.core.model.times import MIN_TIME
from millwheel.engine.workers.dictionaries.numbers import Counters, Numbers
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=12, features="dictionary dictionary_ttl", variants="reference")
def values_live_until_a_bundle_removes_them() -> Context:
    """A value is known as long as it is in the table, and when it is removed depends on bundles."""
    right = Numbers._born_again

    def wrong(
        self: Numbers, rows: Any, heads: Any, partitions: Any, seen: Any, at: Any, step_us: int
    ) -> Any:
        return right(
            self,
            rows,
            heads,
            partitions,
            seen,
            np.where(seen == MIN_TIME, at, np.minimum(at, seen)),
            step_us,
        )

    return replaced(Numbers, "_born_again", wrong)


@mistake(within=4, features="uv", variants="reference")
def two_visitors_get_one_number() -> Context:
    """A partition gives each of its numbers to two values."""
    right = Counters.next

    def wrong(self: Counters, partitions: Any) -> Any:
        right(self, partitions)
        return self._next[partitions] // 2

    return replaced(Counters, "next", wrong)
