"""Callbacks with event-time timers behind one partition whose watermark moves with its records:
every way to run them gives the same, and the mistake that looks at the watermark of the moment is
noticed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from millwheel.engine.workers.bundle.record_order import Positions
from tests.search.facts import Level
from tests.search.freedoms import promised
from tests.search.script import Action, Case, Finish, Push
from tests.search.variants import chosen, examine, free_of
from tests.sim.replacing import replaced

NOW = 1_200_000_000
SECOND = 1_000_000
YAML = """pipeline: p
streams:
  hits:
    source: {{injection: {{}}}}
    timestamp: {{field: at, unit: us}}
    watermark: {{max_delay: 10s, idle_after: never}}
computations:
  c0:
    input: {{hits: {{key: k}}}}
    callback: callbacks:{kind}
    options: {{out: c0, past: {past}, clock: false}}
    output: c0
sinks:
  c0: {{stdout: {{}}}}
"""


def _order(rng: Random) -> list[Any]:
    return rng.choice(
        [
            ["add"],
            ["append"],
            ["timer", rng.choice("ab"), rng.randint(-8 * SECOND, 30 * SECOND), "event"],
            ["timer", "again", rng.randint(0, 9 * SECOND), "event"],
            ["timer", "kill", rng.randint(0, 20 * SECOND), "event"],
            ["cancel", "a", "event"],
            *([["raise"]] if rng.random() < 0.2 else []),
        ]
    )


def _case(seed: int) -> Case:
    rng, at, script = Random(seed), 1_000 * SECOND, list[Action]()
    for _ in range(25):
        values = []
        for _ in range(rng.choice([1, 1, 3])):
            at += rng.randint(0, 12 * SECOND)
            do = [_order(rng) for _ in range(rng.randint(1, 3))]
            record = {"k": rng.choice("xyz"), "u": 0, "n": rng.randint(1, 9), "do": do}
            values.append({"at": at - rng.randint(0, 9 * SECOND), **record})
        script.append(Push("hits", tuple(values)))
    kind, past = rng.choice(["Orders", "Brief", "Mixed"]), rng.choice(["true", "false"])
    return Case(seed, YAML.format(kind=kind, past=past), (*script, Finish()), stated=False, now=NOW)


@pytest.mark.parametrize(("seed", "way"), [(1, "together"), (2, "crash-bundles"), (3, "restart")])
def test_timers_behind_one_partition_come_in_one_order_in_every_way(seed: int, way: str) -> None:
    case = _case(seed)
    [found] = chosen(seed, 1, [way])
    spec = case.spec()
    assert promised(spec, case.stated, free_of(found, case, spec)).computations["c0"] is Level.ALL
    assert not examine(case, [found])


def test_timers_that_look_at_the_watermark_of_the_moment_are_noticed_within_three_seeds() -> None:
    with replaced(Positions, "_comes", lambda self, *given: True):
        assert any(examine(_case(seed), chosen(seed, 1, ["together"])) for seed in range(1, 4))
