from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from millwheel.core.formats.codec import Commit
from millwheel.core.model.range_table import Ancestor
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.loop.snapshots import SnapshotPace, SnapshotPolicy
from millwheel.engine.workers.shard.in_flight import PendingCommit
from millwheel.engine.workers.shard.productions import ShardIdentity

PACE = SnapshotPace()
AGE_US, BYTES = PACE.age_us, PACE.bytes
FIRST_RETRY_US = 5_000_000


@dataclass
class FakeShard:
    """What the policy asks of a shard."""

    name: str
    token: int = 1
    commits: Any = field(default_factory=lambda: SimpleNamespace(made=0, durable=0))
    checkpoints: list[str] = field(default_factory=list)
    bytes: int = 1_000

    @property
    def store(self) -> Any:
        return SimpleNamespace(size_bytes=lambda: self.bytes)

    @property
    def identity(self) -> ShardIdentity:
        return ShardIdentity("t", self.name, self.token, "bench")

    def checkpoint(self, path: str) -> None:
        self.checkpoints.append(path)


class Outside:
    """The queue of snapshots and the journal's segments."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.there: list[int] = []

    def checkpoint_path(self, shard: str, token: int, number: int) -> str:
        return f"{shard}/{token}/{number}"

    def publish(self, shard: str, token: int, last_commit: int, path: str) -> None:
        self.asked.append((shard, token, last_commit))

    def submit(self, entries: Sequence[bytes]) -> None:
        raise AssertionError("the policy writes nothing")

    def segments(self) -> Sequence[int]:
        return list(self.there)

    def delete_segment(self, segment: int) -> None:
        self.there.remove(segment)


class Bench:
    def __init__(self, *names: str) -> None:
        self.outside = Outside()
        self.policy = SnapshotPolicy(self.outside, self.outside)
        self.shards: dict[str, Any] = {name: FakeShard(name) for name in names}
        self.leaving: set[str] = set()
        for shard in self.shards.values():
            self.policy.opened(shard, 0)

    def commit(self, name: str, segment: int, size: int = 10, durable: bool = True) -> None:
        shard = self.shards[name]
        shard.commits.made += 1
        self.policy.journaled(shard, size)
        if segment not in self.outside.there:
            self.outside.there.append(segment)
        if durable:
            self.durable(name, segment)

    def durable(self, name: str, segment: int) -> None:
        shard = self.shards[name]
        shard.commits.durable += 1
        commit = Commit(name, shard.token, shard.commits.durable, [], [])
        self.policy.written(
            segment, PendingCommit(shard, shard.commits.durable, commit, [], None, Hold())
        )

    def step(self, now_us: int) -> None:
        self.policy.step(
            now_us, [(shard, name in self.leaving) for name, shard in self.shards.items()]
        )

    def publish_all(self, now_us: int) -> None:
        """Everything that can be snapshotted now is, and stands."""
        for _ in self.shards:
            self.step(now_us)
            for name, token, last_commit in self.outside.asked[-1:]:
                self.policy.published(name, token, last_commit)


@pytest.fixture
def bench() -> Bench:
    return Bench("t-0", "t-1")


def test_a_shard_is_snapshotted_by_age(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.step(AGE_US - 1)
    assert bench.shards["t-0"].checkpoints == []
    bench.step(AGE_US)
    assert bench.shards["t-0"].checkpoints == ["t-0/1/1"]
    assert bench.outside.asked == [("t-0", 1, 1)]


@pytest.mark.parametrize(
    ("size", "expected"), [(PACE.small_bytes, ["t-0/1/1000"]), (PACE.small_bytes + 1, [])]
)
def test_a_small_shard_is_snapshotted_by_its_commits_but_not_too_often(
    bench: Bench, size: int, expected: list[str]
) -> None:
    shard = bench.shards["t-0"]
    shard.bytes = size
    for _ in range(PACE.commits - 1):
        bench.commit("t-0", 1)
    bench.step(PACE.often_us)
    assert shard.checkpoints == []
    bench.commit("t-0", 1)
    bench.step(PACE.often_us - 1)
    assert shard.checkpoints == []
    bench.step(PACE.often_us)
    assert shard.checkpoints == expected
    bench.policy.published("t-0", 1, PACE.commits)
    for _ in range(PACE.commits):
        bench.commit("t-0", 1)
    bench.step(2 * PACE.often_us - 1)
    assert shard.checkpoints == expected
    bench.step(2 * PACE.often_us)
    assert len(shard.checkpoints) == 2 * len(expected)


def test_commits_from_before_a_shard_was_opened_count_for_nothing(bench: Bench) -> None:
    shard = bench.shards["t-0"]
    shard.commits.made = shard.commits.durable = 10 * PACE.commits
    bench.policy.opened(shard, 0)
    bench.commit("t-0", 1)
    bench.step(PACE.often_us)
    assert shard.checkpoints == []


def test_a_shard_is_snapshotted_by_what_it_wrote(bench: Bench) -> None:
    bench.commit("t-0", 1, BYTES)
    bench.step(1)
    assert bench.outside.asked == [("t-0", 1, 1)]


def test_a_shard_without_commits_is_never_snapshotted(bench: Bench) -> None:
    bench.leaving.add("t-0")
    bench.step(10 * AGE_US)
    assert bench.outside.asked == []
    assert bench.policy.covers(bench.shards["t-0"])


def test_nothing_is_published_before_it_is_durable(bench: Bench) -> None:
    bench.commit("t-0", 1, durable=False)
    bench.step(AGE_US)
    assert bench.shards["t-0"].checkpoints == ["t-0/1/1"]
    assert bench.outside.asked == []
    bench.durable("t-0", 1)
    bench.step(AGE_US + 1)
    bench.step(AGE_US + 2)
    assert bench.outside.asked == [("t-0", 1, 1)]


def test_a_later_commit_does_not_make_an_earlier_checkpoint_cover_it(bench: Bench) -> None:
    bench.commit("t-0", 1, durable=False)
    bench.step(AGE_US)
    bench.commit("t-0", 1, durable=False)
    bench.durable("t-0", 1)
    bench.durable("t-0", 1)
    bench.step(AGE_US + 1)
    assert bench.outside.asked == [("t-0", 1, 1)]
    bench.policy.published("t-0", 1, 1)
    assert not bench.policy.covers(bench.shards["t-0"])


def test_one_checkpoint_is_on_its_way_at_a_time(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.commit("t-1", 1)
    bench.step(AGE_US)
    bench.step(AGE_US + 1)
    assert bench.outside.asked == [("t-0", 1, 1)]
    bench.policy.published("t-0", 1, 1)
    bench.step(AGE_US + 2)
    assert bench.outside.asked == [("t-0", 1, 1), ("t-1", 1, 1)]


def test_a_shard_that_leaves_is_snapshotted_at_once(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.leaving.add("t-0")
    assert not bench.policy.covers(bench.shards["t-0"])
    bench.step(1)
    bench.policy.published("t-0", 1, 1)
    assert bench.policy.covers(bench.shards["t-0"])


def test_a_segment_goes_only_when_every_shard_in_it_is_covered(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.commit("t-1", 1)
    bench.commit("t-0", 2)
    bench.policy.published("t-0", 1, 2)
    assert bench.outside.there == [1, 2]
    bench.policy.published("t-1", 1, 1)
    assert bench.outside.there == [2]


def test_a_segment_stays_while_a_later_commit_in_it_is_not_covered(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.commit("t-0", 1)
    bench.commit("t-0", 2)
    bench.policy.published("t-0", 1, 1)
    assert bench.outside.there == [1, 2]
    bench.policy.published("t-0", 1, 2)
    assert bench.outside.there == [2]


def test_the_segment_being_written_stays_whatever_is_covered(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.policy.published("t-0", 1, 1)
    assert bench.outside.there == [1]


def test_a_segment_whose_contents_are_not_all_known_stays(bench: Bench) -> None:
    """The journal has gone on to segment 2, but we have not been told what else went into segment
    1."""
    bench.commit("t-0", 1)
    bench.outside.there.append(2)
    bench.policy.published("t-0", 1, 1)
    assert bench.outside.there == [1, 2]


def test_a_shard_that_left_uncovered_keeps_its_segments(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.commit("t-1", 2)
    bench.policy.forget("t-0")
    bench.policy.published("t-1", 1, 1)
    assert bench.outside.there == [1, 2]


def test_a_snapshot_that_failed_is_tried_again_later(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.step(AGE_US)
    bench.policy.failed("t-0", 1, AGE_US)
    bench.step(AGE_US + FIRST_RETRY_US - 1)
    assert len(bench.outside.asked) == 1
    bench.step(AGE_US + FIRST_RETRY_US)
    assert len(bench.outside.asked) == 2
    assert not bench.policy.covers(bench.shards["t-0"])


def test_a_failure_lets_another_shard_go_on(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.commit("t-1", 1)
    bench.step(AGE_US)
    bench.policy.failed("t-0", 1, AGE_US)
    bench.step(AGE_US + 1)
    assert [name for name, _, _ in bench.outside.asked] == ["t-0", "t-1"]


def test_a_shard_that_leaves_in_the_middle_frees_the_way(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.commit("t-1", 1)
    bench.step(AGE_US)
    bench.policy.forget("t-0")
    del bench.shards["t-0"]
    bench.step(AGE_US + 1)
    assert [name for name, _, _ in bench.outside.asked] == ["t-0", "t-1"]


def test_a_snapshot_under_an_older_token_covers_nothing_of_the_new_one(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.policy.forget("t-0")
    bench.shards["t-0"].token = 2
    bench.policy.opened(bench.shards["t-0"], 5)
    bench.policy.published("t-0", 1, 1)
    assert not bench.policy.covers(bench.shards["t-0"])


def test_a_failure_under_an_older_token_does_not_put_off_the_snapshot_of_the_new_one(
    bench: Bench,
) -> None:
    bench.commit("t-0", 1)
    bench.policy.forget("t-0")
    bench.shards["t-0"].token = 2
    bench.policy.opened(bench.shards["t-0"], 0)
    bench.policy.failed("t-0", 1, AGE_US)
    bench.step(AGE_US)
    assert len(bench.outside.asked) == 1


def test_a_shard_that_is_quiet_after_its_snapshot_gets_no_other(bench: Bench) -> None:
    bench.commit("t-0", 1)
    bench.publish_all(AGE_US)
    bench.step(9 * AGE_US)
    assert len(bench.outside.asked) == 1


def reopened(made: int, *lineage: Ancestor, replayed: int = 0) -> Bench:
    """A shard that was opened after former owners, at commit ``made``."""
    bench = Bench("t-0")
    bench.shards["t-0"].commits = SimpleNamespace(made=made, durable=made)
    bench.policy.opened(bench.shards["t-0"], 0, lineage, replayed)
    return bench


def asked_at(bench: Bench, now_us: int) -> list[tuple[str, int, int]]:
    bench.policy.step(now_us, [(shard, False) for shard in bench.shards.values()])
    return bench.outside.asked


def test_a_long_lineage_is_cut_before_the_next_owner_looks_into_one_journal_more() -> None:
    many = SnapshotPace().ancestors
    dead = [Ancestor(f"w{number}", number, 99, -1) for number in range(many)]
    assert asked_at(reopened(7, *dead), 0) == [("t-0", 1, 7)]
    assert asked_at(reopened(7, *dead[1:]), 0) == []


def test_what_took_much_replay_is_snapshotted_before_the_next_owner_may_have_to_replay_it() -> None:
    much = SnapshotPace().replayed_bytes
    assert asked_at(reopened(7, Ancestor("w0", 0, 99, -1), replayed=much), 0) == [("t-0", 1, 7)]
    assert asked_at(reopened(7, Ancestor("w0", 0, 99, -1), replayed=much - 1), 0) == []


def test_what_was_recovered_from_the_dead_is_snapshotted_soon() -> None:
    bench = reopened(7, Ancestor("w1", 1, 500, -1))
    soon = SnapshotPace().recovered_us
    assert asked_at(bench, soon - 1) == []
    assert asked_at(bench, soon) == [("t-0", 1, 7)]


def test_what_was_handed_over_is_snapshotted_at_its_time() -> None:
    bench = reopened(7, Ancestor("w1", 1, -1, 7))
    assert asked_at(bench, AGE_US - 1) == []
    assert asked_at(bench, AGE_US) == [("t-0", 1, 7)]


def test_a_shard_that_never_committed_is_snapshotted_once_to_free_former_journals() -> None:
    bench = reopened(0, Ancestor("w1", 1, 500, -1))
    assert asked_at(bench, AGE_US) == [("t-0", 1, 0)]
    bench.policy.published("t-0", 1, 0)
    assert asked_at(bench, 9 * AGE_US) == [("t-0", 1, 0)]


def test_a_first_owner_snapshots_nothing_of_a_shard_that_never_committed() -> None:
    assert asked_at(reopened(0), 9 * AGE_US) == []
