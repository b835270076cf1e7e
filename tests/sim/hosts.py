"""Hosts: groups of workers that die together, and what the master must make of them."""

from __future__ import annotations

import random
from collections.abc import Collection

from millwheel.control.master.effects import Effect, WriteRangeTable
from millwheel.control.master.events import Event
from millwheel.control.master.state import MasterState
from tests.sim.kernel import Failure

HOST = "host"
"""The fault that kills all workers of a host."""
_FROM = 60_000  # earlier seeds, which regressions and deliberate mistakes name, keep their stories


def hosts_of(seed: int, kinds: Collection[str]) -> int:
    """How many hosts the workers of a cluster share; 0: each has one of its own."""
    rng = random.Random(f"hosts of {seed}")
    shared = rng.random() < 0.25 and seed >= _FROM
    return rng.choice([2, 2, 3]) if set(kinds) == {HOST} or (shared and HOST in kinds) else 0


class WatchedMaster(MasterState):
    """A master whose choices are checked against what it knows: no standby shares the host of its
    owner as long as there is a worker on another one."""

    def handle(self, event: Event) -> list[Effect]:
        effects = super().handle(event)
        for effect in effects:
            if isinstance(effect, WriteRangeTable):
                self._check(effect)
        self.validate()
        return effects

    def _check(self, write: WriteRangeTable) -> None:
        hosts = self._membership.hosts_of_eligible()
        before = {entry.shard: entry for table in self.tables for entry in table.shards}
        for entry in write.table.shards:
            old = before.get(entry.shard)
            if (
                not entry.standby
                or entry.owner not in hosts
                or (old is not None and old.standby == entry.standby)
            ):
                continue
            home = hosts[entry.owner]
            if hosts.get(entry.standby) == home and any(host != home for host in hosts.values()):
                raise Failure(
                    f"a standby outlives its owner's host: {entry.standby} is to follow"
                    f" {entry.shard} of {entry.owner} on the same host {home}, and the workers are"
                    f" on {sorted(set(hosts.values()))}",
                    (entry.shard, entry.owner),
                )
