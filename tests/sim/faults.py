"""What goes wrong, and when. A plan is drawn from the seed before the run; leaving a fault out
leaves the others as they were, which is what makes a story short."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millwheel.control.master.tables.resharding import Merge, Split
from millwheel.core.model.range_table import RangeTable
from tests.sim.hosts import HOST, hosts_of
from tests.sim.kernel import SECOND
from tests.sim.process import Process
from tests.sim.world import World

Rng = random.Random


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when (µs after the start), which kind, and the seed of its own choices."""

    number: int
    at_us: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.number}:{self.kind} at {self.at_us / 1000:.0f} ms"


def plan(seed: int, kinds: frozenset[str], over_us: int) -> list[Fault]:
    """The faults of one run: a few kinds of those that are allowed, and how often."""
    rng = Rng(f"faults {seed}")
    allowed, planned = sorted(kinds - {HOST}), list[Fault]()
    if allowed:
        chosen = rng.sample(allowed, min(len(allowed), rng.randint(1, 6)))
        times = sorted(rng.randint(50_000, over_us) for _ in range(rng.randint(1, 14)))
        planned = [
            Fault(number, at, rng.choice(chosen), rng.randrange(1 << 30))
            for number, at in enumerate(times)
        ]
    return planned + _losses(seed, kinds, over_us, len(planned))


def _losses(seed: int, kinds: frozenset[str], over_us: int, first: int) -> list[Fault]:
    """Losses of hosts, drawn apart from other faults: seeds whose workers share no hosts keep their
    stories."""
    if not hosts_of(seed, kinds):
        return []
    rng = Rng(f"losses of hosts {seed}")
    times = sorted(rng.randint(50_000, over_us) for _ in range(rng.randint(1, 3)))
    return [
        Fault(number, at, HOST, rng.randrange(1 << 30)) for number, at in enumerate(times, first)
    ]


def schedule(world: World, faults: list[Fault]) -> None:
    """Let them happen."""
    for fault in faults:
        world.sim.later(fault.at_us, lambda fault=fault: _happen(world, fault))


def _happen(world: World, fault: Fault) -> None:
    world.sim.trace(f"fault {fault}")
    FAULTS[fault.kind](world, Rng(fault.seed))


def _any(world: World, rng: Rng, kind: str = "w") -> Process | None:
    alive = world.alive(kind)
    return rng.choice(alive) if alive else None


# --- processes


def kill(world: World, rng: Rng) -> None:
    """A worker is killed, at whatever it is doing."""
    if worker := _any(world, rng):
        world.kill(worker)


def kill_in_a_call(world: World, rng: Rng) -> None:
    """A worker or master is killed in the middle of a call of the file system."""
    if process := _any(world, rng, rng.choice(["w", "w", "m"])):
        world.storage.kill_in_a_call(process, rng.randint(1, 60))


def kill_again(world: World, rng: Rng) -> None:
    """Workers are killed again and again while they recover."""
    for number in range(rng.randint(2, 5)):
        world.sim.later(number * rng.randint(5_000, 400_000), lambda: kill(world, rng))


def pause(world: World, rng: Rng) -> None:
    """A process stops for shorter or longer than its session lives, and goes on."""
    process = _any(world, rng, rng.choice(["w", "w", "m", "i"]))
    if process is not None:
        for_us = rng.choice([50_000, 500_000, 1_300_000, 2_500_000, 6_000_000])
        world.sim.trace(f"{process.name} is paused for {for_us // 1000} ms", process.name)
        process.paused_until = world.sim.now + for_us


def slow(world: World, rng: Rng) -> None:
    """Everything that a process does takes longer for a while."""
    process = _any(world, rng, rng.choice(["w", "w", "m", "i"]))
    if process is not None:
        process.slow = rng.choice([10, 100])
        world.sim.later(rng.randint(100_000, 2 * SECOND), lambda: setattr(process, "slow", 1))


