"""One pipeline with a bit of everything, random stories from a seed, and a crash of the whole
cluster at many places of each: streams and state stay what they are without it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness, assert_survives_crashes

PIPELINE = """
pipeline: mixture
streams:
  hits: {source: {injection: {}}, timestamp: t, id: id}
  clicks: {source: {injection: {}}, timestamp: t}
computations:
  steps:
    input: {hits: {key: user}}
    callback: "steps:Steps"
    order_by: timestamp
    output: steps
  once:
    input: {hits: {key: user}}
    deduplicate: {by: [v], within: 20us}
    output: once
  ways:
    input: once
    branch: {small: v < 2, rest: otherwise}
  pairs:
    input: {rest: {key: user}, clicks: {key: user}}
    window: {tumbling: 20us}
    join: outer
    output: pairs
  enriched:
    input: {hits: {key: user}, clicks: {key: user}}
    enrich: {with: clicks, as: click, missing: keep}
    output: enriched
  sessions:
    input: {steps: {key: user}}
    window: {session: 9us}
    trigger: {after_watermark: {late: {after_count: 1}}}
    accumulation: retracting
    allowed_lateness: 30us
    aggregate: {n: count, most: {max: v}}
    output: sessions
  totals:
    input: {sessions: {key: user}}
    window: global
    accumulation: accumulating
    aggregate: {n: {sum: n}}
    output: totals
  counted:
    input: {small: {key: user}}
    productions: weak
    map: {user: user, v: v + 1}
    output: counted
sinks:
  enriched: {stdout: {}}
  pairs: {stdout: {}}
  counted: {stdout: {}}
  totals: {stdout: {}}
"""
CODE = """
from millwheel import Computation, Domain, MapState, ValueState


class Steps(Computation):
    last = ValueState(int, default=0, ttl="40us")
    seen = MapState(int, ttl="60us")

    def process_record(self, ctx, record):
        v = record.value["v"]
        self.seen[str(v)] = self.seen.get(str(v), 0) + 1
        ctx.produce("steps", {"user": ctx.key, "from": self.last.get(), "v": v})
        self.last.set(v)
        ctx.set_timer("second", record.timestamp + 7)
        ctx.set_timer("first", record.timestamp + 7)
        ctx.set_timer("clock", ctx.now + 30, Domain.PROCESSING)
        if v == 3:
            raise ValueError("three is not a step")
        if v == 4:
            ctx.cancel_timer("first")

    def process_timer(self, ctx, timer):
        if timer.domain is Domain.EVENT:
            self.last.set(self.last.get() * 2 + (timer.tag == "first"))
            ctx.produce("steps", {"user": ctx.key, "from": self.last.get(), "v": -1})
"""
_RUNS = 25


def _story(rng: random.Random) -> list[tuple[str, Any]]:
    acts: list[tuple[str, Any]] = []
    watermark = clock = 0
    for _ in range(14):
        kind = rng.choice(["hits", "hits", "clicks", "watermark", "clock"])
        if kind == "watermark":
            watermark += rng.randint(0, 15)
            acts.append((kind, watermark))
        elif kind == "clock":
            clock += rng.randint(1, 50)
            acts.append((kind, clock))
        else:
            acts.append((kind, [_record(rng, watermark) for _ in range(rng.randint(1, 4))]))
    return acts


def _record(rng: random.Random, watermark: int) -> dict[str, Any]:
    at = max(0, watermark + rng.randint(-10, 25))
    return {
        "user": rng.choice("abc"),
        "v": rng.randint(0, 5),
        "t": at,
        "id": f"{rng.randint(0, 40)}",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))]
)
def test_nothing_that_crashes_changes_anything(seed: int, tmp_path: Path) -> None:
    (tmp_path / "mixture.yaml").write_text(PIPELINE)
    (tmp_path / "steps.py").write_text(CODE)
    rng = random.Random(seed)
    acts = _story(rng)

    def tell(harness: PipelineHarness) -> None:
        for kind, what in acts:
            if kind == "watermark":
                harness.advance_watermark(what)
            elif kind == "clock":
                harness.advance_processing_time(what)
            else:
                harness.push(kind, what)
        harness.finish()

    options = {"shards": rng.choice([1, 2, 3]), "workers": rng.choice([1, 2])}
    with PipelineHarness(tmp_path / "mixture.yaml", **options) as calm:
        tell(calm)
        every = calm.units // _RUNS + 1
    assert (
        assert_survives_crashes(tmp_path / "mixture.yaml", tell, every=every, **options)
        >= _RUNS - 5
    )
