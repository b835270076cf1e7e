from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.sources.base import Partition
from millwheel.control.master.tables.planner import (
    Census,
    Move,
    NodeDemand,
    first_table,
    plan_moves,
)
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.slices.slots import SLOTS, WIDTH
from millwheel.engine.workers.sources.partitions import spread_of


def table(node: str, *owners: str) -> RangeTable:
    pieces = zip(tile(len(owners)), owners, strict=True)
    return RangeTable(
        node, tuple(ShardEntry(f"{node}-{i}", p, o, 1) for i, (p, o) in enumerate(pieces))
    )


def apply(tables: list[RangeTable], moves: list[Move]) -> list[RangeTable]:
    """The tables once the moves are done."""
    taker = {(move.node, move.shard): move.worker for move in moves}
    return [
        table(t.computation, *(taker.get((t.computation, e.shard), e.owner) for e in t.shards))
        for t in tables
    ]


def test_a_first_table_has_two_shards_per_expected_worker_unless_told_otherwise() -> None:
    census = Census(["w1", "w2"], [])
    assert [e.owner for e in first_table(NodeDemand("a"), 2, census).shards] == [
        "w1",
        "w1",
        "w2",
        "w2",
    ]
    assert [
        (e.shard, e.owner, e.token) for e in first_table(NodeDemand("b", 1), 2, census).shards
    ] == [("b-0", "w1", 1)]


@given(st.integers(1, 500), st.integers(1, 5))
def test_no_first_range_cuts_a_slot_however_many_shards_there_are(
    shards: int, workers: int
) -> None:
    census = Census([f"w{number}" for number in range(workers)], [])
    entries = first_table(NodeDemand("a", shards, grain=WIDTH), workers, census).shards
    assert len(entries) == shards
    assert not any(entry.range.lo % WIDTH for entry in entries)


def test_a_node_has_no_more_shards_than_slots() -> None:
    assert NodeDemand("a", 20_000, grain=WIDTH).count(1) == SLOTS
    assert NodeDemand("a", 20_000).count(1) == 20_000


def test_single_shards_of_many_nodes_are_spread_too() -> None:
    census = Census(["w1", "w2"], [])
    owners = [first_table(NodeDemand(name, 1), 2, census).shards[0].owner for name in "abcdef"]
    assert Counter(owners) == {"w1": 3, "w2": 3}


@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 9))
def test_a_turn_changes_who_owns_a_range_and_not_how_many_each_owns(
    workers: int, shards: int, turn: int
) -> None:
    census = Census([f"w{number}" for number in range(workers)], [])
    plain = first_table(NodeDemand("a", shards), workers, census)
    turned = first_table(
        NodeDemand("a", shards, turn=turn), workers, Census([f"w{n}" for n in range(workers)], [])
    )
    assert [entry.range for entry in turned.shards] == [entry.range for entry in plain.shards]
    assert Counter(entry.owner for entry in turned.shards) == Counter(
        entry.owner for entry in plain.shards
    )


def test_sources_with_one_partition_each_are_read_by_different_workers() -> None:
    workers = ["w1", "w2", "w3"]
    census = Census(workers, [])
    tables = [first_table(NodeDemand(f"source.{turn}", turn=turn), 3, census) for turn in range(3)]
    (position,) = spread_of([Partition("only")]).values()
    assert (
        sorted(entry.owner for each in tables for entry in each.shards if position in entry.range)
        == workers
    )


def test_an_orphan_goes_to_the_worker_with_fewest_shards_of_its_node_then_in_all() -> None:
    census = Census(
        ["w1", "w2", "w3"], [table("a", "w1", "w1"), table("b", "w2", "w2", "w2", "w3")]
    )
    assert census.least("a") == "w3"
    assert Census([], []).least("a") == ""


def test_of_workers_with_the_same_burden_one_on_the_last_owners_machine_gets_an_orphan() -> None:
    hosts = {"w1": "a", "w2": "b", "w3": "b", "dead": "b"}
    tables = [table("n", "w1", "w2", "w3"), table("m", "w2")]
    census = Census(["w1", "w2", "w3"], tables, hosts)
    assert census.least("n") == census.least("n", "unknown") == "w1"
    assert census.least("n", "dead") == "w3"
    census.add("n", "w3")
    assert census.least("n", "dead") == "w1"


def test_a_shard_that_moves_counts_as_its_next_owners() -> None:
    entry = ShardEntry("a-0", tile(1)[0], "w1", 1, next_owner="w2")
    assert Census(["w1", "w2"], [RangeTable("a", (entry,))]).least("a") == "w1"


