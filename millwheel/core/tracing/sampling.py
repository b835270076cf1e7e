"""Which records without a trace of their own get one. It is a function of their numbers or ids, so
that a record that is read again is chosen again, under the same trace."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

_SPACE = 1 << 64  # Fixed: values of a hash
_ODD, _MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9  # Fixed: the constants of splitmix64


def chosen_numbers(sample: float, channel: str, numbers: npt.NDArray[np.int64]) -> list[int]:
    """Those of the records of a channel that are sampled."""
    if sample <= 0 or not len(numbers):
        return []
    if sample >= 1:
        return list(numbers.tolist())
    seed = np.uint64(xxhash.xxh3_64_intdigest(channel.encode()))
    # Mixed in an array: a hash of each number alone would take longer than to read a record in
    # columns.
    mixed = (numbers.astype(np.uint64) + seed) * np.uint64(_ODD)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(31)
    return list(numbers[mixed < np.uint64(int(sample * _SPACE))].tolist())


def is_chosen(sample: float, channel: str, identity: str) -> bool:
    """Whether a record with an id is sampled."""
    if sample <= 0:
        return False
    return sample >= 1 or xxhash.xxh3_64_intdigest(f"{channel}\0{identity}".encode()) < int(
        sample * _SPACE
    )


def trace_id(pipeline: str, channel: str, identity: int | str) -> int:
    """The id of a sampled record's trace."""
    return xxhash.xxh3_128_intdigest(f"{pipeline}\0{channel}\0{identity}".encode()) or 1
