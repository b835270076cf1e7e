"""One simulated run: a safety phase under faults, then a liveness phase in which everything must
drain."""

from __future__ import annotations

import os
import random
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tests.sim.days import Days
from tests.sim.faults import ALL_FAULTS, Fault, plan, schedule
from tests.sim.hosts import hosts_of
from tests.sim.kernel import SECOND, START_US, Event, Failure, Simulation
from tests.sim.savepoints import Savepoints, cut_to_the_end
from tests.sim.workloads import BY_NAME, WORKLOADS
from tests.sim.world import Refused, Shape, World

_SAFETY_US = 5 * SECOND
_LIVENESS_US = 180 * SECOND
"""A step with a failure waits a second for others as long as fewer than a hundred calls are known:
up to 100 s."""
_SEARCHED_FROM = 1_000
_GENTLY_US = 100_000  # a shard is on its way for less
_ROOM = 6_000  # bytes of journals, where there is any: for groups of some hundreds
_DAILY = ("numbers", "windows", "accounts", "transactional", "graphs")


@dataclass(frozen=True, slots=True)
class Case:
    """What to run. ``keep`` are the numbers of the planned faults that happen (None: all); ``size``
    scales the input. ``savepoint``: savepoints are taken, and a second cluster goes on from one of
    them. ``finish``: the sources are told to end where they are. ``days``: runs that end once they
    have caught up, one after the other, while the input grows. ``embedded``: the embedded
    coordinator does what ZooKeeper does; half of the seeds from 1000 on have it anyway."""

    seed: int
    faults: frozenset[str] = field(default=ALL_FAULTS)
    workload: str = ""
    keep: tuple[int, ...] | None = None
    size: float = 1.0
    savepoint: bool = False
    finish: bool = False
    embedded: bool = False
    days: bool = False

    def planned(self) -> list[Fault]:
        """The faults that happen."""
        found = plan(self.seed, self.faults, _SAFETY_US)
        return (
            found if self.keep is None else [fault for fault in found if fault.number in self.keep]
        )

    def command(self) -> str:
        """How to run it again."""
        words = ["python -m tests.sim", f"--seed {self.seed}"]
        if self.faults != ALL_FAULTS:
            words.append(f"--faults {','.join(sorted(self.faults)) or 'none'}")
        if self.workload:
            words.append(f"--workload {self.workload}")
        if self.keep is not None:
            words.append(f"--keep {','.join(map(str, self.keep)) or 'none'}")
        if self.savepoint:
            words.append("--savepoint")
        if self.finish:
            words.append("--finish")
        if self.embedded:
            words.append("--embedded")
        if self.days:
            words.append("--days")
        if self.size != 1.0:
            words.append(f"--size {self.size}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went. The same case gives the same ``trace_hash``."""

    trace_hash: str
    simulated_s: float
    story: tuple[Event, ...]
    refused: str = ""


def simulate(case: Case) -> Result:
    """Run a case. Raises Failure, with the story so far, when an invariant does not hold."""
    sim = Simulation(case.seed)
    name = case.workload or (_DAILY[case.seed % len(_DAILY)] if case.days else _workload(case.seed))
    shape = Shape.drawn(sim, case.seed)
    if case.embedded or (case.seed >= _SEARCHED_FROM and _is_embedded(case.seed)):
        shape = replace(shape, embedded=True)
    if case.seed >= _SEARCHED_FROM and random.Random(f"journals of {case.seed}").random() < 0.5:
        shape = replace(shape, room=_ROOM)
    if case.seed >= _SEARCHED_FROM and random.Random(f"pace of {case.seed}").random() < 0.5:
        shape = replace(shape, gently_us=_GENTLY_US)
    if hosts := hosts_of(case.seed, case.faults):
        shape = replace(shape, hosts=hosts, workers=max(shape.workers, 2))
    refused = ""
    workload = WORKLOADS[name](case.seed, case.size)
    shape = workload.shaped(shape)
    workload.days = Days(case.seed) if case.days else None
    with _chance_of_the_system(case.seed), _no_folders_of_this_machine(), workload.tight():
        try:
            sim.trace(f"{name} on {shape}")
            ordered = case.savepoint or case.finish or case.days or workload.endless
            savepoints = Savepoints(case.seed) if ordered else None
            world = World(sim, workload, shape, savepoints)
            _run(world, case)
            if savepoints is not None and savepoints.taken is not None:
                _run(savepoints.taken.resumed(sim, workload), replace(case, faults=frozenset()))
        except Refused as ex:
            refused = str(ex)
        except Failure as ex:
            ex.story = tuple(sim.story)
            raise
        except Exception as ex:
            failure = Failure(f"no process dies of an unexpected {type(ex).__name__}: {ex}")
            failure.story = tuple(sim.story)
            raise failure from ex
        finally:
            workload.close()
    return Result(sim.trace_hash(), (sim.now - START_US) / 1e6, tuple(sim.story), refused)


def _is_embedded(seed: int) -> bool:
    return random.Random(f"coordinator of {seed}").random() < 0.5


def _workload(seed: int) -> str:
    """Regressions and deliberate mistakes name earlier seeds, whose workloads stay what they
    were."""
    if seed >= _SEARCHED_FROM and seed % 4 == 0:
        return "searched"
    if seed >= _SEARCHED_FROM and seed % 8 == 1:
        return "injected"
    names = sorted(WORKLOADS.keys() - BY_NAME)
    return names[seed % len(names)]


def _run(world: World, case: Case) -> None:
    try:
        if case.days:
            _catch_up(world, case)
        else:
            _phases(world, case)
    finally:
        world.close()


def _phases(world: World, case: Case) -> None:
    faults = case.planned()
    schedule(world, faults)
    world.calm = not (faults or case.savepoint or case.finish)
    if case.savepoint:
        world.savepoints.schedule(world)
    if case.finish or (world.workload.ends_early and not case.savepoint):
        world.savepoints.finish(world)
    if faults or world.savepoints.wanted:
        world.sim.run(lambda: False, _SAFETY_US)
    world.heal()
    _wait(world, lambda: world.workload.ended(world), "everything drains")
    world.validate()
    world.sim.run(lambda: False, world.workload.settle_us)
    world.validate()
    if case.finish:
        cut_to_the_end(world)
    world.workload.check()


def _catch_up(world: World, case: Case) -> None:
    """Run after run catches up, under the faults of its time; then the sources are told to end."""
    days = world.workload.days
    assert days is not None
    faults = case.planned()
    while not days.last:
        schedule(world, days.faults_of_now(faults))
        days.watch(world)
        if not world.sim.run(lambda: days.caught_up, _SAFETY_US):
            world.heal()
            _wait(world, lambda: days.caught_up, "a run catches up")
        days.next_run(world)
    _phases(
        world,
        replace(
            case, days=False, finish=True, keep=tuple(f.number for f in days.faults_of_now(faults))
        ),
    )


def _wait(world: World, until: Callable[[], bool], promise: str) -> None:
    if world.sim.run(until, _LIVENESS_US):
        return
    if world.damaged:
        raise Refused(f"{world.damaged} is damaged, and whoever needs it waits: {world.stuck()}")
    raise Failure(
        f"{promise}: not {_LIVENESS_US // SECOND} s after the last fault: {world.stuck()}"
    )


@contextmanager
def _chance_of_the_system(seed: int) -> Iterator[None]:
    """Random bytes that adapters put into names and headers come from the seed as well."""
    right, rng = os.urandom, random.Random(f"urandom {seed}")
    os.urandom = rng.randbytes
    try:
        yield
    finally:
        os.urandom = right


@contextmanager
def _no_folders_of_this_machine() -> Iterator[None]:
    """Dead letters hold tracebacks, and snapshots are taken by the bytes of commits: a checkout in
    another folder must not give longer ones."""
    right = traceback.format_exception

    def without_folders(ex: BaseException) -> list[str]:
        return [re.sub('File "[^"]*/', 'File "', part) for part in right(ex)]

    traceback.format_exception = without_folders  # type: ignore[assignment]
    try:
        yield
    finally:
        traceback.format_exception = right