def test_a_worker_that_joins_gets_its_share_of_every_node_few_at_a_time() -> None:
    tables = [table("a", "w1", "w1", "w1", "w1"), table("b", "w1", "w1")]
    moves = plan_moves(tables, ["w1", "w2"], [], 2, {})
    assert moves == [Move("a", "a-0", "w2"), Move("a", "a-1", "w2")]
    done = apply(tables, plan_moves(tables, ["w1", "w2"], [], 99, {}))
    assert [Counter(e.owner for e in t.shards) for t in done] == [
        {"w1": 2, "w2": 2},
        {"w1": 1, "w2": 1},
    ]


def test_the_shard_with_the_least_state_moves() -> None:
    moves = plan_moves(
        [table("a", "w1", "w1", "w1")], ["w1", "w2"], [], 1, {"a-0": 900, "a-1": 5, "a-2": 70}
    )
    assert moves == [Move("a", "a-1", "w2")]


def test_a_leaving_worker_is_emptied_and_gets_nothing() -> None:
    tables = [table("a", "w1", "w2"), table("b", "w2", "w3")]
    done = apply(tables, plan_moves(tables, ["w1", "w3"], ["w2"], 99, {}))
    assert "w2" not in {e.owner for t in done for e in t.shards}


def test_nothing_moves_when_nobody_could_take_it() -> None:
    assert plan_moves([table("a", "w1", "w1")], [], ["w1"], 4, {}) == []


def test_single_shards_that_lie_together_are_drawn_apart() -> None:
    tables = [table(name, "w1") for name in "abcd"]
    done = apply(tables, plan_moves(tables, ["w1", "w2"], [], 99, {}))
    assert Counter(e.owner for t in done for e in t.shards) == {"w1": 2, "w2": 2}


WORKERS = ["w1", "w2", "w3", "w4"]


@given(st.lists(st.lists(st.sampled_from(WORKERS), min_size=1, max_size=9), min_size=1, max_size=5))
def test_plans_even_everything_out_and_then_rest(owners: list[list[str]]) -> None:
    tables = [table(f"n{i}", *row) for i, row in enumerate(owners)]
    for _ in range(50):
        moves = plan_moves(tables, WORKERS, [], 3, {})
        if not moves:
            break
        tables = apply(tables, moves)
    assert plan_moves(tables, WORKERS, [], 99, {}) == []
    for t in [*tables]:
        counts = Counter(e.owner for e in t.shards)
        assert max(counts.values()) - min(counts.get(w, 0) for w in WORKERS) <= 1
    totals = Counter(e.owner for t in tables for e in t.shards)
    assert max(totals.values()) - min(totals.get(w, 0) for w in WORKERS) <= 1


def test_workers_of_greater_weight_get_more_ranges_in_proportion() -> None:
    weights = {"w1": 1, "w2": 3}
    census = Census(["w1", "w2"], [], weights=weights)
    owners = Counter(entry.owner for entry in first_table(NodeDemand("a", 8), 2, census).shards)
    assert owners == {"w1": 2, "w2": 6}
    tables = [table("a", *["w1"] * 4, *["w2"] * 4)]
    done = apply(tables, plan_moves(tables, ["w1", "w2"], [], 99, {}, weights))
    assert Counter(entry.owner for entry in done[0].shards) == {"w1": 2, "w2": 6}
    weights = {**weights, "w3": 4}
    done = apply(done, plan_moves(done, ["w1", "w2", "w3"], [], 99, {}, weights))  # one more worker
    assert Counter(entry.owner for entry in done[0].shards) == {"w1": 1, "w2": 3, "w3": 4}
    done = apply(done, plan_moves(done, ["w1", "w3"], ["w2"], 99, {}, weights))  # and one less
    counts = Counter(entry.owner for entry in done[0].shards)
    assert counts in ({"w1": 2, "w3": 6}, {"w1": 1, "w3": 7})


@given(
    st.lists(st.lists(st.sampled_from(WORKERS), min_size=1, max_size=12), min_size=1, max_size=4),
    st.fixed_dictionaries({name: st.integers(1, 4) for name in WORKERS}),
)
def test_plans_by_weight_end_and_nothing_moves_to_and_fro(
    owners: list[list[str]], weights: dict[str, int]
) -> None:
    tables = [table(f"n{number}", *names) for number, names in enumerate(owners)]
    for _ in range(60):
        moves = plan_moves(tables, WORKERS, [], 3, {}, weights)
        if not moves:
            break
        tables = apply(tables, moves)
    assert plan_moves(tables, WORKERS, [], 99, {}, weights) == []
    for known in tables:
        counts = Counter(entry.owner for entry in known.shards)
        most = max(counts[name] / weights[name] for name in WORKERS)
        assert all((counts[name] + 1) / weights[name] >= most for name in WORKERS)
