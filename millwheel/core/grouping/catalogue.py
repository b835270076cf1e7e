"""All groupings, by name."""

from __future__ import annotations

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.distribution import (
    DistributionAware,
    DistributionChoices,
    DistributionKey,
    WorkerChoices,
)
from millwheel.core.grouping.network import NetworkAware
from millwheel.core.grouping.plain import Hash, HotKeys, PartialKey, Shuffle
from millwheel.core.grouping.time_aware import TimeAware

GROUPINGS: dict[str, type[Grouping]] = {
    each.name: each
    for each in (
        Hash,
        Shuffle,
        PartialKey,
        DistributionKey,
        NetworkAware,
        DistributionAware,
        DistributionChoices,
        WorkerChoices,
        TimeAware,
    )
}
"""Each grouping by its name."""

RULES: dict[str, type[Grouping]] = {**GROUPINGS, HotKeys.name: HotKeys}
"""The same, and the rule that divides hot keys by the numbers of records."""

COPIES: dict[str, int | None] = {
    Shuffle.name: None,
    NetworkAware.name: None,
    PartialKey.name: 2,
    DistributionChoices.name: 2,
    WorkerChoices.name: 2,
    TimeAware.name: 2,
}
"""The most instances of a key that is not hot, by rule: one without an entry, None for all."""

BY_NUMBER = frozenset({HotKeys.name})
"""The rules that decide by the number of a record, without counts."""
