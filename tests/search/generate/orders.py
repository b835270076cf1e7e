"""Draws what records tell the callbacks to do with them. In some cases most orders are about one
thing."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.search.questions import SECOND, START

if TYPE_CHECKING:
    from tests.search.generate.draft import Draft


def theme(draft: Draft) -> str:
    """What the orders of a case are about ("": anything)."""
    if "past_timers" in draft.features and draft.chance(0.2, "same_timers"):
        return "same_timers"
    if {"ttl", "timers"} <= draft.features and draft.chance(0.1, "many_writes"):
        return "many_writes"
    return "wall_clock" if "timers" in draft.features and draft.chance(0.1, "wall_clock") else ""


def order(rng: Random, about: str) -> list[Any]:
    """A word and its arguments, see ``callbacks.py``."""
    return _THEMES[about](rng)


def _same_timer(rng: Random) -> list[Any]:
    """Timers that are set for the same time again and again, also when they have fired."""
    return ["at", rng.choice("aab"), START]


def _write(rng: Random) -> list[Any]:
    index = rng.randrange(3)
    return list(rng.choice([["append"], ["append"], ["add"], ["put", index], ["delete", index]]))


def _of_wall_clock(rng: Random) -> list[Any]:
    tag = rng.choice("ab")
    sets = ["timer", tag, rng.choice([1, 1, 4, 6]) * SECOND, "processing"]
    return rng.choice(
        [sets, sets, ["cancel", tag, "processing"], ["timer", tag, 60 * SECOND, "processing"]]
    )


def _any(rng: Random) -> list[Any]:
    domain = rng.choice(["event", "event", "processing"])
    tag = rng.choice(
        ["a", "a", "b", "again", "kill", "move", "wipe", "fail" if rng.random() < 0.3 else "a"]
    )
    return rng.choice(
        [
            ["add"],
            ["add"],
            ["append"],
            ["append"],
            ["put", rng.randrange(3)],
            ["put", rng.randrange(3)],
            ["delete", rng.randrange(3)],
            ["clear"],
            ["timer", tag, rng.choice([0, 1, 3, 10, 20]) * SECOND, domain],
            ["timer", tag, rng.choice([0, 5, -5, 10]) * SECOND, domain],
            ["timer", "a", rng.choice([0, 5, 10]) * SECOND, domain],
            ["cancel", rng.choice("ab"), domain],
            ["at", rng.choice("ab"), START],
            ["later", 4 * SECOND],
            ["raise"] if rng.random() < 0.4 else ["add"],
        ]
    )


_THEMES = {
    "": _any,
    "same_timers": _same_timer,
    "many_writes": _write,
    "wall_clock": _of_wall_clock,
}
