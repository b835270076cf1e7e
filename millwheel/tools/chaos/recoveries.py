"""The time to recover from each fault, from observations of the cluster. Pure: "now" is an
argument.

Three moments follow a fault, each counted from it, in seconds:

    detected       a worker's journal is sealed, or it is not a member any more; a leader leads no
    more reassigned     all shards of the worker have another owner; another leader leads
    first output   the first durable commit of one of these shards under its new owner; for a
    service, which owns no
                   shards, the first durable commit of any shard: the work goes on without it
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from millwheel.core.model.lease import Lease
from millwheel.core.model.names import ShardName, Token
from millwheel.core.model.range_table import RangeTable
from millwheel.tools.chaos.plan import Fault, Target


@dataclass(slots=True)
class Recovery:
    """One fault. ``victims`` are the workers (by incarnation) or the leader (by name) that it hit,
    ``tokens`` the lease tokens of the shards that they owned. None: not seen (yet)."""

    target: Target
    fault: Fault
    at_s: float
    victims: frozenset[str]
    tokens: Mapping[ShardName, Token]
    detected_s: float | None = None
    reassigned_s: float | None = None
    first_output_s: float | None = None

    @property
    def of_ranges(self) -> bool:
        """Whether shards must find another owner."""
        return self.target in (Target.WORKERS, Target.HOSTS, Target.EXECUTORS)

    @property
    def followed(self) -> bool:
        """Whether there is more to see."""
        return self.first_output_s is None or (bool(self.victims) and self.reassigned_s is None)

    @property
    def settled(self) -> bool:
        """Whether nothing more can be waited for: a worker that owned nothing leaves no work."""
        return not self.followed or (self.of_ranges and not self.tokens)


@dataclass(slots=True)
class Recoveries:
    """All faults of a run, and the last view of the cluster: owners by shard, and leaders by
    target."""

    tables: dict[str, RangeTable] = field(default_factory=dict)
    leaders: dict[Target, frozenset[str]] = field(default_factory=dict)
    faults: list[Recovery] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    """All workers that have been declared dead so far: those of a host are one by one."""

    def on_fault(
        self, target: Target, fault: Fault, workers: Collection[str], now_s: float
    ) -> Recovery:
        """A fault has hit these workers, or, if it is a service, its leader."""
        leaders = self.leaders.get(target, frozenset())
        entries = [
            entry
            for table in self.tables.values()
            for entry in table.shards
            if entry.owner in workers
        ]
        tokens = {entry.shard: entry.token for entry in entries}
        recovery = Recovery(target, fault, now_s, frozenset(workers) or leaders, tokens)
        self.faults.append(recovery)
        return recovery

    def outlived(self, victims: Collection[str]) -> None:
        """A pause or a partition is over. If it was too short to be noticed, there is nothing to
        recover."""
        for fault in self.faults:
            if (
                fault.fault is not Fault.KILL
                and fault.victims == frozenset(victims)
                and fault.detected_s is None
            ):
                self.faults.remove(fault)
                return

    @property
    def followed(self) -> list[Recovery]:
        """The faults whose recovery is still observed."""
        return [fault for fault in self.faults if fault.followed]

    def settled(self, now_s: float, patience_s: float) -> bool:
        """Whether all faults of the last ``patience_s`` have been recovered from."""
        return all(fault.settled or now_s - fault.at_s > patience_s for fault in self.faults)

    def owns(self, workers: Collection[str]) -> bool:
        """Whether any of these owns a shard."""
        return any(
            entry.owner in workers for table in self.tables.values() for entry in table.shards
        )

    @property
    def unsealed(self) -> set[str]:
        """Workers that have been hit, but not been declared dead yet."""
        return {
            name
            for fault in self.faults
            if fault.of_ranges and fault.detected_s is None
            for name in fault.victims
        }

    def gone(self, workers: Collection[str], now_s: float) -> None:
        """These have been declared dead."""
        self.dead |= set(workers)
        for fault in self.faults:
            if fault.of_ranges and fault.victims and fault.victims <= self.dead:
                _detected(fault, now_s)

    def led(self, target: Target, names: Collection[str], now_s: float) -> None:
        """These lead a service."""
        leaders = self.leaders[target] = frozenset(names)
        for fault in self.faults:
            if fault.target is target and fault.victims and not fault.victims & leaders:
                _detected(fault, now_s)
                if leaders and fault.reassigned_s is None:
                    fault.reassigned_s = now_s - fault.at_s

    def table(self, table: RangeTable, now_s: float) -> None:
        """A range table has changed."""
        self.tables[table.computation] = table
        for fault in self.followed:
            if fault.tokens and fault.reassigned_s is None and self._all_served(fault):
                _detected(fault, now_s)
                fault.reassigned_s = now_s - fault.at_s

    def committed(self, shard: ShardName, token: Token, now_s: float) -> None:
        """A commit of a shard is durable."""
        for fault in self.faults:
            counts = not fault.of_ranges or Lease(token).outlived(fault.tokens.get(shard, token))
            if counts and fault.first_output_s is None:
                fault.first_output_s = now_s - fault.at_s

    def _all_served(self, fault: Recovery) -> bool:
        """Shards that were split or merged away meanwhile count as served: others have their
        ranges."""
        entries = {entry.shard: entry for table in self.tables.values() for entry in table.shards}
        now = [
            (entries[shard], Lease(token))
            for shard, token in fault.tokens.items()
            if shard in entries
        ]
        return all(
            entry.owner not in ("", *fault.victims) and lost.is_behind(entry.token)
            for entry, lost in now
        )


def _detected(fault: Recovery, now_s: float) -> None:
    if fault.detected_s is None:
        fault.detected_s = now_s - fault.at_s


def quantile(samples: Sequence[float], share: float) -> float | None:
    """The smallest sample that at least that share of all samples does not exceed; None when there
    are none."""
    if not samples:
        return None
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]
