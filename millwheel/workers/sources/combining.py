"""Local combine: a source groups what it has read by key and window, and sends the accumulators instead of the records.

Where a read has few keys and windows, as with one hot key, the consumer's shard gets a few groups where it got all of
the records. Groups are productions: numbered, and committed together with the position behind the read. So nothing that
a partition sends in this mode is ever read again, and reads may be cut anywhere.

Reads that are sent as records are not committed: consumers drop what they have by its position. Between the two modes
lies a commit or a wait, see :meth:`Combine.enters` and :meth:`Combine.leave`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.plan import END, KEY, ColumnPlan
from millwheel.core.model.names import NodeName, groups_of
from millwheel.core.pipeline.graph import Graph
from millwheel.core.pipeline.spec import PipelineSpec, StreamSpec
from millwheel.workers.shard.bundle_sizes import CombineLimits


@dataclass(frozen=True, slots=True)
class Combining:
    """The plans of all consumers of a stream, each of which takes groups, and when it is worth it."""

    plans: Mapping[NodeName, ColumnPlan]
    limits: CombineLimits

    def groups(self, batches: Sequence[tuple[NodeName, AnyBatch]]) -> list[ColumnBatch] | None:
        """What the consumers get in place of these records, None when columns cannot hold it."""
        found = []
        for node, batch in batches:
            if not isinstance(batch, ColumnBatch):
                return None
            try:
                groups = self.plans[node].group(batch)
            except Unfit:
                return None
            stamps = groups[END].to_numpy() - 1  # holds the window open, and no longer
            frame = groups.drop(KEY)
            found.append(ColumnBatch(groups_of(node), np.array([], np.int64), stamps, groups[KEY], frame))
        return found


def combined(plans: Mapping[str, ColumnPlan]) -> list[str]:
    """The computations that take groups."""
    return [name for name, plan in plans.items() if plan.combines]


def combining_of(
    stream: StreamSpec, spec: PipelineSpec, graph: Graph, plans: Mapping[str, ColumnPlan], limits: CombineLimits
) -> Combining | None:
    """How the source of a stream groups its records, None if it never does: not with ids, whose copies the consumers
    know, not where records are traced, and not where a consumer needs records."""
    names = graph.consumers.get(stream.name, ())
    found = {NodeName(name): plans[name] for name in names if name in combined(plans)}
    if stream.id or spec.tracing is not None or not found or len(found) < len(names):
        return None
    return Combining(found, limits)


@dataclass(slots=True)
class Combine:
    """Whether a partition is read in this mode. ``on``: what is committed says so, or the next commit will. ``wanted``:
    it begins once the consumers have applied all that was sent before. The next look is ``looks_in`` reads away; after
    the mode was left, ``pause``."""

    on: bool
    wanted: bool = False
    looks_in: int = 1
    pause: int = 1

    def groups(
        self, combining: Combining, batches: Sequence[tuple[NodeName, AnyBatch]], records: int
    ) -> list[ColumnBatch] | None:
        """What is sent in place of the records of a read; None: the records themselves."""
        if not self.on:
            self.look(combining, batches, records)
            return None
        groups = combining.groups(batches)
        return groups if groups is not None and self.goes_on(combining, groups, batches, records) else None

    def look(self, combining: Combining, batches: Sequence[tuple[NodeName, AnyBatch]], records: int) -> None:
        """Records were read that are sent as such: would groups be far fewer?"""
        if records < combining.limits.least or self.wanted:
            return
        self.looks_in -= 1
        if self.looks_in > 0:
            return
        self.looks_in = combining.limits.looks
        groups = combining.groups(batches)
        self.wanted = groups is not None and share(groups, batches) <= combining.limits.enters

    def goes_on(
        self,
        combining: Combining,
        groups: Sequence[ColumnBatch],
        batches: Sequence[tuple[NodeName, AnyBatch]],
        records: int,
    ) -> bool:
        """Whether it is still worth it."""
        if records >= combining.limits.few and share(groups, batches) <= combining.limits.leaves:
            return True
        self.pause = combining.limits.pause
        return False

    def begin(self) -> None:
        """Everything that was sent as records is applied."""
        self.on, self.wanted = True, False

    def leave(self) -> None:
        """From here on records are sent."""
        self.on, self.wanted, self.looks_in = False, False, self.pause


def share(groups: Sequence[ColumnBatch], batches: Sequence[tuple[NodeName, AnyBatch]]) -> float:
    """Groups per record."""
    return sum(map(len, groups)) / max(sum(len(batch) for _, batch in batches), 1)
