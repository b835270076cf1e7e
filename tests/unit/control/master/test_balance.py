from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.control.master.balance import (
    BalanceConfig,
    Balancer,
    ClusterLoad,
    Step,
    best_edge,
    next_step,
    relief,
)
from millwheel.control.master.events import ShardLoad
from millwheel.control.master.loads import Load, LoadBook
from millwheel.control.master.tables.planner import Move
from millwheel.control.master.tables.resharding import Merge, Split
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange, tile
from millwheel.core.slices.slots import WIDTH
from millwheel.errors import InvariantError

CONFIG = BalanceConfig()
HALF = SPACE // 2


@dataclass
class World:
    """Workers and one node, whose keys (by hash) make a certain load each, at a worker of weight 1.
    Steps are carried out at once."""

    keys: dict[int, float]
    workers: list[str]
    shards: list[ShardEntry]
    least: int = 2
    made: int = 100
    grain: int = 1
    steps: list[Step] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(
        keys: dict[int, float],
        workers: int,
        shards: int,
        grain: int = 1,
        weights: dict[str, int] | None = None,
    ) -> World:
        names = [f"w{number}" for number in range(workers)]
        entries = [
            ShardEntry(f"n-{position}", piece, names[position * workers // shards], 1)
            for position, piece in enumerate(tile(shards, grain))
        ]
        return World(keys, names, entries, shards, grain=grain, weights=weights or {})

    def cluster(self, noise: random.Random | None = None) -> ClusterLoad:
        loads = {}
        for entry in self.shards:
            mine = {key: load for key, load in self.keys.items() if key in entry.range}
            made = sum(mine.values())
            sample = (
                [key for key, load in mine.items() for _ in range(round(256 * load / made))]
                if made
                else []
            )
            busy = made / self.weights.get(entry.owner, 1)
            loads[entry.shard] = Load(
                busy * (noise.uniform(0.97, 1.03) if noise else 1.0), 0.0, sample
            )
        table = RangeTable("n", tuple(self.shards))
        return ClusterLoad(
            [table], self.workers, loads, {"n": self.least}, {"n": self.grain}, self.weights
        )

    def take(self, step: Step) -> None:
        self.steps.append(step)
        by_name = {entry.shard: entry for entry in self.shards}
        if isinstance(step, Move):
            new = [replace(by_name[step.shard], owner=step.worker)]
            gone = {step.shard}
        elif isinstance(step, Split):
            entry = by_name[step.shard]
            pieces = [KeyRange(entry.range.lo, step.at), KeyRange(step.at, entry.range.hi)]
            new = [ShardEntry(self.name(), piece, entry.owner, 1) for piece in pieces]
            gone = {step.shard}
        else:
            lower, upper = by_name[step.lower], by_name[step.upper]
            new = [
                ShardEntry(self.name(), KeyRange(lower.range.lo, upper.range.hi), upper.owner, 1)
            ]
            gone = {step.lower, step.upper}
        self.shards = [*(entry for entry in self.shards if entry.shard not in gone), *new]

    def name(self) -> str:
        self.made += 1
        return f"n-{self.made}"

    def settle(self) -> None:
        for _ in range(300):
            step = next_step(self.cluster(), CONFIG)
            if step is None:
                return
            self.take(step)
        pytest.fail(f"no end: {self.steps[-6:]}")

    def burdens(self) -> list[float]:
        cluster = self.cluster()
        return sorted(cluster.burden(worker) for worker in self.workers)


def test_an_even_cluster_is_left_alone() -> None:
    world = World.of({position * SPACE // 64: 0.01 for position in range(64)}, 2, 4)
    assert next_step(world.cluster(), CONFIG) is None


def test_a_shard_moves_from_the_busiest_to_the_idlest_worker() -> None:
    world = World.of({1: 0.3, SPACE // 4 + 1: 0.3, HALF + 1: 0.05}, 2, 4)
    step = next_step(world.cluster(), CONFIG)
    assert isinstance(step, Move)
    assert (step.shard in ("n-0", "n-1"), step.worker) == (True, "w1")


def test_a_hot_shard_is_split_beside_the_hot_key_and_a_part_of_it_moves() -> None:
    keys = {HALF // 2 + position * 1_000: 0.02 for position in range(10)} | {HALF // 2 + 5_000: 0.4}
    world = World.of(keys, 2, 2)
    step = next_step(world.cluster(), CONFIG)
    assert isinstance(step, Split)
    assert step.at in (HALF // 2 + 5_000, HALF // 2 + 5_001)
    world.settle()
    assert world.burdens()[-1] < 0.5


def test_a_single_key_is_never_divided() -> None:
    world = World.of({7: 0.9}, 2, 2)
    assert next_step(world.cluster(), CONFIG) is None


def test_a_lonely_worker_has_nothing_to_split_for() -> None:
    world = World.of({position * 1_000: 0.1 for position in range(9)}, 1, 1)
    assert next_step(world.cluster(), CONFIG) is None


def test_cold_neighbours_are_merged_until_the_node_has_as_few_shards_as_it_began_with() -> None:
    world = World.of({1: 0.001}, 2, 8)
    world.least = 4
    world.settle()
    assert len(world.shards) == 4
    assert {type(step) for step in world.steps} == {Merge}


def test_nothing_is_decided_before_all_loads_are_known() -> None:
    cluster = World.of({1: 0.9, 2: 0.9}, 2, 4).cluster()
    loads = {name: load for name, load in cluster.loads.items() if name != "n-3"}
    assert next_step(replace(cluster, loads=loads), CONFIG) is None


def test_shards_of_fixed_nodes_are_moved_and_not_split() -> None:
    cluster = World.of({position * 1_000: 0.1 for position in range(9)}, 2, 2).cluster()
    assert isinstance(next_step(cluster, CONFIG), Split)
    assert next_step(replace(cluster, least={}), CONFIG) is None


def test_what_is_on_its_way_is_left_alone() -> None:
    world = World.of({1: 0.3, SPACE // 4 + 1: 0.3}, 2, 4)
    world.shards = [replace(entry, split_at=entry.range.lo + 9) for entry in world.shards]
    assert next_step(world.cluster(), CONFIG) is None


skewed = st.dictionaries(st.integers(0, SPACE - 1), st.floats(0.0005, 0.6), min_size=1, max_size=40)


@settings(max_examples=80, deadline=None)
@given(skewed, st.integers(1, 5), st.integers(1, 12))
def test_under_constant_load_the_steps_end_and_leave_nobody_worse(
    keys: dict[int, float], workers: int, shards: int
) -> None:
    world = World.of(keys, workers, shards)
    before = world.burdens()[-1]
    world.settle()
    assert world.burdens()[-1] <= before + 1e-9
    assert next_step(world.cluster(), CONFIG) is None
    split = {step.shard for step in world.steps if isinstance(step, Split)}
    merged = [step for step in world.steps if isinstance(step, Merge)]
    assert not any({step.lower, step.upper} & split for step in merged)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, WIDTH - 1)), st.floats(0.0005, 0.6)
    ),
    st.integers(1, 12),
)
def test_steps_for_slices_end_too_and_none_cuts_a_slot(
    keys: dict[tuple[int, int], float], shards: int
) -> None:
    world = World.of(
        {slot * WIDTH + below: load for (slot, below), load in keys.items()}, 3, shards, WIDTH
    )
    world.settle()
    assert next_step(world.cluster(), CONFIG) is None
    assert not any(entry.range.lo % WIDTH for entry in world.shards)


def test_a_move_counts_the_load_as_it_will_be_at_a_slower_or_faster_worker() -> None:
    weights = {"w0": 4, "w1": 1}
    heavy = World.of({1: 2.4, SPACE // 4 + 1: 0.8}, 2, 4, weights=weights)
    assert heavy.burdens() == pytest.approx([0, 0.8])  # 0.2 of it, at the slow worker, would be 0.8
    assert next_step(heavy.cluster(), CONFIG) is None
    light = World.of({1: 2.4, SPACE // 4 + 1: 0.4}, 2, 4, weights=weights)
    assert next_step(light.cluster(), CONFIG) == Move("n", "n-1", "w1")
    slow = World.of({HALF + 1: 0.5, SPACE // 4 * 3 + 1: 0.4}, 2, 4, weights=weights)
    slow.settle()
    assert slow.burdens() == pytest.approx([0, 0.225])  # all of it


def test_a_fast_worker_with_some_work_takes_what_an_idle_slow_one_would_be_busy_with() -> None:
    sixth = SPACE // 6
    world = World.of({1: 0.7, sixth + 2: 0.2, sixth * 5 + 9: 2.0}, 3, 6, weights={"w2": 10})
    assert world.burdens() == pytest.approx([0, 0.2, 0.9])
    assert next_step(world.cluster(), CONFIG) == Move("n", "n-0", "w2")


def test_what_only_a_fast_worker_finds_cold_is_not_merged() -> None:
    world = World.of({1: 0.03, SPACE // 4 + 1: 0.03}, 1, 4, weights={"w0": 4, "w1": 1})
    world.least, world.workers = 2, ["w0", "w1"]
    world.settle()
    assert {"n-0", "n-1"} <= {entry.shard for entry in world.shards}
    assert [type(step) for step in world.steps] == [Merge]  # the others, which do nothing


@settings(max_examples=80, deadline=None)
@given(skewed, st.integers(1, 12), st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_steps_between_workers_of_different_weight_end_too_and_leave_nobody_worse(
    keys: dict[int, float], shards: int, weights: list[int]
) -> None:
    of_workers = {f"w{number}": weight for number, weight in enumerate(weights)}
    world = World.of(keys, len(weights), shards, weights=of_workers)
    before = world.burdens()[-1]
    world.settle()
    merges = sum(isinstance(step, Merge) for step in world.steps)
    assert world.burdens()[-1] <= before + merges * CONFIG.cold + 1e-9
    split = {step.shard for step in world.steps if isinstance(step, Split)}
    assert not any(
        {step.lower, step.upper} & split for step in world.steps if isinstance(step, Merge)
    )


@settings(max_examples=60, deadline=None)
@given(skewed, st.integers(2, 4), st.integers(2, 8), st.integers(0, 9))
def test_where_measurements_waver_each_move_is_a_true_gain_so_shards_do_not_go_to_and_fro(
    keys: dict[int, float], workers: int, shards: int, seed: int
) -> None:
    world, noise = World.of(keys, workers, shards), random.Random(seed)
    balancer = Balancer(CONFIG)
    for look in range(600):
        before = sum(burden**2 for burden in world.burdens())
        for step in balancer.look(world.cluster(noise), look * CONFIG.look_us):
            world.take(step)
            assert (
                not isinstance(step, Move)
                or sum(burden**2 for burden in world.burdens()) < before - 1e-6
            )
    assert sum(isinstance(step, Split) for step in world.steps) <= 2 * len(keys)


def crowded(used: dict[str, float], hosts: dict[str, str] | None = None) -> ClusterLoad:
    """Three workers with two shards each, which make little load; the later ones have more
    state."""
    cluster = World.of({1: 0.01}, 3, 6).cluster()
    sizes = {entry.shard: number * 1_000 for number, entry in enumerate(cluster.tables[0].shards)}
    return replace(cluster, memory=used, hosts=hosts or {}, state_bytes=sizes)


def test_a_worker_short_of_memory_hands_its_greatest_state_to_the_one_with_the_most() -> None:
    assert relief(crowded({"w0": 0.96, "w1": 0.7, "w2": 0.5}), CONFIG) == Move("n", "n-1", "w2")
    assert relief(crowded({"w0": 0.94, "w1": 0.7, "w2": 0.5}), CONFIG) is None
    assert relief(crowded({"w0": 0.96, "w1": 0.85}), CONFIG) is None, (
        "w1 would soon be as full, w2 has told nothing"
    )


def test_workers_of_one_host_share_its_memory_so_nothing_moves_between_them_for_it() -> None:
    hosts = {"w0": "h1", "w1": "h1", "w2": "h2"}
    assert relief(crowded({"w0": 0.96, "w1": 0.5, "w2": 0.7}, hosts), CONFIG) == Move(
        "n", "n-1", "w2"
    )
    assert relief(crowded({"w0": 0.96, "w1": 0.5, "w2": 0.96}, hosts), CONFIG) == Move(
        "n", "n-5", "w1"
    )
    assert relief(crowded({"w0": 0.96, "w1": 0.5}, hosts), CONFIG) is None


def test_the_last_shard_stays() -> None:
    cluster = crowded({"w0": 0.99, "w1": 0.98, "w2": 0.5})
    one = [
        replace(entry, owner="w0" if entry.shard == "n-0" else "w1")
        for entry in cluster.tables[0].shards
    ]
    assert relief(replace(cluster, tables=[RangeTable("n", tuple(one))]), CONFIG) == Move(
        "n", "n-5", "w2"
    )


def test_a_worker_without_memory_gets_nothing_for_balance_except_from_its_own_host() -> None:
    uneven = World.of({1: 0.3, SPACE // 6 + 1: 0.3, SPACE // 2 + 1: 0.2}, 3, 6).cluster()
    assert next_step(uneven, CONFIG) == Move("n", "n-0", "w2")
    assert next_step(replace(uneven, memory={"w2": 0.91}), CONFIG) == Move("n", "n-0", "w1")
    assert next_step(replace(uneven, memory={"w2": 0.91, "w1": 0.91}), CONFIG) is None
    same = dict.fromkeys(("w0", "w1", "w2"), "h")
    full = dict.fromkeys(same, 0.97)
    assert next_step(replace(uneven, memory=full, hosts=same), CONFIG) == Move("n", "n-0", "w2")


def test_memory_gets_time_to_fall_before_more_is_handed_over() -> None:
    cluster, balancer = crowded({"w0": 0.96, "w1": 0.7, "w2": 0.5}), Balancer(CONFIG)
    found = [second for second in range(80) if balancer.look(cluster, second * 1_000_000)]
    assert len(found) == 3
    assert min(later - earlier for earlier, later in pairwise(found)) >= 30


def test_a_step_is_taken_when_it_was_due_for_a_while_and_is_followed_by_a_rest() -> None:
    uneven = World.of({1: 0.3, SPACE // 4 + 1: 0.3}, 2, 4).cluster()
    even = World.of({}, 2, 4).cluster()
    balancer, second = Balancer(CONFIG), CONFIG.look_us
    steady = CONFIG.steady
    looks = [*[uneven] * (steady - 1), even, *[uneven] * (steady - 1)]
    assert not any(balancer.look(each, at * second) for at, each in enumerate(looks))
    due = (2 * steady - 1) * second
    assert balancer.look(uneven, due)
    after = [balancer.look(uneven, due + CONFIG.rest_us + at * second) for at in range(-1, steady)]
    assert [bool(steps) for steps in after] == [*[False] * steady, True]


def test_the_best_edge_lies_beside_a_key_that_has_much_of_the_work() -> None:
    keys = KeyRange(0, SPACE)
    assert best_edge(keys, [5] * 40 + list(range(100, 140))) == 6
    assert best_edge(keys, list(range(100, 140)) + [500] * 40) == 500
    assert best_edge(keys, list(range(80))) == 40
    assert best_edge(keys, [5] * 80) is None
    assert best_edge(keys, list(range(10))) is None
    assert best_edge(KeyRange(5, 6), [5] * 80) is None


def test_the_best_edge_of_slices_lies_between_slots_and_the_keys_of_a_slot_count_together() -> None:
    keys = KeyRange(0, 3 * WIDTH)
    crowded = [WIDTH + point for point in range(60)]
    assert best_edge(keys, [5] * 40 + crowded, WIDTH) == WIDTH
    assert best_edge(keys, crowded + [2 * WIDTH + 7] * 40, WIDTH) == 2 * WIDTH
    assert best_edge(KeyRange(WIDTH, 2 * WIDTH), crowded) == WIDTH + 30
    assert best_edge(KeyRange(WIDTH, 2 * WIDTH), crowded, WIDTH) is None
    assert (
        best_edge(KeyRange(WIDTH + 5, 3 * WIDTH), crowded + [3 * WIDTH - 1] * 40, WIDTH)
        == 2 * WIDTH
    )


def test_settings_that_could_flap_are_refused() -> None:
    for wrong in (
        {"gain": 0.2},
        {"cold": 0.03},
        {"certain": 0},
        {"steady": 2},
        {"at_once": 0},
        {"roomy": 0.9},
        {"full": 0.96},
    ):
        with pytest.raises(InvariantError):
            BalanceConfig(**wrong)  # type: ignore[arg-type]


def report(busy_us: int, records: int = 0, token: int = 1) -> ShardLoad:
    return ShardLoad(
        shard="n-0", token=token, records=records, state_bytes=0, busy_us=busy_us, sample=(7,)
    )


def test_a_load_is_known_after_two_reports_and_follows_what_comes_later() -> None:
    book = LoadBook()
    book.take(report(500_000, 100), 1_000_000)
    assert book.loads == {}
    book.take(report(1_000_000, 1_100), 2_000_000)
    assert book.loads == {
        "n-0": Load(0.5, 1_000.0, (7,), 1_000.0, 500_000.0, 1, 2_000_000, 1_000_000)
    }
    for second in range(3, 30):
        book.take(report(1_000_000, 1_100), second * 1_000_000)
    assert book.loads["n-0"].busy < 0.01


def test_a_new_owner_begins_from_zero_without_a_jump() -> None:
    book = LoadBook()
    book.take(report(500_000), 1_000_000)
    book.take(report(1_000_000), 2_000_000)
    book.take(report(100_000, token=2), 3_000_000)
    assert book.loads["n-0"].busy == 0.5
    book.forget_others(set())
    assert book.loads == {}
