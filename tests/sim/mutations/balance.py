"""Deliberate mistakes in what is moved for the load's sake."""

from __future__ import annotations

from typing import Any

from millwheel.control.master.balancing import Balancer
from millwheel.control.master.speeds import Speeds
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=1, faults="none", workload="straggling")
def slow_workers_are_moved_from_like_busy_ones() -> Context:
    """Nobody is found slow: who takes four times as long only looks busy."""
    return replaced(Speeds, "_judge", lambda self, seen, evidence, now_us: None)


@mistake(within=1, faults="none", workload="straggling", first=2)
def what_was_given_away_comes_back_as_quickly() -> Context:
    """A worker that is sound again gets its shards back at once, and is slow again soon."""

    def looks(self: Any, step: Any, cluster: Any, relieving: bool) -> int:
        found: int = self.config.certain
        return found

    return replaced(Balancer, "_looks", looks)
