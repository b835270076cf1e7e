"""Whatever happens in whatever order: nothing acked is lost, no rule of the tables is broken, and
once the trouble ends everything is served."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millwheel.control.master.config import MasterConfig
from millwheel.control.master.effects import Effect
from millwheel.control.master.events import Event
from millwheel.control.master.state import MasterState
from millwheel.control.master.tables.open_nodes import OpenNodes
from millwheel.control.master.tables.planner import NodeDemand
from millwheel.core.model.names import NodeName
from tests.fakes import master_world
from tests.fakes.master_world import World

CONFIG = MasterConfig(
    nodes=(NodeDemand("source.hits", 3), NodeDemand("traffic"), NodeDemand("sink.alerts", 1)),
    expected_workers=2,
)
ACTIONS = (
    *("deliver", "perform", "catch_up") * 3,
    *("work", "see", "snapshot", "tick", "scan") * 2,
    *("join", "kill", "cut_off", "expire", "false_alarm", "move", "second", "crash", "store"),
)


def play(world: World, action: str, pick: int) -> None:
    """One step; ``pick`` chooses whom it concerns."""
    workers = list(world.workers.values())
    worker = workers[-1 - pick % min(4, len(workers))] if workers else None
    master = world.masters[pick % len(world.masters)] if world.masters else world.start_master()
    shards = [
        (table.computation, entry) for table in world.tables.values() for entry in table.shards
    ]
    match action:
        case "deliver":
            world.deliver(master)
        case "perform":
            world.perform(master, pick)
        case "catch_up":
            while world.deliver(master) or world.perform(master):
                pass
        case "tick":
            world.now_us += 500_000
            world.tick(master)
        case "scan":
            world.scan(master)
        case "join":
            world.join()
        case "second" if len(world.masters) < 3:
            world.start_master()
        case "crash":
            world.crash_master(master)
        case "store":
            world.store_down = not world.store_down
        case "expire":
            world.expire_dead()
        case "move" if shards and worker:
            node, entry = shards[pick % len(shards)]
            world.ask_move(master, node, entry.shard, worker.name)
        case "kill" if worker:
            world.kill(worker)
        case "cut_off" if worker:
            world.cut_off(worker)
        case "false_alarm" if worker:
            world.false_alarm(worker)
        case "see" if worker:
            world.see_tables(worker)
        case "work" if worker:
            for shard in sorted(worker.open):
                world.commit(worker, shard)
        case "snapshot" if worker:
            for shard in sorted(worker.open)[: 1 + pick]:
                world.snapshot(worker, shard)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), min_size=50, max_size=300),
    st.sampled_from([0, 400_000, 2_000_000]),
)
def test_no_order_of_events_breaks_the_rules_and_everything_is_served_in_the_end(
    steps: list[tuple[str, int]], gently_us: int
) -> None:
    world = World(replace(CONFIG, gently_us=gently_us))
    world.start_master()
    world.join()
    world.join()
    world.settle(2)
    for action, pick in steps:
        play(world, action, pick)

    world.store_down = False
    world.expire_dead()
    world.join()
    world.masters.clear()
    master = world.start_master()
    world.settle()
    assert {table.computation for table in master.state.tables} == {
        demand.name for demand in CONFIG.nodes
    }
    for table in world.tables.values():
        for entry in table.shards:
            owner = world.workers[entry.owner]
            assert owner.alive
            assert owner.name in world.members
            assert owner.open[entry.shard] == (entry.token, world.acked.get(entry.shard, 0))
            assert entry.next_owner == ""
    counts = sorted(
        len(worker.open) for worker in world.workers.values() if worker.name in world.members
    )
    assert counts[-1] - counts[0] <= 1, f"uneven: {counts}"


class Watched(MasterState):
    """Beside each decision, that of a machine which looks at every node at every event."""

    def __init__(self, config: MasterConfig) -> None:
        super().__init__(config)
        self._looking = MasterState(config)
        self._looking._open = LooksAtAll(node.name for node in config.nodes)

    def handle(self, event: Event) -> list[Effect]:
        found = super().handle(event)
        assert self._looking.handle(event) == found, event
        return found


class LooksAtAll(OpenNodes):
    def close(self, node: NodeName) -> None:
        """No node is ever closed."""


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), min_size=50, max_size=200),
    st.booleans(),
)
def test_what_is_not_looked_at_needs_no_decision(steps: list[tuple[str, int]], spare: bool) -> None:
    with patch.object(master_world, "MasterState", Watched):
        world = World(replace(CONFIG, spares=int(spare)))
        world.start_master()
        world.join()
        world.join()
        world.settle(2)
        for action, pick in steps:
            play(world, action, pick)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["join", "kill"]), max_size=12))
def test_plans_end(steps: list[str]) -> None:
    world = World(CONFIG)
    world.start_master()
    world.join()
    world.settle(30)
    for step in steps:
        play(world, step, 0)
        world.settle(3)
    world.join()
    world.settle(60)
    before = {name: table.version for name, table in world.tables.items()}
    world.settle(60)
    assert {name: table.version for name, table in world.tables.items()} == before
