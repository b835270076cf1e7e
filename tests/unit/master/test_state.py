"""Transcripts: events in, effects out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from millwheel.core.model.range_table import Ancestor, RangeTable
from millwheel.master.balancing import BalanceConfig
from millwheel.master.effects import (
    AttachWorker,
    CollectJournal,
    DetachWorker,
    Effect,
    RemoveMember,
    SealJournal,
    WriteRangeTable,
)
from millwheel.master.events import (
    JournalSealed,
    JournalsFound,
    LoadReported,
    ManifestSeen,
    Member,
    MembersChanged,
    SealFailed,
    SeatsChanged,
    ShardLoad,
    ShardReleased,
    TableSeen,
    TablesLoaded,
    Tick,
    WorkerUnreachable,
    WriteConflicted,
    WriteFailed,
)
from millwheel.master.state import MasterConfig, MasterState, WorkerState
from millwheel.master.tables.planner import NodeDemand

SECOND = 1_000_000


def config(workers: int = 2, shards: int = 2, grain: int = 1) -> MasterConfig:
    return MasterConfig(nodes=(NodeDemand("traffic", shards, grain=grain),), expected_workers=workers)


def members(*names: str, leaving: tuple[str, ...] = ()) -> MembersChanged:
    return MembersChanged(members=tuple(Member(incarnation=n, address=f"{n}:1", leaving=n in leaving) for n in names))


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


def test_nothing_is_decided_before_tables_and_members_are_known() -> None:
    state = MasterState(config(1))
    assert state.handle(members("w1")) == []
    assert state.handle(Tick(now_us=9 * SECOND)) == []
    assert [type(e) for e in state.handle(TablesLoaded(tables=()))] == [AttachWorker, WriteRangeTable]
    state = MasterState(config(1))
    assert state.handle(TablesLoaded(tables=())) == []


def test_the_first_table_waits_for_the_expected_workers() -> None:
    state = MasterState(config(2))
    state.handle(TablesLoaded(tables=()))
    assert state.handle(members("w1")) == [AttachWorker(incarnation="w1", address="w1:1")]
    effects = state.handle(members("w1", "w2"))
    assert owners(stored(effects).table) == ["w1", "w2"]


def test_the_first_table_waits_no_longer_than_the_grace_time() -> None:
    state = MasterState(config(2))
    state.handle(Tick(now_us=50 * SECOND))
    state.handle(TablesLoaded(tables=()))
    state.handle(members("w1"))
    assert state.handle(Tick(now_us=52 * SECOND)) == []
    assert owners(stored(state.handle(Tick(now_us=53 * SECOND))).table) == ["w1", "w1"]


def test_a_death_is_sealed_then_written_then_removed_then_collected() -> None:
    state, _ = served("w1", "w2")
    dead = state.handle(WorkerUnreachable(incarnation="w1", reason="refused"))
    assert dead == [DetachWorker(incarnation="w1"), SealJournal(incarnation="w1", reason="refused")]
    write = state.handle(JournalSealed(incarnation="w1", end=77))
    assert [type(e) for e in write] == [WriteRangeTable]
    table = stored(write).table
    assert owners(table) == ["w2", "w2"]
    assert table.shards[0].token == 2
    assert table.shards[0].lineage == (Ancestor("w1", 1, 77, -1),)
    assert state.handle(TableSeen(table=table)) == [RemoveMember(incarnation="w1")]
    assert state.handle(members("w2")) == []
    pruned = state.handle(ManifestSeen(shard="traffic-0", token=2, last_commit=5))
    assert state.handle(stored(pruned)) == [CollectJournal(incarnation="w1")]


def test_a_member_that_vanishes_is_dead_too_and_only_once() -> None:
    state, _ = served("w1", "w2")
    assert of(state.handle(members("w2")), SealJournal) == [
        SealJournal(incarnation="w1", reason="its membership ended")
    ]
    assert state.handle(WorkerUnreachable(incarnation="w1", reason="refused")) == []


def test_a_new_master_finishes_what_the_old_one_began() -> None:
    before, table = served("w1", "w2")
    before.handle(members("w2"))
    before.handle(JournalSealed(incarnation="w1", end=77))  # and here it dies, its write undone

    state = MasterState(config())
    state.handle(TablesLoaded(tables=(table,)))
    effects = state.handle(members("w2"))
    assert of(effects, SealJournal)
    assert not of(effects, WriteRangeTable)
    write = state.handle(JournalSealed(incarnation="w1", end=77))
    assert owners(stored(write).table) == ["w2", "w2"]


def test_without_workers_shards_are_orphans_until_one_joins() -> None:
    state, _ = served("w1")
    state.handle(members())
    write = stored(state.handle(JournalSealed(incarnation="w1", end=5)))
    assert owners(write.table) == ["", ""]
    assert state.handle(write) == []
    again = stored(state.handle(members("w2")))
    assert owners(again.table) == ["w2", "w2"]
    assert {entry.token for entry in again.table.shards} == {2}


def test_a_lost_write_is_decided_again_from_what_stands_there() -> None:
    state, table = served("w1", "w2")
    state.handle(members("w2"))
    state.handle(JournalSealed(incarnation="w1", end=5))
    rival = replace(table, shards=tuple(e.assigned("w2") for e in table.shards), version=4)
    assert not of(state.handle(WriteConflicted(node="traffic", stored=rival)), WriteRangeTable)
    assert state.tables == (rival,)


def test_a_write_or_seal_that_failed_waits_for_the_next_tick() -> None:
    state, _ = served("w1", "w2")
    state.handle(members("w2"))
    assert state.handle(SealFailed(incarnation="w1")) == []
    assert state.handle(members("w2")) == []
    assert [type(e) for e in state.handle(Tick(now_us=1))] == [SealJournal]
    first = state.handle(JournalSealed(incarnation="w1", end=5))
    assert state.handle(WriteFailed(node="traffic")) == []
    assert state.handle(Tick(now_us=2)) == first
    assert state.handle(WriteConflicted(node="traffic", stored=None)) == []


def test_a_worker_that_joins_gets_a_share_once_membership_has_settled() -> None:
    state, _ = served("w1")
    state.handle(Tick(now_us=10 * SECOND))
    assert state.handle(members("w1", "w2")) == [AttachWorker(incarnation="w2", address="w2:1")]
    assert state.handle(Tick(now_us=10 * SECOND + 1)) == []
    planned = stored(state.handle(Tick(now_us=11 * SECOND)))
    moving = planned.table.shards[0]
    assert (moving.owner, moving.next_owner, moving.token) == ("w1", "w2", 1)
    state.handle(planned)
    done = stored(state.handle(ShardReleased(incarnation="w1", shard="traffic-0", token=1, last_commit=8)))
    assert done.table.shards[0].lineage == (Ancestor("w1", 1, -1, 8),)
    assert owners(done.table) == ["w2", "w1"]


def test_after_a_death_nothing_moves_before_its_shards_had_time_to_recover() -> None:
    state, _ = served("w1", "w2")
    state.handle(Tick(now_us=10 * SECOND))
    state.handle(WorkerUnreachable(incarnation="w1", reason="killed"))
    state.handle(stored(state.handle(JournalSealed(incarnation="w1", end=5))))
    state.handle(members("w2", "w3"))
    for quarter in range(1, 12):
        assert of(state.handle(Tick(now_us=10 * SECOND + quarter * SECOND // 4)), WriteRangeTable) == []
    planned = stored(state.handle(Tick(now_us=13 * SECOND)))
    assert [entry.next_owner for entry in planned.table.shards].count("w3") == 1


def test_a_leaving_worker_is_emptied_and_nothing_is_given_to_it() -> None:
    state, _ = served("w1", "w2")
    state.handle(members("w1", "w2", leaving=("w2",)))
    planned = stored(state.handle(Tick(now_us=5 * SECOND)))
    assert [e.next_owner for e in planned.table.shards] == ["", "w1"]


def test_a_journal_that_nobody_knows_is_sealed_when_it_is_found_twice() -> None:
    state, _ = served("w1", "w2")
    found = JournalsFound(incarnations=("w1", "w2", "starting", "ghost"))
    assert state.handle(found) == []
    state.handle(members("w1", "w2", "starting"))
    assert state.handle(found) == [SealJournal(incarnation="ghost", reason="its journal is left over", urgent=False)]
    assert state.handle(JournalSealed(incarnation="ghost", end=0)) == [CollectJournal(incarnation="ghost")]
    assert state.handle(found) == []
    assert state.handle(found) == []


def test_the_shards_worth_a_look_are_those_with_ancestors() -> None:
    state, _ = served("w1", "w2")
    assert state.shards_with_lineage() == ()
    state.handle(members("w2"))
    state.handle(stored(state.handle(JournalSealed(incarnation="w1", end=5))))
    assert state.shards_with_lineage() == ("traffic-0",)
    assert state.live_workers == ("w2",)


def with_a_spare() -> tuple[MasterState, RangeTable]:
    """w1 and w2 serve, w3 stands by."""
    state = MasterState(replace(config(2, 4), spares=1))
    state.handle(Tick(now_us=0))
    state.handle(TablesLoaded(tables=()))
    table = stored(state.handle(members("w1", "w2", "w3")))
    state.handle(table)
    return state, table.table


def test_a_spare_owns_nothing_until_a_worker_dies_and_then_gets_all_that_was_its() -> None:
    state, table = with_a_spare()
    assert owners(table) == ["w1", "w1", "w2", "w2"]
    assert of([*state.handle(Tick(now_us=9 * SECOND))], WriteRangeTable) == []
    state.handle(WorkerUnreachable(incarnation="w1", reason="killed"))
    after = stored(state.handle(JournalSealed(incarnation="w1", end=7)))
    assert owners(after.table) == ["w3", "w3", "w2", "w2"]


def test_a_worker_that_was_started_again_stands_by_and_nothing_moves_back() -> None:
    state, _ = with_a_spare()
    state.handle(WorkerUnreachable(incarnation="w1", reason="killed"))
    state.handle(stored(state.handle(JournalSealed(incarnation="w1", end=7))))
    state.handle(members("w2", "w3", "w4"))
    for second in range(10, 20):
        assert of(state.handle(Tick(now_us=second * SECOND)), WriteRangeTable) == []


def test_with_no_spare_left_the_living_share_the_work_and_the_next_worker_gets_its_part() -> None:
    state, _ = with_a_spare()
    state.handle(members("w2"))
    table = stored(state.handle(JournalSealed(incarnation="w1", end=7)))
    state.handle(table)
    state.handle(JournalSealed(incarnation="w3", end=7))
    assert owners(table.table) == ["w2"] * 4
    state.handle(members("w2", "w4"))
    (write,) = of(state.handle(Tick(now_us=30 * SECOND)), WriteRangeTable)
    assert isinstance(write, WriteRangeTable)
    assert [entry.next_owner for entry in write.table.shards].count("w4") == 2


def test_more_seats_let_a_spare_serve_and_fewer_empty_a_worker() -> None:
    state, _ = with_a_spare()
    state.handle(SeatsChanged(seats=3))
    (more,) = of(state.handle(Tick(now_us=30 * SECOND)), WriteRangeTable)
    assert isinstance(more, WriteRangeTable)
    assert "w3" in {entry.next_owner for entry in more.table.shards}
    state, _ = with_a_spare()
    state.handle(SeatsChanged(seats=1))
    (fewer,) = of(state.handle(Tick(now_us=30 * SECOND)), WriteRangeTable)
    assert isinstance(fewer, WriteRangeTable)
    assert [entry.next_owner for entry in fewer.table.shards] == ["", "", "w1", "w1"]


def moved_by_load(busy_us: list[int]) -> list[str]:
    """The shards of a worker of weight 4 that move to one of weight 1, which idles: they work so long each second."""
    state = MasterState(replace(config(2, 5), balance=BalanceConfig()))
    state.handle(Tick(now_us=0))
    state.handle(TablesLoaded(tables=()))
    strong, weak = Member(incarnation="w1", address="w1:1", weight=4), Member(incarnation="w2", address="w2:1")
    table = stored(state.handle(MembersChanged(members=(strong, weak))))
    assert Counter(owners(table.table)) == {"w1": 4, "w2": 1}
    state.handle(table)
    mine = [entry.shard for entry in table.table.shards if entry.owner == "w1"]
    works = dict(zip(mine, busy_us, strict=True))
    for second in range(1, 12):
        for entry in table.table.shards:
            done_us = works.get(entry.shard, 0) * second
            load = ShardLoad(shard=entry.shard, token=1, records=second, state_bytes=0, busy_us=done_us)
            state.handle(LoadReported(incarnation=entry.owner, loads=(load,)))
        for write in of(state.handle(Tick(now_us=second * SECOND)), WriteRangeTable):
            assert isinstance(write, WriteRangeTable)
            return [str(mine.index(entry.shard)) for entry in write.table.shards if entry.next_owner == "w2"]
    return []


def test_balance_by_load_counts_what_a_shard_takes_of_a_weaker_worker() -> None:
    assert moved_by_load([200_000, 200_000, 200_000, 200_000]) == []
    assert moved_by_load([200_000, 240_000, 200_000, 100_000]) == ["3"]


def after_reports(
    state: MasterState, table: TableSeen, took_us: dict[str, int], memory: dict[str, float], seconds: range
) -> list[object]:
    """The writes of tables in these seconds, in which each shard handles 1,000 records; ``took_us`` by worker."""
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
    assert after_reports(state, table, took_us, {}, range(4, 12)) == []
    assert state.workers["w1"].slowness == 3.0
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
    assert after_reports(state, table, {}, {"w2": 0.92}, range(8, 12)) == []  # no evening of numbers either
    assert state.workers["w2"].memory == 0.92


def test_where_everybody_is_full_shards_are_dealt_as_ever() -> None:
    state, table = balanced("w1", "w2", "w3")
    after_reports(state, table, {}, {"w1": 0.95, "w2": 0.92, "w3": 0.92}, range(1, 4))
    state.handle(WorkerUnreachable(incarnation="w3", reason="killed"))
    table = stored(state.handle(JournalSealed(incarnation="w3", end=7)))
    assert Counter(owners(table.table)) == {"w1": 6, "w2": 6}
