"""Groupings by the measured distribution of the keys, which count records, not time: D-Choices and
W-Choices, whose hot keys get more than two instances, several or all of them; DKG; and DAG."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from millwheel.core.grouping.base import Grouping
from millwheel.core.grouping.tables import EpochTable, Measured, hashed
from millwheel.core.model.keys import Key

_BUCKETS_PER_INSTANCE = 8
"""Enough to even out keys that are not hot, few enough for a table that is committed each
window."""
_REPLICA_PENALTY = 0.25
"""The price of one more copy of a key's state, as a share of a mean instance's load."""


class DistributionKey(Grouping):
    """DKG: hot keys and buckets of all others go, the heaviest first, to the instance with the
    least so far. All records of a key go to one instance."""

    name = "dkg"
    counts_keys = True

    def next_table(self, measured: Measured) -> EpochTable:
        hot = [(float(each.count), each.key) for each in self._hot()]
        hot_keys = {key for _, key in hot}
        weights = list(self._bucket_counts)
        for each in self._frequent:
            if each.key in hot_keys:
                weights[self._bucket(each.key)] -= each.count - each.error
        heavy: list[tuple[float, int, Key | None]] = [(count, -1, key) for count, key in hot]
        heavy += [(float(weight), bucket, None) for bucket, weight in enumerate(weights)]
        loads = [0.0] * self.table.instances
        routes: dict[Key, tuple[int, ...]] = {}
        buckets = [0] * len(weights)
        for weight, bucket, key in sorted(heavy, key=lambda each: -each[0]):
            chosen = loads.index(min(loads))
            loads[chosen] += max(weight, 0.0)
            if bucket < 0:
                routes[key] = (chosen,)
            else:
                buckets[bucket] = chosen
        return EpochTable(
            self.table.epoch + 1, self._last + 1, self.table.prices, routes, tuple(buckets)
        )

    def count(self, keys: Sequence[Key]) -> None:
        super().count(keys)
        for key in keys:
            self._bucket_counts[self._bucket(key)] += 1

    def _candidates(self, key: Key) -> tuple[int, ...]:
        route = self.table.routes.get(key)
        if route is not None:
            return route
        bucket = self._bucket(key)
        return (
            self.table.buckets[bucket] if self.table.buckets else bucket % self.table.instances,
        )

    def _bucket(self, key: Key) -> int:
        return hashed(key, 0, _BUCKETS_PER_INSTANCE * self.table.instances)

    def begin_window(self) -> None:
        super().begin_window()
        self._bucket_counts = [0] * (_BUCKETS_PER_INSTANCE * self.table.instances)


class DistributionAware(Grouping):
    """DAG: a hot key gets the instances that cost least, where an imbalance of counts and one more
    copy of its state both have a price; a record goes to the one of them with the fewest records.
    Other keys are hashed."""

    name = "dag"
    counts_keys = True

    def next_table(self, measured: Measured) -> EpochTable:
        hot = self._hot()
        offered = self._frequent.offered or 1
        mean = offered / self.table.instances
        cold = 1 - min(1.0, sum(each.count for each in hot) / offered)
        loads = [cold * mean] * self.table.instances
        routes = {each.key: self._spread(each.count, loads, mean) for each in hot}
        return EpochTable(self.table.epoch + 1, self._last + 1, self.table.prices, routes)

    def _spread(self, count: int, loads: list[float], mean: float) -> tuple[int, ...]:
        """The instances of one hot key; ``loads`` gains its records, each part where it costs
        least."""
        part = mean / 10
        chosen: dict[int, None] = {}
        remaining = float(count)
        while remaining > 0:
            amount = min(part, remaining)
            best = min(
                self._all,
                key=lambda i: loads[i] / mean + (0.0 if i in chosen else _REPLICA_PENALTY),
            )
            loads[best] += amount
            chosen[best] = None
            remaining -= amount
        return tuple(chosen)

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self.table.routes.get(key) or (hashed(key, 0, self.table.instances),)


class WorkerChoices(Grouping):
    """W-Choices: a hot key goes to whichever of all instances got the fewest records, another key
    to one of two."""

    name = "w-choices"
    counts_keys = True

    def next_table(self, measured: Measured) -> EpochTable:
        routes = {
            hot.key: self._route(hot.key, hot.count / self._frequent.offered) for hot in self._hot()
        }
        return EpochTable(self.table.epoch + 1, self._last + 1, self.table.prices, routes)

    def _route(self, key: Key, share: float) -> tuple[int, ...]:
        return self._all

    def _candidates(self, key: Key) -> tuple[int, ...]:
        return self.table.routes.get(key) or self._two(key)


class DistributionChoices(WorkerChoices):
    """D-Choices: a hot key gets as many instances as its share needs, and one more, by as many hash
    functions."""

    name = "d-choices"

    def _route(self, key: Key, share: float) -> tuple[int, ...]:
        count = min(self.table.instances, max(2, ceil(share * self.table.instances) + 1))
        instances: dict[int, None] = {}
        seed = 0
        while len(instances) < count:
            instances[hashed(key, seed, self.table.instances)] = None
            seed += 1
        return tuple(instances)
