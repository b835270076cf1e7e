"""The basis of an epoch's decisions: a table, and the measurements of a window, from which the next
table is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import xxhash

from millwheel.core.model.keys import Key, key_bytes

_hash = xxhash.xxh3_64_intdigest
_SPACE = float(2**64)


class Network(IntEnum):
    """The distance of an instance from the sender; the nearest is the least."""

    PROCESS = 0
    HOST = 1
    RACK = 2
    ELSEWHERE = 3


LATENCY_US = {
    Network.PROCESS: 0.1,
    Network.HOST: 20.0,
    Network.RACK: 200.0,
    Network.ELSEWHERE: 350.0,
}
"""Table 1 of the paper on time-aware grouping."""


@dataclass(frozen=True, slots=True)
class EpochTable:
    """The routing of one epoch, committed before the first record that it routes.

    ``prices`` are the costs of one record at each instance, in any unit: a load is a price times a
    count. ``routes`` holds the candidates of single keys; ``buckets`` the instance of each bucket
    of the other keys' hashes, where there are buckets.
    """

    epoch: int
    first: int
    """The position of the first record of the epoch."""
    prices: tuple[float, ...]
    routes: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)
    buckets: tuple[int, ...] = ()

    @property
    def instances(self) -> int:
        """The number of instances."""
        return len(self.prices)


@dataclass(frozen=True, slots=True)
class Measured:
    """The means of a window's acks for each instance; None where nothing was acked.

    ``completion_us`` is ack minus send. ``alone_us`` is ack minus send, or minus the ack before it
    where that came later: a record's own part of the time, without the wait behind earlier records
    of the same sender.
    """

    completion_us: tuple[float | None, ...]
    alone_us: tuple[float | None, ...] = ()
    network: tuple[Network, ...] = ()
    """The present distances of the instances; empty if they are as before."""


def first_table(instances: int) -> EpochTable:
    """The table before any measurement: all instances cost the same."""
    if instances < 1:
        raise ValueError(f"{instances} instances: at least one is needed")
    return EpochTable(0, 0, (1.0,) * instances)


def fitting(table: EpochTable | None, instances: int) -> EpochTable:
    """The table, or the first one where there is none for so many instances."""
    return table if table is not None and table.instances == instances else first_table(instances)


def hashed(key: Key, seed: int, instances: int) -> int:
    """The instance of a key by one of a family of independent hash functions."""
    return _hash(key_bytes(key), seed) % instances


def draw(*about: int | Key) -> float:
    """A pseudo-random number in [0, 1), which is a function of its arguments."""
    return _hash(key_bytes(about)) / _SPACE


def imbalance(loads: Sequence[float]) -> float:
    """Formula 2: how far the greatest load is above the mean, as a share of the mean."""
    mean = sum(loads) / len(loads)
    return (max(loads) - mean) / mean if mean else 0.0
