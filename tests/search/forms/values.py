"""The catalogue of values that columns and rows must agree on."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

FLOATS = (
    0.0,
    -0.0,
    1.5,
    -2.25,
    3.0,
    1e15,
    2.0**53,
    2.0**60,
    1e-13,
    5e-324,
    1e308,
    1.7e308,
    -1.7e308,
)
LARGEST = (sys.float_info.max, -sys.float_info.max)
INTS = (0, 1, -1, 7, 2**31, 2**53, 2**62, -(2**63), 2**63 - 1)
TEXTS = ("a", "b", "", "\0", "a\0b", "é", "-1", "null")
TIMES = (-62_135_596_800_000_000, 253_402_300_800_000_000, -(2**60), 2**60)
"""Before year 1 in a time zone, after year 9999, and where nobody lives."""
NAMES = (
    "a0",
    "a0f",
    "a0n",
    "a1",
    "key",
    "start",
    "end",
    "count",
    "group",
    "row",
    "number",
    "time",
    "seq",
    "part",
)
NAMES += (
    "latest",
    "input",
    "at",
    "value",
    "k0",
    "index",
    "literal",
    "types",
    "item",
    "result",
    "window",
    "records",
)
"""Names of fields that columns have inside, here or there."""
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def drawn(rng: Random, kind: str, nulls: float) -> Any:
    """A value of a type, mostly an ordinary one."""
    if rng.random() < nulls:
        return None
    odd = rng.random() < 0.15
    if kind == "float":
        return (
            rng.choice((*FLOATS, *LARGEST))
            if odd
            else rng.choice((0.5, 1.5, 2.0, -3.25, 10.0, 0.1))
        )
    if kind == "int":
        return rng.choice(INTS) if odd else rng.randint(-3, 9)
    return rng.choice(TEXTS) if odd else rng.choice("ab")


def time(rng: Random, after: int) -> Any:
    """A timestamp (µs), mostly one after the others."""
    if rng.random() < 0.01:
        return rng.choice(TIMES)
    return START + after * SECOND + rng.choice((0, 0, 1, -1, 500_000, -7 * SECOND, 3 * SECOND))
