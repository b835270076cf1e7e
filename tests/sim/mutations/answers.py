"""Deliberate mistakes in answers to questions, and in the slices that they are made of."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace

from millwheel.core.columns.forms.slices import SlicePlan
from millwheel.core.slices.merge_cache import MergedSpans
from millwheel.engine.queries.slices import SliceAnswers
from millwheel.engine.workers.operators.slices.computation import SlicesOperator
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.queries.answering import Answering, ShardView
from millwheel.engine.workers.queries.copies import FollowedCopies
from millwheel.engine.workers.recovery.following import Follower
from millwheel.engine.workers.state.window_results import WindowResults, newest_result
from tests.sim.asking import AnswerLease
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=10, workload="sliced")
def answers_before_commit() -> Context:
    """A durable answer leaves before the commit that it shows is durable."""
    return replaced(Answering, "_is_durable", lambda self, batch: True)


@mistake(within=10, faults="zombie partition pause", workload="sliced", first=4)
def zombie_answers() -> Context:
    """A worker answers without a look at the seal of its journal."""
    return replaced(AnswerLease, "_is_fresh", lambda self: True)


@mistake(within=10, workload="sliced")
def standby_answers_without_its_newest_commits() -> Context:
    """A standby reads the store behind the commits that wait for it in memory, and names the newest
    one."""
    right = FollowedCopies._followed

    def behind(self: FollowedCopies, follower: Follower, query: Any) -> Any:
        fresh = Follower(follower.entry, follower.store._store, 0, follower.lock)
        return replace(right(self, fresh, query), commit=follower.have)

    return replaced(FollowedCopies, "_followed", behind)


@mistake(within=10, workload="sliced")
def snapshot_answers_as_of_the_newest_commit() -> Context:
    """An answer from a snapshot names the commit of the newest snapshot, not of the one that is
    open."""
    right = FollowedCopies.answer

    def newest(self: FollowedCopies, shard: Any, query: Any) -> Any:
        found = right(self, shard, query)
        if found is None or found.lag_us is not None or self.snapshots is None:
            return found
        manifest = self.snapshots.folder.snapshots.latest(shard)
        return found if manifest is None else replace(found, commit=manifest.last_commit)

    return replaced(FollowedCopies, "answer", newest)


@mistake(within=10, workload="sliced")
def expired_slice_answered() -> Context:
    """A window is answered although its first slices have expired."""
    return replaced(SliceAnswers, "_check_kept", lambda self, span, expired_us, name: None)


@mistake(within=10, workload="sliced", first=5)
def merged_spans_outlive_a_change() -> Context:
    """What was merged for an answer is kept although records have changed slices of its key."""
    return replaced(MergedSpans, "changed", lambda self, stored_key: None)


@mistake(within=10, workload="sliced", first=5)
def columns_count_records_of_expired_slices() -> Context:
    """A bundle in columns is counted whole, although slices of some of its records have expired."""
    return replaced(SlicePlan, "ended", lambda self, batch, expired_us: None)


@mistake(within=10, workload="sliced")
def late_record_in_the_newest_slice() -> Context:
    """A late record is counted in the newest slice of its key in the bundle."""
    right = SlicesOperator._add

    def wrong(self: SlicesOperator, key: Any, records: list[Any], bundle: Any) -> None:
        newest = max(records, key=lambda record: record.timestamp)
        for record in records:
            record.timestamp, record.start_end = newest.timestamp, newest.start_end
        right(self, key, records, bundle)

    return replaced(SlicesOperator, "_add", wrong)


@mistake(within=20, workload="asked", first=4)
def windows_in_columns_are_left_out_of_answers() -> Context:
    """A question for the open windows reads only those that are in rows."""
    return replaced(
        ColumnOperator,
        "answer",
        lambda self, query, state, at_us: self._rows.answer(query, state, at_us),
    )


@mistake(within=10, workload="asked")
def newest_result_has_the_values_of_the_window_before() -> Context:
    """When a later window fires, the newest result names it, and keeps the values that it had."""
    right = WindowResults.fired

    def wrong(self: WindowResults, pane: Any, values: Any) -> None:
        known = newest_result(self._overlay, pane.key)
        right(self, pane, values if known is None else known.values)

    return replaced(WindowResults, "fired", wrong)


@mistake(within=10, workload="held", faults="none")
def questions_see_a_step_that_waits_for_a_verdict() -> Context:
    """Answers come from what operators hold in memory, also where a step has changed it that may
    never be committed."""
    right = ShardView.of

    def wrong(shard: Any) -> ShardView:
        return dataclasses.replace(right(shard), held=False)

    return replaced(ShardView, "of", staticmethod(wrong))
