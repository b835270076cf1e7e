"""How slow workers are, by their work: a machine may live and need four times as long as others for
the same work. Pure.

The service time of a shard is the time its owner takes for one of its recent records. Shards of one
node do comparable work, so a worker's **slowness** is how many times the service time of the others
its shards have: 1 where they differ by no more than measurements do. The balancer divides weights
by it. Four rules keep it honest:

- it is at least 1: small bundles cost more per record, so among sound workers the busiest has the
  least service time and is not the strongest for that. A stronger machine states that by its
  weight;
- for the same reason a worker that has little to do is never judged slower than before;
- a change counts when the reports of some seconds agree, and only if it is great: more than
  ``apart`` makes a worker slow, less than ``sound`` makes it sound again, and between them its
  slowness follows in steps of ``finer``;
- a worker may look slow because of one of its shards, whose records cost more than others. A move
  shows which: the time that a shard takes at both its owners is its own, and is no longer held
  against its owner.

A worker that has just come is judged once its caches have filled, after ``warm_us``. One that gave
all its shards away shows nothing. It is taken for sound again after ``patience_us``, and after
twice as long each time that it was not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millwheel.control.master.loads import Load
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import NodeName, ShardName, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.errors import invariant

_MOST_WAITS = 16
"""Times ``patience_us``: the longest wait before a worker that shows nothing is taken for sound."""


@dataclass(frozen=True, slots=True)
class SpeedConfig:
    """``apart``, ``sound`` and ``finer`` are ratios of service times, ``most`` is the greatest
    slowness. Below ``busy``, a share of a core, a worker has little to do. A shard with fewer
    recent ``records``, or less work on them than ``work_us``, shows nothing. With ``many`` shards
    looks are rarer: each takes some µs a shard."""

    apart: float = 1.75
    sound: float = 1.4
    finer: float = 1.2
    most: float = 8.0
    busy: float = 0.25
    records: int = 20
    work_us: float = 5_000
    steady_us: int = 2_500_000
    look_us: int = 500_000
    many: int = 10_000
    warm_us: int = 10_000_000
    patience_us: int = 60_000_000

    def __post_init__(self) -> None:
        invariant(
            1 < self.finer < self.sound < self.apart < self.most, f"the ratios of {self} must rise"
        )
        invariant(self.steady_us > 0, f"steady_us is {self.steady_us}, must be positive")


@dataclass(slots=True)
class _Seen:
    """A worker, seen first at ``since_us``: its slowness, the time of the last report it was judged
    by, how long its reports have shown another slowness (slow workers report rarely), since when
    nothing was found, and how many times ``patience_us`` that may last."""

    since_us: int
    slowness: float = 1.0
    reported_us: int = -1
    differs_us: int = 0
    silent_since_us: int | None = None
    waits: int = 1


@dataclass(slots=True)
class _Home:
    """A shard: its owner, the cost of its records relative to others of its node, the last ratio of
    its service time to that of its node, and whether its owner is yet to show one."""

    owner: WorkerName
    cost: float = 1.0
    ratio: float = 1.0
    new: bool = False


@dataclass(slots=True)
class _Evidence:
    """Ratios of the service times of one worker's shards to those of their nodes, each with its
    share of the work; when the last of them was reported, and over how long."""

    ratios: list[tuple[float, float]] = field(default_factory=list)
    busy: float = 0.0
    reported_us: int = 0
    over_us: int = 0


class Speeds:
    """The slowness of each worker, from the loads of their shards."""

    def __init__(self, config: SpeedConfig) -> None:
        self._config = config
        self._workers: dict[WorkerName, _Seen] = {}
        self._homes: dict[ShardName, _Home] = {}
        self._next_us = 0

    def slowness(self, worker: WorkerName) -> float:
        """How many times the time of the others this worker takes; 1 for one that is as quick as
        they are."""
        seen = self._workers.get(worker)
        return 1.0 if seen is None else seen.slowness

    def slow(self) -> dict[WorkerName, float]:
        """The workers that are slower than the others."""
        return {name: seen.slowness for name, seen in self._workers.items() if seen.slowness > 1}

    def look(
        self,
        tables: Collection[RangeTable],
        workers: Collection[WorkerName],
        loads: Mapping[ShardName, Load],
        weights: Mapping[WorkerName, int],
        now_us: int,
    ) -> None:
        """Judge anew. ``weights`` are stated by machines. Call it as often as you like."""
        if now_us < self._next_us:
            return
        entries = [(table.computation, entry) for table in tables for entry in table.shards]
        self._next_us = now_us + self._config.look_us * (1 + len(entries) // self._config.many)
        self._workers = {name: self._workers.get(name, _Seen(now_us)) for name in workers}
        self._follow(entries)
        evidence = self._evidence(entries, loads, weights)
        for name, seen in self._workers.items():
            self._judge(seen, evidence.get(name, _Evidence()), now_us)

    def _follow(self, entries: Iterable[tuple[NodeName, ShardEntry]]) -> None:
        before, self._homes = self._homes, {}
        for _, entry in entries:
            home = before.get(entry.shard)
            if home is None:
                home = _Home(entry.owner)
            elif entry.owner and entry.owner != home.owner:
                home = _Home(entry.owner, home.cost, home.ratio, new=True)
            self._homes[entry.shard] = home

    def _evidence(
        self,
        entries: Iterable[tuple[NodeName, ShardEntry]],
        loads: Mapping[ShardName, Load],
        weights: Mapping[WorkerName, int],
    ) -> dict[WorkerName, _Evidence]:
        times: dict[NodeName, dict[WorkerName, list[tuple[float, ShardName]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        evidence: dict[WorkerName, _Evidence] = defaultdict(_Evidence)
        for node, entry in entries:
            load = loads.get(entry.shard)
            if load is None or entry.owner not in self._workers:
                continue
            evidence[entry.owner].busy += load.busy
            if not Lease(load.token).admits(entry.token):
                continue  # it is still the report of the owner before
            if (
                load.recent_records >= self._config.records
                and load.recent_us >= self._config.work_us
            ):
                time = load.recent_us / load.recent_records * weights.get(entry.owner, 1)
                times[node][entry.owner].append((time, entry.shard))
        for by_worker in times.values():
            if len(by_worker) > 1:
                self._compare(by_worker, loads, evidence)
        return evidence

    def _compare(
        self,
        by_worker: Mapping[WorkerName, Sequence[tuple[float, ShardName]]],
        loads: Mapping[ShardName, Load],
        evidence: Mapping[WorkerName, _Evidence],
    ) -> None:
        """Compare the workers of one node with the lower median of them: of two, with the quicker
        one."""
        costs = self._homes
        usual = _lower_median(
            [
                _lower_median([time / costs[shard].cost for time, shard in each])
                for each in by_worker.values()
            ]
        )
        for worker, each in by_worker.items():
            for time, shard in each:
                home, ratio = costs[shard], time / usual
                # the move was an experiment: the rest of the ratio is the shard's own
                if home.new:
                    own = min(ratio / self.slowness(worker), home.ratio)
                    home.cost = own if own > self._config.sound else 1.0
                    home.new = False
                else:
                    home.ratio = ratio
                    load, of_worker = loads[shard], evidence[worker]
                    of_worker.ratios.append((ratio / home.cost, load.recent_us))
                    of_worker.reported_us, of_worker.over_us = max(
                        (of_worker.reported_us, of_worker.over_us), (load.at_us, load.over_us)
                    )

    def _judge(self, seen: _Seen, evidence: _Evidence, now_us: int) -> None:
        config = self._config
        if not evidence.ratios:
            self._wait(seen, now_us)
            return
        seen.silent_since_us = None
        if evidence.reported_us <= seen.reported_us or now_us - seen.since_us < config.warm_us:
            return
        seen.reported_us = evidence.reported_us
        measured = min(max(_by_work(evidence.ratios), 1.0), config.most)
        if measured < config.sound:
            measured = 1.0
        if evidence.busy < config.busy:
            measured = min(measured, seen.slowness)
        if seen.slowness == 1:
            differs = measured >= config.apart
        else:
            differs = (
                measured == 1
                or max(measured / seen.slowness, seen.slowness / measured) >= config.finer
            )
        seen.differs_us = seen.differs_us + evidence.over_us if differs else 0
        if seen.differs_us >= config.steady_us:
            seen.differs_us, seen.slowness = 0, measured
            if measured == 1:
                seen.waits = 1

    def _wait(self, seen: _Seen, now_us: int) -> None:
        """Nothing shows how slow it is: no other worker has shards of its nodes, or it has no
        work."""
        seen.differs_us = 0
        if seen.slowness == 1:
            return
        if seen.silent_since_us is None:
            seen.silent_since_us = now_us
        elif now_us - seen.silent_since_us >= seen.waits * self._config.patience_us:
            seen.slowness, seen.silent_since_us = 1.0, None
            seen.waits = min(2 * seen.waits, _MOST_WAITS)


def _lower_median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _by_work(ratios: Iterable[tuple[float, float]]) -> float:
    """The lower median of the ratios, weighted by work."""
    ranked = sorted(ratios)
    half, done = sum(work for _, work in ranked) / 2, 0.0
    for ratio, work in ranked:
        done += work
        if done >= half:
            return ratio
    return ranked[-1][0]
