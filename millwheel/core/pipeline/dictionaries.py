"""Dictionaries: which partition a value belongs to, and the id of a number in a partition.

The number of partitions is fixed for ever, and the partition of a value is a function of the value
alone. Each partition counts its own values from 0. So no two partitions ever give one id twice,
whatever shard has them and however often they are split, moved or merged. The ids are dense over
all partitions together, which bitmaps like best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from millwheel.core.pipeline.skew import instance_of, instances_of
from millwheel.errors import RecordError

MOST_PARTITIONS = 1 << 16
"""A partition is a key with a counter of its own; more of them spread nothing better."""
TTL_PARTS = 8  # of a time to live: a value is written so often while it is seen all the time


def partition_of(value: Any, partitions: int) -> int:
    """The partition of a value. Raises RecordError for what is neither text, a whole number nor
    bytes."""
    kind = type(value)
    if kind is str:
        return int(xxhash.xxh3_64_intdigest(value.encode("utf-8", "surrogatepass"))) % partitions
    if kind is int and -(2**63) <= value < 2**63:
        return instance_of(value, partitions)
    if kind is bytes:
        return int(xxhash.xxh3_64_intdigest(b"\0" + value)) % partitions
    text = repr(value)[:100]
    raise RecordError(
        f"a dictionary needs text, a whole number of 64 bits or bytes, not {kind.__name__} {text}"
    )


def partitions_of_text(values: Sequence[str], partitions: int) -> list[int]:
    """:func:`partition_of` each."""
    digest = xxhash.xxh3_64_intdigest
    return [digest(value.encode()) % partitions for value in values]


def partitions_of_numbers(values: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int64]:
    """:func:`partition_of` each."""
    return instances_of(values, partitions)


def ids_of(
    partitions: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.int64]:
    """The ids of the values with these numbers in their partitions; there are ``count``
    partitions."""
    return partitions + count * numbers


def partitioned(extract: Callable[[Any], Any], partitions: int) -> Callable[[Any], int]:
    """The key extractor of a dictionary: the partition of what ``extract`` reads."""
    return lambda value: partition_of(extract(value), partitions)
