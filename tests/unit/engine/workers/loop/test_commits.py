"""Groups of commits: in the order in which they were made, completed in the order of submission."""

from __future__ import annotations

from typing import Any, cast

from millwheel.core.formats.codec import FULL_STOP, decode_commit
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.loop.commits import QUIET_US, CommitGroups
from millwheel.engine.workers.shard.in_flight import PendingCommit
from tests.unit.engine.workers.bench import NOW, ShardBench, Silent


class Snapshots:
    def __init__(self) -> None:
        self.segments: list[tuple[int, int]] = []

    def journaled(self, shard: Any, size: int) -> None:
        pass

    def written(self, segment: int, pending: PendingCommit) -> None:
        self.segments.append((segment, pending.number))


class Stand:
    def __init__(self, longest_us: int = 10, followed: bool = False) -> None:
        self.completed: list[list[int]] = []
        self.snapshots = Snapshots()
        self.groups = CommitGroups(
            cast("Any", self.snapshots), self._complete, longest_us, lambda: followed
        )

    def _complete(self, group: list[PendingCommit], now: int) -> None:
        self.completed.append([pending.number for pending in group])
        for pending in group:
            pending.shard.durable(pending, now)


def worked(*values: int) -> ShardBench:
    bench = ShardBench(Silent)
    for index, value in enumerate(values):
        bench.deliver(("a", value, 5), first=index + 1)
        bench.shard.run(NOW)
    return bench


def test_a_group_holds_what_all_shards_have_made_in_order() -> None:
    one, other = worked(1, 2), worked(3)
    group = Stand().groups.submit([one.shard, other.shard], NOW)
    assert group is not None
    assert [decode_commit(entry).number for entry in group.entries] == [1, 2, 1]
    assert group.last == {"work-0": 1}


def test_with_nothing_due_there_is_no_group() -> None:
    stand = Stand()
    assert stand.groups.submit([worked().shard], NOW) is None
    assert stand.groups.due_at_us == MAX_TIME
    assert not stand.groups.waiting


def test_a_group_for_which_somebody_waits_is_written_at_once_only_if_none_is_before_it() -> None:
    stand, bench = Stand(), worked(1)
    first = stand.groups.submit([bench.shard], NOW)
    bench.deliver(("a", 2, 5), first=2)
    bench.shard.run(NOW)
    second = stand.groups.submit([bench.shard], NOW)
    assert first is not None
    assert second is not None
    assert (first.inline, second.inline) == (True, False)


def test_groups_complete_in_order_of_submission_and_empty_ones_behind_their_cause() -> None:
    stand, bench = Stand(), worked(1)
    stand.groups.submit([bench.shard], NOW)
    # a copy of what was applied: nothing to write
    bench.deliver(("a", 1, 5), first=1, channel="up")
    bench.deliver(first=0, channel="none")
    bench.shard.run(NOW)
    group = stand.groups.submit([bench.shard], NOW)
    assert stand.completed == []
    stand.groups.durable(7, NOW)
    assert stand.completed[0] == [1]
    assert stand.snapshots.segments[0] == (7, 1)
    assert group is None or stand.groups.waiting
    assert len(stand.completed) == (2 if group is None else 1)


def test_in_a_long_step_what_was_made_is_handed_over_in_the_middle() -> None:
    stand, bench = Stand(longest_us=10), worked(1)
    assert stand.groups.submit_after(6, lambda: [bench.shard], NOW) is None
    assert stand.groups.submit_after(6, lambda: [bench.shard], NOW) is not None
    bench.deliver(("a", 2, 5), first=2)
    bench.shard.run(NOW)
    assert stand.groups.submit_after(6, lambda: [bench.shard], NOW) is None, (
        "the work is counted anew"
    )


def test_a_full_stop_is_written_behind_the_newest_commits_of_a_quiet_followed_worker() -> None:
    stand, bench = Stand(followed=True), worked(1)
    assert stand.groups.submit([bench.shard], NOW) is not None
    assert stand.groups.submit([], NOW + 10 * QUIET_US) is None  # these commits are not durable yet
    stand.groups.durable(1, NOW)
    assert stand.groups.due_at_us == NOW + QUIET_US
    assert stand.groups.submit([], NOW + QUIET_US - 1) is None
    stop = stand.groups.submit([], NOW + QUIET_US)
    assert stop is not None
    assert (stop.entries, stop.last) == ([FULL_STOP], {})
    stand.groups.durable(1, NOW + QUIET_US)
    assert stand.groups.due_at_us == MAX_TIME  # nothing is behind a full stop
    assert not stand.groups.waiting
    assert stand.completed == [[1]]


def test_without_standbys_there_is_no_full_stop() -> None:
    stand, bench = Stand(), worked(1)
    assert stand.groups.submit([bench.shard], NOW) is not None
    stand.groups.durable(1, NOW)
    assert stand.groups.submit([], NOW + QUIET_US) is None
    assert stand.groups.due_at_us == MAX_TIME
