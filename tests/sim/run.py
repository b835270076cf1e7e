"""One simulated run: a safety phase under faults, then a liveness phase in which everything must drain."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.workloads import Numbers
from tests.sim.world import START_US, Failure, World

ALL_FAULTS = frozenset({"kill", "pause", "cut", "injector", "master", "false-alarm"})
_SAFETY_US = 6_000_000
_LIVENESS_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went. The same seed gives the same ``trace_hash``."""

    trace_hash: str
    simulated_s: float
    story: tuple[str, ...]


def simulate(seed: int, faults: frozenset[str] = ALL_FAULTS) -> Result:
    """Run one seed. Raises Failure, with the ``story`` so far, when an invariant does not hold."""
    workload = Numbers(seed)
    world = World(seed, workload.assembly, workers=1 + seed % 3, faults=faults)
    try:
        world.plan_faults(_SAFETY_US)
        world.run(lambda: False, _SAFETY_US)
        if not world.run(world.drained, _LIVENESS_US):
            raise Failure(f"not drained {_LIVENESS_US // 1_000_000} s after the last fault: {stuck(world)}")
        world.run(lambda: False, 200_000)
        workload.check()
    except Failure as ex:
        ex.story = tuple(world.story)  # type: ignore[attr-defined]
        raise
    return Result(world.trace_hash(), (world.now - START_US) / 1e6, tuple(world.story))


def stuck(world: World) -> str:
    """Who holds which watermark."""
    if world.injector is None:
        return "there is no injector"
    return "; ".join(
        f"{view.node} at {view.watermark_us} by {view.holder_shard} ({view.holder}), silent {view.silent_shards}"
        for view in world.injector.view()
        if view.watermark_us < 2**63 - 1
    )
