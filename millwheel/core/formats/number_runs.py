"""The values of a dictionary, as they are stored: many in one entry.

A row has the partition of a value, its number there, and two words that stand for the value: the
128-bit xxh3 of a text or of bytes (under different seeds), or a whole number itself. A run holds
the rows that one bundle added to a bucket of event time, or those of several runs that became one.
Without a time to live there is one bucket for all time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from millwheel.core.formats.store_layout import NUMBERS, number8, number_from8
from millwheel.core.lazy_polars import pl
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import KeyRange
from millwheel.errors import invariant

Words = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
NumberRows = npt.NDArray[np.void]
"""Of the type ROW."""
ROW = np.dtype([("head", "<u8"), ("low", "<u8"), ("high", "<u8")])
"""``head`` is the partition in the upper bits, and the number in the lower ones."""
PARTITION_SHIFT = 48
"""Fixed: 65,536 partitions, and 2**48 numbers in each."""
_NUMBER_MASK = np.uint64((1 << PARTITION_SHIFT) - 1)
_SHIFT = np.uint64(PARTITION_SHIFT)
_BYTES_SEED = 1  # Fixed: that of bytes; text has none


def heads_of(partitions: Int64s, numbers: Int64s) -> Words:
    """The heads of rows."""
    # A number beyond its bits would run into the partition: an id that another value has.
    invariant(
        not len(numbers) or 0 <= int(numbers.min()) <= int(numbers.max()) < 1 << PARTITION_SHIFT,
        "a number of a dictionary takes more than 48 bits",
    )
    heads: Words = (partitions.astype(np.uint64) << _SHIFT) | numbers.astype(np.uint64)
    return heads


def partitions_of_heads(heads: Words) -> Int64s:
    """The partition of each head."""
    partitions: Int64s = (heads >> _SHIFT).astype(np.int64)
    return partitions


def numbers_of_heads(heads: Words) -> Int64s:
    """The number of each head in its partition."""
    numbers: Int64s = (heads & _NUMBER_MASK).astype(np.int64)
    return numbers


def words_of(values: Sequence[Any]) -> tuple[Words, Words]:
    """The two words that stand for each value: text, a whole number of 64 bits, or bytes."""
    digest = xxhash.xxh3_128_digest
    return _halves([_digest(value, digest) for value in values])


def words_of_column(values: pl.Series) -> tuple[Words, Words]:
    """:func:`words_of` of a column of text or of whole numbers, without nulls."""
    if values.dtype == pl.Int64:
        low = values.to_numpy().view(np.uint64)
        return low, np.zeros(len(low), np.uint64)
    return _halves([*map(xxhash.xxh3_128_digest, values.cast(pl.Binary).to_list())])


def _digest(value: Any, digest: Callable[..., bytes]) -> bytes:
    if type(value) is str:
        return digest(value.encode("utf-8", "surrogatepass"))
    if type(value) is int:
        return (value % 2**64).to_bytes(16, "little")
    return digest(value, _BYTES_SEED)


def _halves(digests: Sequence[bytes]) -> tuple[Words, Words]:
    words = np.frombuffer(b"".join(digests), np.dtype("<u8"))
    return np.ascontiguousarray(words[0::2]), np.ascontiguousarray(words[1::2])


def run_key(bucket_us: int, number: int, shard: str) -> bytes:
    """The key in the store of a run, under the shard that wrote it. Inheriting shards keep it, as
    with runs of ids."""
    return NUMBERS + number8(bucket_us) + number8(number) + shard.encode()


def parsed_run_key(store_key: bytes) -> tuple[int, int]:
    """The bucket (µs) and the number of a run."""
    return number_from8(store_key[1:9]), number_from8(store_key[9:17])


def rows_of(heads: Words, low: Words, high: Words) -> NumberRows:
    """Rows made of their parts."""
    rows = np.empty(len(heads), ROW)
    rows["head"], rows["low"], rows["high"] = heads, low, high
    return rows


def rows_from(run: bytes) -> NumberRows:
    """The rows of a stored run."""
    return np.frombuffer(run, ROW)


def numbers_within(
    entries: Iterable[tuple[bytes, bytes]], share: KeyRange
) -> Iterator[tuple[bytes, bytes]]:
    """Stored runs with the rows alone whose partitions lie in ``share``."""
    in_share: dict[int, bool] = {}
    for store_key, run in entries:
        rows = rows_from(run)
        partitions = partitions_of_heads(rows["head"])
        different = np.unique(partitions).tolist()
        for partition in different:
            if partition not in in_share:
                in_share[partition] = key_hash(partition) in share
        own_rows = rows[
            np.isin(partitions, [partition for partition in different if in_share[partition]])
        ]
        if len(own_rows):
            yield store_key, own_rows.tobytes()
