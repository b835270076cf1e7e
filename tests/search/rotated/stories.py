"""Stories: the steps that a seed draws, and what each does to the folder and to its reader."""

from __future__ import annotations

import random
from typing import Any

from millwheel.core.model.times import SECOND
from tests.search.rotated.world import World

Step = tuple[Any, ...]


def story(seed: int) -> list[Step]:
    """A run's steps."""
    rng = random.Random(seed)
    names = rng.choice([["a"], ["a", "b"], ["a", "b", "c"]])
    habits = rng.sample(
        ["rename", "truncate", "delete", "compress", "write_old"], rng.randint(1, 3)
    )
    dangers = rng.sample(["crash", "stop", "few", "sleep"], rng.randint(0, 2))
    steps: list[Step] = [("limits", rng.choice([1, 3, 50]), rng.choice([0, 20_000, 200_000]))]
    steps += [("write", name, "line", 2) for name in names] + [("look", 3)]
    for _ in range(rng.randint(10, 60)):
        name, chance = rng.choice(names), rng.random()
        if chance < 0.35:
            kind = rng.choice(["line", "line", "line", "half", "bad", "far"])
            steps.append(("write", name, kind, 1 if kind == "half" else rng.choice([1, 2, 4, 12])))
        elif chance < 0.55:
            steps.append((rng.choice(habits), name))
        elif chance < 0.62 and dangers:
            steps.append((rng.choice(dangers),))
        else:
            word = rng.choice(
                ["turn", "turn", "turn", "durable", "apply", "clock", "settle", "look", "look"]
            )
            steps.append((word, rng.randint(1, 6)))
    return steps


def play(steps: list[Step], world: World) -> None:
    for step in steps:
        _play(step, world)
    world.system.most = 10**6
    world.start()
    world.settle(60)
    # a name that nobody writes to any more is not looked at
    for name in [*world.folder.living, *world.folder.old]:
        world.folder.write(name, "line", 1)
    for _ in range(4):
        world.now += SECOND
        world.settle(60)


def _play(step: Step, world: World) -> None:
    folder, word = world.folder, step[0]
    path = folder.path / f"{step[1] if len(step) > 1 else ''}.log"
    match word:
        case "write":
            folder.write(*step[1:])
        case "rename":
            known, is_open = path.exists() and world.known(str(path)), world.is_open(path)
            content = folder.rename(step[1])
            if content is not None and content.unseen and not world.came.keys() & content.numbers:
                world.at_risk(content, is_open)
            elif content is not None and not known:
                world.may_miss |= set(content.numbers) - set(world.came)
        case "truncate":
            content = folder.truncate(step[1])
            world.at_risk(content, False)
            if content is not None:
                folder.living[step[1]].unseen = True
        case "delete":
            is_open = world.is_open(path)
            world.at_risk(folder.delete(step[1]), is_open)
        case "compress":
            old = folder.old.get(step[1])
            is_open = bool(old) and world.is_open(old[0][0])
            world.at_risk(folder.compress(step[1]), is_open)
        case "write_old":
            world.may_miss |= set(folder.write_old(step[1]))
        case "turn":
            for _ in range(step[1]):
                world.turn()
        case "durable":
            for _ in range(step[1]):
                world.durable()
        case "apply":
            world.apply()
        case "clock":
            world.now += step[1] * 25_000
        case "settle":
            world.settle(step[1])
        case "look":
            world.now += SECOND
            world.settle(2 * step[1])
        case "sleep":
            for _ in range(13):
                world.now += SECOND
                world.settle(4)
        case "few":
            world.system.most = 1 if world.system.most > 1 else 10**6
            world.may_miss |= world.fragile - set(world.came)
        case "crash":
            world.crash() if world.shard is not None else world.start()
        case "stop":
            world.settle(20)
            world.crash()
