"""Deliberate mistakes in splits and merges of shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millwheel.control.master.tables import resharding, succession
from millwheel.core.formats.store_layout import STATE
from millwheel.core.model.range_table import Ancestor
from millwheel.engine.workers.delivery.outbox import Outbox
from millwheel.engine.workers.recovery import inheriting
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, faults="split reshard")
def pending_production_dropped_at_split() -> Context:
    """Productions that are on their way when a shard is split are nobody's."""
    return replaced(inheriting, "_pending", lambda estates: ([], 1))


@mistake(within=10, faults="split reshard")
def pending_production_sent_by_both_children() -> Context:
    """Both children of a split take the productions that are on their way, and the counters."""
    return replaced(inheriting.Estate, "whole", property(lambda self: True))


@mistake(within=10, faults="split reshard")
def marks_not_copied_at_split() -> Context:
    """A child does not know what its parent has applied."""
    return replaced(inheriting, "_marks", lambda estates: iter(()))


@mistake(within=10, faults="merge reshard")
def marks_of_a_merge_made_one() -> Context:
    """What was applied in one half of a merged shard counts as applied in the other."""

    def wrong(parts: Any) -> Any:
        return max(known if isinstance(known, int) else known.highest for _, known in parts)

    return replaced(inheriting, "joined_high_water_marks", wrong)


@mistake(within=10, faults="split reshard")
def lanes_not_led_to_the_children() -> Context:
    """What was sent to a shard and not acked when it was split is not sent again."""

    def wrong(self: Outbox, gone: Any, fresh: Any, route: Any) -> None:
        for index in [index for index in self._lanes if index[1] in gone]:
            lane = self._lanes.pop(index)
            for part in (*(part for _, part in lane.unacked), *lane.waiting):
                part.chunk.open_parts -= 1
                if not part.chunk.open_parts:
                    self._finish(part.chunk)

    return replaced(Outbox, "reroute", wrong)


@mistake(within=10, faults="split merge reshard kill")
def snapshots_of_a_parent_dropped_too_early() -> Context:
    """The snapshots of a shard go as soon as it is in no table, although its children have none
    yet."""

    def wrong(shard: str, tables: Any) -> bool:
        childless = {
            node: replace(table, shards=tuple(replace(each, parents=()) for each in table.shards))
            for node, table in tables.items()
        }
        return right(shard, childless)

    right = resharding._is_outlived
    return replaced(resharding, "_is_outlived", wrong)


@mistake(within=10, faults="split reshard move kill")
def split_before_release() -> Context:
    """A shard is divided before its owner has stopped it."""

    def wrong(entry: Any) -> bool:
        return bool(entry.resharded and entry.owner)

    def resharded(table: Any) -> Any:
        cut = [
            replace(entry, lineage=(Ancestor(entry.owner, entry.token, -1, 0),))
            if entry.resharded
            else entry
            for entry in table.shards
        ]
        with replaced(resharding, "is_waiting", wrong):
            return right(replace(table, shards=tuple(cut)))

    right = succession.resharded  # type: ignore[attr-defined]
    return replaced(succession, "resharded", resharded)


@mistake(within=2, faults="split reshard", workload="copied")
def an_heir_has_no_copies() -> Context:
    """A shard inherits the records that wait, and nothing of the tables that they ask."""
    right = inheriting._keyed
    return replaced(
        inheriting,
        "_keyed",
        lambda estate: (entry for entry in right(estate) if not entry[0].startswith(STATE)),
    )