def clock(world: World, rng: Rng) -> None:
    """A wall clock jumps, forth or back, or starts to drift."""
    process = _any(world, rng, rng.choice(["w", "w", "m", "i"]))
    if process is not None:
        if rng.random() < 0.3:
            process.clock.drift = rng.choice([-0.05, 0.05, 0.3])
        else:
            process.clock.jumped_us += rng.choice([-1, 1]) * rng.choice(
                [SECOND // 2, 10 * SECOND, 3600 * SECOND]
            )
        world.sim.trace(
            f"the clock of {process.name} is {process.clock.jumped_us} µs off", process.name
        )


def injector(world: World, rng: Rng) -> None:
    """The injector is killed; another one stands by or is started."""
    if process := _any(world, rng, "i"):
        world.kill(process)


def master(world: World, rng: Rng) -> None:
    """The master is killed, in the middle of anything."""
    if process := _any(world, rng, "m"):
        world.kill(process)


def loss(world: World, rng: Rng) -> None:
    """The machine of a worker is gone for ever."""
    if worker := _any(world, rng):
        world.retire(worker)  # type: ignore[arg-type]


def host(world: World, rng: Rng) -> None:
    """A machine with several workers dies: they hear and say nothing more, and come back some time
    after the others have noticed; or they are all killed, which their connections tell at once; or
    they are gone for ever."""
    if not world.alive("w"):
        return
    name = world.host(rng.choice(world.alive("w")).slot)
    victims = [worker for worker in world.alive("w") if world.host(worker.slot) == name]
    world.sim.trace(f"the host {name} dies", *(worker.name for worker in victims))
    how = rng.choice(["silent", "silent", "killed", "gone"])
    if how == "silent":
        mine = {f"w{worker.slot}" for worker in victims}
        others = set(_places(world)) - mine
        pairs = {(a, b) for a in mine for b in others} | {(b, a) for a in mine for b in others}
        world.network.block(pairs)
        world.sim.later(
            rng.choice([900_000, 2_500_000, 6_000_000]), lambda: world.network.heal(pairs)
        )
    for worker in victims:
        if how != "gone" or not world.retire(worker):
            world.kill(worker, "dies with its host")


def power(world: World, rng: Rng) -> None:
    """The power fails: every process ends at once, and what was not synced is gone."""
    world.sim.trace("the power fails")
    for process in world.alive():
        world.kill(process, "loses its power")
    world.storage.power_cut()


# --- the network


def cut(world: World, rng: Rng) -> None:
    """A connection breaks; what is on its way is lost."""
    if world.network.connections:
        connection = rng.choice(world.network.connections)
        world.sim.trace(
            f"the connection of {connection.client.name} to {connection.server.name} breaks",
            *(connection.client.name, connection.server.name),
        )
        connection.cut()


def late(world: World, rng: Rng) -> None:
    """Connections break, and what was on its way arrives all the same, much later: after what was
    sent again."""
    for connection in list(world.network.connections):
        if rng.random() < 0.7:
            connection.cut(late=True)


def network(world: World, rng: Rng) -> None:
    """Messages take long for a while."""
    world.network.slowness = rng.choice([10, 50])
    world.sim.later(rng.randint(100_000, SECOND), lambda: setattr(world.network, "slowness", 1))


def _places(world: World) -> list[str]:
    return [*world.places(), "zk"]


def partition(world: World, rng: Rng) -> None:
    """The network is cut between two groups, in both directions."""
    places = _places(world)
    here = set(rng.sample(places, rng.randint(1, len(places) - 1)))
    there = set(places) - here
    _separate(
        world, rng, {(a, b) for a in here for b in there} | {(b, a) for a in here for b in there}
    )


def one_way(world: World, rng: Rng) -> None:
    """The network is cut from one group to another, and passes the other way."""
    places = _places(world)
    here = set(rng.sample(places, rng.randint(1, len(places) - 1)))
    _separate(world, rng, {(a, b) for a in here for b in set(places) - here})


def _separate(world: World, rng: Rng, pairs: set[tuple[str, str]]) -> None:
    world.sim.trace(f"nothing passes {', '.join(f'{a}→{b}' for a, b in sorted(pairs))}")
    world.network.block(pairs)
    world.sim.later(rng.choice([100_000, 900_000, 2_500_000]), lambda: world.network.heal(pairs))


# --- ZooKeeper


def session(world: World, rng: Rng) -> None:
    """ZooKeeper ends the session of a process that is well."""
    process = _any(world, rng, rng.choice(["w", "w", "m", "i"]))
    if process is not None:
        world.sim.trace(f"the session of {process.name} ends", process.name)
        world.zookeeper.expire(process.session)  # type: ignore[attr-defined]


def zookeeper(world: World, rng: Rng) -> None:
    """ZooKeeper is away for a while; for longer than processes believe in their sessions, or
    not."""
    for_us = rng.choice([100_000, 600_000, 2_000_000])
    if world.shape.embedded and rng.random() < 0.5:
        world.sim.trace(f"the embedded coordinator is stopped for {for_us // 1000} ms")
        world.zookeeper.pause(for_us)
        return
    world.sim.trace(f"ZooKeeper is away for {for_us // 1000} ms")
    world.zookeeper.down(for_us)


def answers(world: World, rng: Rng) -> None:
    """ZooKeeper does what it is asked, but its answers are lost."""
    world.zookeeper.lose_answers = rng.choice([0.1, 0.5])
    world.sim.later(
        rng.randint(200_000, 2 * SECOND), lambda: setattr(world.zookeeper, "lose_answers", 0.0)
    )


def false_alarm(world: World, rng: Rng) -> None:
    """A worker that lives is taken for dead."""
    worker, leaders = _any(world, rng), [m for m in world.alive("m") if m.leading]
    if worker is not None and leaders:
        world.sim.trace(f"a false alarm about {worker.name}", worker.name)
        leaders[0].lines.alarm(worker.name)


def zombie(world: World, rng: Rng) -> None:
    """A worker is taken for dead, and hears nothing of it: it works on for as long as it may
    believe in its session."""
    workers = world.alive("w")
    if not workers:
        return
    worker = rng.choice(workers)
    deaf = {(place, f"w{worker.slot}") for place in _places(world) if place[0] in "mz"}
    world.sim.trace(f"{worker.name} becomes a zombie", worker.name)
    world.network.block(deaf)
    world.sim.later(rng.choice([900_000, 2_500_000]), lambda: world.network.heal(deaf))
    false = [master for master in world.alive("m") if master.leading]
    if false:
        false[0].lines.alarm(worker.name)


# --- the disk


def _trouble(world: World, rng: Rng, kind: str, rates: list[float]) -> None:
    trouble = world.storage.trouble
    trouble.rates[kind] = rng.choice(rates)
    worker = _any(world, rng)
    trouble.who = worker.name if worker is not None and rng.random() < 0.6 else ""
    world.sim.later(rng.randint(50_000, SECOND), lambda: trouble.rates.pop(kind, None))


def full(world: World, rng: Rng) -> None:
    """The disk is full for a while."""
    _trouble(world, rng, "full", [0.2, 1.0])


def failing(world: World, rng: Rng) -> None:
    """Calls of the file system fail now and then."""
    _trouble(world, rng, "error", [0.02, 0.3])


def sync(world: World, rng: Rng) -> None:
    """Syncs fail: whether what was written is durable is not known."""
    _trouble(world, rng, "sync", [0.05, 0.5])


def short(world: World, rng: Rng) -> None:
    """Reads and writes do less than they were asked for."""
    _trouble(world, rng, "short", [0.3])


def ambiguous(world: World, rng: Rng) -> None:
    """A file is made or written, and an error is returned."""
    _trouble(world, rng, "ambiguous", [0.05, 0.5])


def slow_disk(world: World, rng: Rng) -> None:
    """The disk is slow for a while."""
    world.storage.trouble.slowness = rng.choice([20, 300])
    world.sim.later(
        rng.randint(100_000, SECOND), lambda: setattr(world.storage.trouble, "slowness", 1)
    )


def flip(world: World, rng: Rng) -> None:
    """A bit flips in a journal, a snapshot or a manifest. The run must refuse it, or not need
    it."""
    path = world.storage.flip_bit()
    if path:
        world.damaged = path
        world.checkers.manifests.off = True
        world.sim.trace(f"a bit flips in {path}")


# --- people


def move(world: World, rng: Rng) -> None:
    """Somebody asks for planned moves."""
    leaders, workers = [m for m in world.alive("m") if m.leading], world.alive("w")
    tables = list(world.zookeeper.stored.tables.values())
    if leaders and workers and tables:
        for _ in range(rng.randint(1, 4)):
            table = rng.choice(tables)
            leaders[0].ask_move(
                table.computation, rng.choice(table.shards).shard, rng.choice(workers).name
            )


def split(world: World, rng: Rng) -> None:
    """Somebody asks for splits of shards, anywhere in their ranges."""
    for _ in range(rng.randint(1, 4)):
        leaders, tables = _can_be_resharded(world)
        if leaders and tables:
            table = rng.choice(tables)
            entry = rng.choice(table.shards)
            at = rng.randrange(entry.range.lo + 1, entry.range.hi)
            leaders[0].ask_reshard(Split(table.computation, entry.shard, at))


def merge(world: World, rng: Rng) -> None:
    """Somebody asks for merges of neighbours."""
    for _ in range(rng.randint(1, 4)):
        leaders, tables = _can_be_resharded(world)
        tables = [table for table in tables if len(table.shards) > 1]
        if leaders and tables:
            table = rng.choice(tables)
            ordered = sorted(table.shards, key=lambda entry: entry.range.lo)
            first = rng.randrange(len(ordered) - 1)
            leaders[0].ask_reshard(
                Merge(table.computation, ordered[first].shard, ordered[first + 1].shard)
            )


def reshard(world: World, rng: Rng) -> None:
    """Splits and merges, again and again."""
    for number in range(rng.randint(3, 10)):
        act = rng.choice([split, merge])
        world.sim.later(number * rng.randint(20_000, 300_000), lambda act=act: act(world, rng))


def _can_be_resharded(world: World) -> tuple[list[Any], list[RangeTable]]:
    """Masters that lead, and tables of nodes whose shards can be split and merged."""
    tables = world.zookeeper.stored.tables
    found = [
        table
        for node, table in sorted(tables.items())
        if world.graph.nodes[node].computation is not None
    ]
    return [m for m in world.alive("m") if m.leading], found


def join(world: World, rng: Rng) -> None:
    """One more worker comes."""
    if len(world.alive("w")) < 5:
        world.add_worker()


def drain(world: World, rng: Rng) -> None:
    """A worker wants to give its shards away, and stops some time after."""
    worker = _any(world, rng)
    if worker is not None:
        session = worker.session  # type: ignore[attr-defined]
        worker.spawn(lambda: _leave(world, worker, session))
        world.sim.later(rng.choice([500_000, 3_000_000]), lambda: world.kill(worker))


def _leave(world: World, worker: Process, session: object) -> None:
    from millwheel.errors import ConflictError, UnavailableError

    try:
        session.join("leaving", worker.name, b"{}")  # type: ignore[attr-defined]
    except ConflictError:
        world.sim.trace(f"{worker.name} has said already that it wants to leave", worker.name)
    except UnavailableError:
        world.sim.trace(f"{worker.name} cannot say that it wants to leave", worker.name)


FAULTS: dict[str, Callable[[World, Rng], None]] = {
    act.__name__.replace("_", "-"): act
    for act in (
        *(
            kill,
            kill_in_a_call,
            kill_again,
            pause,
            slow,
            clock,
            injector,
            master,
            loss,
            host,
            power,
        ),
        *(cut, late, network, partition, one_way),
        *(session, zookeeper, answers, false_alarm, zombie),
        *(full, failing, sync, short, ambiguous, slow_disk, flip),
        *(move, split, merge, reshard, join, drain),
    )
}
ALL_FAULTS = frozenset(FAULTS)
