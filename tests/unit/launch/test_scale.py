from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from millwheel.adapters.processes.supervisor import ProcessEnded, Supervisor
from millwheel.launch.auto_spares import AutoSpares
from millwheel.launch.members import JoinedWorker
from millwheel.launch.scale import Scale, Scaling, answer, ask, forget


class World:
    """A run with two workers, as the driver sees it; it is also the launcher."""

    def __init__(
        self, root: Path, spares: int = 0, most: int | None = None, auto: AutoSpares | None = None
    ) -> None:
        self.root = root
        self.said: list[str] = []
        self.running: set[int] = set()
        self.members: Mapping[str, JoinedWorker] = {}
        self.owners: frozenset[str] = frozenset()
        self.draining: frozenset[str] = frozenset()
        self.killed: list[tuple[int, int]] = []
        self.supervisor = Supervisor(self.said.append)
        self.now_s = 0.0
        slots = range(2 + spares)
        for slot in slots:
            self.begin(slot)
        self.scaling = Scaling(
            root, slots, spares, self.begin, self.supervisor, self.said.append, most, auto
        )
        self.join(*slots)

    def begin(self, slot: int) -> None:
        self.supervisor.keep(f"worker {slot}", lambda: self.running.add(slot))

    def join(self, *slots: int) -> None:
        self.members = {
            **self.members,
            **{f"w{slot}-1": JoinedWorker(slot, 100 + slot) for slot in slots},
        }

    def place(self, hosts: Mapping[int, str]) -> None:
        found = {
            f"w{slot}-1": JoinedWorker(slot, 100 + slot, host=host) for slot, host in hosts.items()
        }
        self.members = {**self.members, **found}

    def die(self, slot: int) -> None:
        self.members = {
            name: member for name, member in self.members.items() if member.slot != slot
        }
        self.running.discard(slot)
        self.supervisor.ended(ProcessEnded(f"worker {slot}", -9, 60.0), self.now_s)
        self.supervisor.step(self.now_s)

    def drain(self, incarnations: frozenset[str]) -> None:
        self.draining = incarnations

    def seat(self, workers: int) -> None:
        self.seats = workers

    def kill(self, slot: int, pid: int) -> bool:
        self.killed.append((slot, pid))
        return True

    def step(self) -> Scale | None:
        self.now_s += 1.0
        self.scaling.step(self.now_s, self, self)  # type: ignore[arg-type]
        return answer(self.root)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_happens_until_somebody_asks(world: World) -> None:
    assert world.step() is None
    assert (world.running, world.said) == ({0, 1}, [])


def test_a_new_worker_is_started_in_a_slot_of_its_own_and_counts_once_it_has_joined(
    world: World,
) -> None:
    ask(world.root, 3)
    assert world.step() is None
    assert world.running == {0, 1, 2}
    world.join(2)
    assert world.step() == Scale(3)
    assert world.said == ["The worker 2 is started."]


def test_a_worker_that_is_too_many_is_ended_when_no_range_table_names_it(world: World) -> None:
    world.owners = frozenset({"w0-1", "w1-1"})
    ask(world.root, 1)
    world.step()
    assert (world.draining, world.killed) == ({"w1-1"}, [])
    world.owners = frozenset({"w0-1"})
    world.step()
    assert world.killed == [(1, 101)]
    world.die(1)
    assert world.step() == Scale(1)
    assert world.running == {0}
    assert world.said[-1] == "The worker 1 has left."
    assert world.draining == frozenset()


def test_a_worker_that_dies_while_it_is_emptied_is_not_started_again(world: World) -> None:
    world.owners = frozenset({"w0-1", "w1-1"})
    ask(world.root, 1)
    world.step()
    world.die(1)
    assert world.step() == Scale(1)
    assert world.running == {0}


def test_a_worker_that_stays_is_started_again_as_ever(world: World) -> None:
    ask(world.root, 1)
    world.step()
    world.die(0)
    assert 0 in world.running


def test_more_are_wanted_while_one_still_leaves(world: World) -> None:
    world.owners = frozenset({"w0-1", "w1-1"})
    ask(world.root, 1)
    world.step()
    ask(world.root, 2)
    world.step()
    assert world.running == {0, 1, 2}
    world.die(1)
    world.join(2)
    assert world.step() == Scale(2)
    assert world.running == {0, 2}


def test_spares_are_not_counted(tmp_path: Path) -> None:
    world = World(tmp_path, spares=1)
    ask(world.root, 3)
    world.step()
    assert world.running == {0, 1, 2, 3}
    assert world.seats == 3


def test_more_than_there_is_room_for_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, most=2)
    ask(world.root, 3)
    refused = world.step()
    assert refused is not None
    assert "room for 2 workers" in refused.problem
    assert world.running == {0, 1}


def test_a_new_run_forgets_what_the_last_one_was_asked(world: World) -> None:
    ask(world.root, 3)
    forget(world.root)
    assert world.step() is None
    assert world.running == {0, 1}


def test_with_spares_auto_their_number_follows_the_hosts(tmp_path: Path) -> None:
    world = World(tmp_path, spares=1, auto=AutoSpares())
    world.owners = frozenset({"w0-1", "w1-1"})

    def settle() -> None:
        for _ in range(4):
            world.step()

    world.place({0: "h1", 1: "h2", 2: "h2"})
    settle()
    assert world.running == {0, 1, 2, 3}
    settle()
    assert world.running == {0, 1, 2, 3}, "one more is awaited"
    world.place({3: "h1"})
    settle()
    assert world.said == [
        "The worker 3 is started.",
        "Any one host may die: there are 2 spares, and 2 workers on h1",
    ]
    world.place({3: "h3"})  # it was started again elsewhere
    settle()
    assert world.running == {0, 1, 2, 3}
    ask(world.root, 3)
    world.step()
    assert world.running == {0, 1, 2, 3, 4}, "the spares are kept"


def test_with_spares_auto_one_that_nobody_needs_leaves(tmp_path: Path) -> None:
    world = World(tmp_path, spares=3, auto=AutoSpares())
    world.owners = frozenset({"w0-1", "w1-1"})
    world.place({0: "h1", 1: "h2", 2: "h1", 3: "h2", 4: "h3"})
    for _ in range(70):
        world.step()
    assert world.said[-1] == "The worker 3 gives its ranges away, and then leaves."
    assert world.killed[0] == (3, 103)
