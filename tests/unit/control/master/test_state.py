"""Decisions of the master: runs tests/transcripts/machines/master*.txt, events in, effects out
(``--rewrite``: see tests/transcripts/README.md), and what goes by measured load."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from millwheel.control.master.balance import BalanceConfig
from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import (
    Effect,
    WriteRangeTable,
)
from millwheel.control.master.events import (
    JournalSealed,
    LoadReported,
    Member,
    MembersChanged,
    ShardLoad,
    ShardReleased,
    TableSeen,
    TablesLoaded,
    Tick,
    WorkerUnreachable,
)
from millwheel.control.master.state import MasterState, WorkerState
from millwheel.control.master.tables.planner import NodeDemand
from millwheel.core.model.range_table import RangeTable
from tests.transcripts.spoken import Story, check, rewrite, stories
from tests.unit.control.master.master_stories import Master

SECOND = 1_000_000


def config(workers: int = 2, shards: int = 2, grain: int = 1) -> MasterConfig:
    return MasterConfig(
        nodes=(NodeDemand("traffic", shards, grain=grain),), expected_workers=workers
    )


def members(*names: str, leaving: tuple[str, ...] = ()) -> MembersChanged:
    return MembersChanged(
        members=tuple(Member(incarnation=n, address=f"{n}:1", leaving=n in leaving) for n in names)
    )


def stored(effects: list[Effect]) -> TableSeen:
    """The event that answers the one write among ``effects``."""
    (write,) = [effect for effect in effects if isinstance(effect, WriteRangeTable)]
    return TableSeen(table=replace(write.table, version=write.table.version + 1))


def of(effects: list[Effect], kind: type[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def served(*names: str, shards: int = 2, grain: int = 1) -> tuple[MasterState, RangeTable]:
    """A master whose table is stored and whose workers live."""
    state = MasterState(config(len(names), shards, grain))
    state.handle(Tick(now_us=0))
    state.handle(TablesLoaded(tables=()))
    table = stored(state.handle(members(*names)))
    assert state.handle(table) == []
    return state, table.table


def owners(table: RangeTable) -> list[str]:
    return [entry.owner for entry in table.shards]


def test_rewrite(request: pytest.FixtureRequest) -> None:
    """Before the transcripts, so that they run as they were rewritten."""
    if not request.config.getoption("--rewrite"):
        pytest.skip("only with --rewrite")
    rewrite("master", Master)


@pytest.mark.parametrize("story", stories("master"), ids=lambda story: story.title)
def test_transcript(story: Story) -> None:
    check(story, Master())


def test_the_shards_worth_a_look_are_those_with_ancestors() -> None:
    state, _ = served("w1", "w2")
    assert state.shards_with_lineage() == ()
    state.handle(members("w2"))
    state.handle(stored(state.handle(JournalSealed(incarnation="w1", end=5))))
    assert state.shards_with_lineage() == ("traffic-0",)
    assert state.live_workers == ("w2",)


def moved_by_load(busy_us: list[int]) -> list[str]:
    """The shards of a worker of weight 4 that move to one of weight 1, which idles: they work so
    long each second."""
    state = MasterState(replace(config(2, 5), balance=BalanceConfig()))
    state.handle(Tick(now_us=0))
    state.handle(TablesLoaded(tables=()))
    strong, weak = (
        Member(incarnation="w1", address="w1:1", weight=4),
        Member(incarnation="w2", address="w2:1"),
    )
    table = stored(state.handle(MembersChanged(members=(strong, weak))))
    assert Counter(owners(table.table)) == {"w1": 4, "w2": 1}
    state.handle(table)
    mine = [entry.shard for entry in table.table.shards if entry.owner == "w1"]
    works = dict(zip(mine, busy_us, strict=True))
    for second in range(1, 12):
        for entry in table.table.shards:
            done_us = works.get(entry.shard, 0) * second
            load = ShardLoad(
                shard=entry.shard, token=1, records=second, state_bytes=0, busy_us=done_us
            )
            state.handle(LoadReported(incarnation=entry.owner, loads=(load,)))
        for write in of(state.handle(Tick(now_us=second * SECOND)), WriteRangeTable):
            assert isinstance(write, WriteRangeTable)
            return [
                str(mine.index(entry.shard))
                for entry in write.table.shards
                if entry.next_owner == "w2"
            ]
    return []


def test_balance_by_load_counts_what_a_shard_takes_of_a_weaker_worker() -> None:
    assert moved_by_load([200_000, 200_000, 200_000, 200_000]) == []
    assert moved_by_load([200_000, 240_000, 200_000, 100_000]) == ["3"]


def after_reports(
    state: MasterState,
    table: TableSeen,
    took_us: dict[str, int],
    memory: dict[str, float],
    seconds: range,
) -> list[object]:
    """The writes of tables in these seconds, in which each shard handles 1,000 records; ``took_us``
    by worker."""
    writes: list[object] = []
    for second in seconds:
        for worker in {entry.owner for entry in table.table.shards}:
            loads = tuple(
                ShardLoad(
                    shard=entry.shard,
                    token=1,
                    records=1_000 * second,
                    state_bytes=0,
                    busy_us=1_000 * second * took_us.get(worker, 100),
                )
                for entry in table.table.shards
                if entry.owner == worker
            )
            used = memory.get(worker, 0.0)
            state.handle(LoadReported(incarnation=worker, loads=loads, memory=used))
        writes += of(state.handle(Tick(now_us=second * SECOND)), WriteRangeTable)
    return writes


def balanced(*workers: str) -> tuple[MasterState, TableSeen]:
    state = MasterState(replace(config(len(workers), 12), balance=BalanceConfig()))
    state.handle(Tick(now_us=0))
    state.handle(TablesLoaded(tables=()))
    table = stored(state.handle(members(*workers)))
    state.handle(table)
    return state, table


def test_a_slow_worker_is_known_and_gets_less_of_what_a_dead_one_had() -> None:
    state, table = balanced("w1", "w2", "w3")
    took_us = {"w1": 75, "w2": 25, "w3": 25}  # they differ by less than makes a shard move
    assert after_reports(state, table, took_us, {}, range(1, 4)) == []
    assert state.workers["w1"] == WorkerState(1, 1.0, 0.0)
    assert after_reports(state, table, took_us, {}, range(4, 16)) == []
    assert state.workers["w1"].slowness == pytest.approx(3)
    state.handle(WorkerUnreachable(incarnation="w3", reason="killed"))
    table = stored(state.handle(JournalSealed(incarnation="w3", end=7)))
    assert Counter(owners(table.table))["w2"] == 8


def test_a_full_worker_gets_nothing_of_what_a_dead_one_had_and_is_not_emptied() -> None:
    state, table = balanced("w1", "w2", "w3")
    assert after_reports(state, table, {}, {"w2": 0.92}, range(1, 8)) == []
    state.handle(WorkerUnreachable(incarnation="w3", reason="killed"))
    table = stored(state.handle(JournalSealed(incarnation="w3", end=7)))
    assert Counter(owners(table.table)) == {"w1": 8, "w2": 4}
    state.handle(table)
    # no evening of numbers either
    assert after_reports(state, table, {}, {"w2": 0.92}, range(8, 12)) == []
    assert state.workers["w2"].memory == 0.92


def test_where_everybody_is_full_shards_are_dealt_as_ever() -> None:
    state, table = balanced("w1", "w2", "w3")
    after_reports(state, table, {}, {"w1": 0.95, "w2": 0.92, "w3": 0.92}, range(1, 4))
    state.handle(WorkerUnreachable(incarnation="w3", reason="killed"))
    table = stored(state.handle(JournalSealed(incarnation="w3", end=7)))
    assert Counter(owners(table.table)) == {"w1": 6, "w2": 6}


def test_who_replaces_a_lost_worker_gets_one_shard_after_the_other() -> None:
    """Four at once, and all of them, stand still longer than the loss itself lasts."""
    state = MasterState(replace(config(2, 8), gently_us=SECOND // 2))
    state.handle(Tick(now_us=0))
    state.handle(TablesLoaded(tables=()))
    table = stored(state.handle(members("w1", "w2")))
    state.handle(table)
    state.handle(members("w1"))
    table = stored(state.handle(JournalSealed(incarnation="w2", end=5)))
    state.handle(table)
    state.handle(members("w1", "w3"))
    comes_back_gently(state, table)


def test_a_master_that_follows_a_dead_one_moves_one_shard_after_the_other() -> None:
    """It cannot know whether the one before it had just seen a loss."""
    _, table = served("w1", shards=8)
    successor = MasterState(replace(config(2, 8), gently_us=SECOND // 2))
    successor.handle(Tick(now_us=0))
    successor.handle(TablesLoaded(tables=(table,)))
    successor.handle(members("w1", "w3"))
    comes_back_gently(successor, TableSeen(table=table))


def comes_back_gently(state: MasterState, table: TableSeen) -> None:
    """Half of what w1 has goes to w3, one shard each half second."""
    began: list[int] = []
    for tenth in range(1, 100):
        effects = state.handle(Tick(now_us=tenth * SECOND // 10))
        while writes := of(effects, WriteRangeTable):
            table = stored(writes)
            effects = state.handle(table)
            for entry in table.table.shards:
                if entry.next_owner:
                    began.append(tenth)
                    owner, shard, token = entry.owner, entry.shard, entry.token
                    effects += state.handle(
                        ShardReleased(incarnation=owner, shard=shard, token=token, last_commit=1)
                    )
    assert Counter(owners(table.table)) == {"w1": 4, "w3": 4}
    assert len(began) == 4
    assert min(later - earlier for earlier, later in pairwise(began)) >= 5
