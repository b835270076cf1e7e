"""The journals port: a writer that deletes what it can, sealers and a collector, interleaved call
by call as chance will have it, with deaths."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import greenlet
import pytest

from millwheel.adapters.journal.journals import FileJournals
from millwheel.errors import FencedError, InvariantError, UnavailableError
from tests.contract.journals.world import FORMS, World, memory_world
from tests.fakes.faulty_files import Call, FaultyFiles, Killed

_SEEDS = range(25)


@dataclass
class Chance:
    """Runs processes by turns: after each call to the disk, somebody else may go on. Some sleep for
    long, some die."""

    world: World
    rng: random.Random
    running: dict[str, greenlet.greenlet] = field(default_factory=dict)
    asleep: dict[str, int] = field(default_factory=dict)
    steps: int = 0

    def spawn(self, name: str, run: Callable[[FileJournals], None]) -> None:
        def main() -> None:
            with suppress(Killed):
                run(
                    self.world.journals(
                        FaultyFiles(self.world.files, before=partial(self._call, name)), 100
                    )
                )

        self.running[name] = greenlet.greenlet(main)

    def _call(self, name: str, call: Call) -> None:
        if name != "writer":
            if self.rng.random() < 0.03:
                self.asleep[name] = self.steps + self.rng.randrange(1500)
            if self.rng.random() < 0.01:
                raise Killed
        # else a generator of the dead is thrown away
        if greenlet.getcurrent() is self.running.get(name):
            greenlet.getcurrent().parent.switch()

    def until_all_have_ended(self) -> None:
        while self.running:
            self.steps += 1
            awake = [name for name in self.running if self.asleep.get(name, 0) <= self.steps]
            if not awake:
                continue
            name = self.rng.choice(awake)
            self.running[name].switch()
            if self.running[name].dead:
                del self.running[name]


# generators that die with a process
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("form", FORMS)
def test_in_whatever_order_things_happen_the_end_is_one_and_nothing_acked_is_behind_it(
    form: str,
) -> None:
    for seed in _SEEDS:
        _case(form, random.Random(seed), f"seed {seed}")


def _case(form: str, rng: random.Random, case: str) -> None:
    chance = Chance(memory_world(form), rng)
    acked: list[int] = []
    needed: list[int] = [0]
    ends: set[int] = set()
    chance.world.journals()

    def write(journals: FileJournals) -> None:
        with suppress(FencedError):
            writer = journals.create("w1")
            for number in range(1, 400):
                segment = writer.commit([b"%d" % number])
                assert not ends, f"{case}: commit {number} was acked after the journal was sealed"
                acked.append(number)
                if rng.random() < 0.3:
                    needed[0] = number
                    for old in [old for old in writer.segments() if old < segment]:
                        writer.delete_segment(old)

    def seal(journals: FileJournals) -> None:
        for _ in range(3):
            with suppress(UnavailableError):  # the collector swept its temporary file away
                ends.add(journals.seal("w1"))
                return

    def collect(journals: FileJournals) -> None:
        with suppress(InvariantError, UnavailableError):  # somebody else sweeps, too
            journals.collect("w1")

    chance.spawn("writer", write)
    for number in range(3):
        chance.spawn(f"sealer {number}", seal)
        chance.asleep[f"sealer {number}"] = rng.randrange(800)
    chance.until_all_have_ended()
    seal(chance.world.journals())
    assert len(ends) == 1, f"{case}: the ends are {ends}"
    found = [int(entry) for entry in chance.world.read(upto=next(iter(ends)))]
    kept = [number for number in acked if number > needed[0]]
    assert [number for number in found if needed[0] < number <= (acked or [0])[-1]] == kept, case
    assert found == sorted(found), case
    for number in range(3):
        chance.spawn(f"collector {number}", collect)
        chance.spawn(f"sealer {number}", seal)
    chance.until_all_have_ended()
    seal(chance.world.journals())
    assert len(ends) == 1, f"{case}: after collecting, the ends are {ends}"
