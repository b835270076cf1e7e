"""Local combine: a sender groups records by key and window, and sends the accumulators instead of
the records.

Where a read or a bundle has few keys and windows, as with one hot key, the consumer's shard gets a
few groups where it got all of the records. Groups are productions: numbered, and committed together
with the position behind the read, or the high-water marks of the bundle, that they are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.groups_frame import END, KEY
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.state.plans_by_type import PlansByType, with_types
from millwheel.core.model.names import NodeName, groups_of, whole_of
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.graph import Graph
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.delivery.row_groups import RowGrouping, bytes_of_lists, cost

B = TypeVar("B", Batch, ColumnBatch)
_MOST_LISTS = 8 << 20
"""Groups are not cut: one key may have the values of a whole bundle in its list, and go to one
consumer."""


@dataclass(frozen=True, slots=True)
class CombineLimits:
    """The limits by which groups are sent in place of records. Reads of ``least`` records and more
    are looked at, one in ``looks``; groups begin where there are at most ``enters`` of them for
    each record, and end where there are more than ``leaves``, or few records in a read (records
    that wait then wait for the commit of the groups). The next look is ``pause`` such reads later.
    For bundles the same holds, from ``few`` productions on."""

    least: int = 4_000
    looks: int = 8
    enters: float = 1 / 8
    leaves: float = 1 / 2
    pause: int = 64

    @property
    def few(self) -> int:
        """Reads of fewer records are not worth it."""
        return self.least // 8


@dataclass(frozen=True, slots=True)
class ConsumerGroups:
    """The grouping of the records for one computation: in columns, where its state is in columns,
    else in rows. Either may be missing."""

    columns: ColumnPlan | PlansByType | None
    rows: RowGrouping | None
    boundary: ColumnBoundary = field(
        default_factory=lambda: ColumnBoundary("grouping by senders"), compare=False
    )

    def groups(self, node: NodeName, batch: AnyBatch) -> AnyBatch | None:
        """The groups that the computation gets in place of these records; None where it gets the
        records."""
        plan = None if self.columns is None else self.columns.of_any(batch)
        if plan is not None and plan.combines:
            assert isinstance(batch, ColumnBatch)
            try:
                with self.boundary.inside():
                    groups = plan.group(batch)
            except Inexact:
                pass
            else:
                stamps = groups[END].to_numpy() - 1  # holds the window open, and no longer
                frame = with_types(groups.drop(KEY), plan.inferred)
                if bytes_of_lists(frame) > _MOST_LISTS:
                    return None
                return ColumnBatch(
                    groups_of(node), np.array([], np.int64), stamps, groups[KEY], frame
                )
        return None if self.rows is None else self.rows.groups(batch)


@dataclass(frozen=True, slots=True)
class Combining:
    """The grouping of the records of a stream for each of its consumers that takes groups.
    ``rest``: others need records."""

    groupings: Mapping[NodeName, ConsumerGroups]
    limits: CombineLimits
    rest: bool = False

    def of(self, batches: Sequence[tuple[NodeName, AnyBatch]]) -> list[tuple[NodeName, AnyBatch]]:
        """The batches for consumers that take groups."""
        return [each for each in batches if each[0] in self.groupings]

    def groups(self, batches: Sequence[tuple[NodeName, AnyBatch]]) -> list[AnyBatch] | None:
        """The groups that the consumers get in place of these records; None when some of them
        cannot be grouped."""
        combined = []
        for node, batch in batches:
            groups = self.groupings[node].groups(node, batch)
            if groups is None:
                return None
            combined.append(groups)
        return combined


def combinings_of(
    spec: PipelineSpec,
    graph: Graph,
    groupings: Mapping[NodeName, ConsumerGroups],
    limits: CombineLimits,
) -> dict[str, Combining]:
    """The grouping of the records of each stream that has one."""
    combinings = {}
    for stream, names in graph.consumers.items():
        own_groupings = {
            NodeName(name): groupings[NodeName(name)]
            for name in names
            if NodeName(name) in groupings
        }
        if own_groupings and not why_never_grouped(stream, spec):
            combinings[stream] = Combining(own_groupings, limits, len(own_groupings) < len(names))
    return combinings


def why_never_grouped(stream: str, spec: PipelineSpec) -> str:
    """Why the records of a stream are grouped for no consumer, as a phrase; "" where they may
    be."""
    if stream == DEAD_LETTERS:
        return "dead letters are looked at one by one"
    if spec.tracing is not None:
        return "records are traced"
    return "copies are recognized by the id of a record" if spec.stream(stream).id else ""


def whole(batch: B) -> B:
    """Productions under the name of their stream, where only some of its consumers get them."""
    name = whole_of(batch.stream)
    return batch if name == batch.stream else batch.named(name)


def share(groups: Collection[AnyBatch], batches: Sequence[tuple[NodeName, AnyBatch]]) -> float:
    """Groups per record."""
    return sum(map(cost, groups)) / max(sum(len(batch) for _, batch in batches), 1)


@dataclass(slots=True)
class Worth:
    """The decision whether the productions of one stream of a shard are grouped. The next look is
    ``looks_in`` bundles away; each that finds too many groups doubles the pause before the next."""

    on: bool = False
    looks_in: int = 1
    pause: int = field(default=1)

    def groups(
        self,
        combining: Combining,
        records: int,
        split: Callable[[], Sequence[tuple[NodeName, AnyBatch]] | None],
    ) -> list[AnyBatch] | None:
        """The groups that are sent in place of productions; None where these are sent. ``split``
        gives those of each consumer, None if some have no key."""
        limits = combining.limits
        if records < limits.few or not self._looks():
            return None
        batches = split()
        groups = None if batches is None else combining.groups(batches)
        most = limits.leaves if self.on else limits.enters
        self.on = batches is not None and groups is not None and share(groups, batches) <= most
        if not self.on:
            self.pause = min(2 * self.pause, limits.pause)
            self.looks_in = self.pause
            return None
        self.pause = 1
        return groups

    def _looks(self) -> bool:
        if self.on:
            return True
        self.looks_in -= 1
        return self.looks_in <= 0
