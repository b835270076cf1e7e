"""External ids as they are stored: the marks of many ids in one entry.

A mark is the hash of the key (8 bytes, big-endian) and the 128-bit digest of stream, key and id. A
run holds the marks that one bundle added to a bucket of event time, or those of several runs that
became one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from millwheel.core.formats.store_layout import RUNS, number8
from millwheel.core.model.ranges import KeyRange

Words = npt.NDArray[np.uint64]
"""One half of the digest of each id."""
Marks = npt.NDArray[np.void]
"""Of the type MARK."""
MARK = np.dtype([("head", ">u8"), ("low", "<u8"), ("high", "<u8")])


def marks_of(heads: Sequence[int], digests: Sequence[bytes]) -> Marks:
    """Marks of ids, from the hashes of their keys and their digests."""
    words = np.frombuffer(b"".join(digests), np.dtype("<u8"))
    marks = np.empty(len(digests), MARK)
    marks["head"], marks["low"], marks["high"] = (
        np.array(heads, np.uint64),
        words[0::2],
        words[1::2],
    )
    return marks


def run_key(bucket_us: int, number: int, shard: str) -> bytes:
    """The key in the store of a run of the bucket that begins at ``bucket_us``, under the shard
    that wrote it. Inheriting shards keep it: a later owner inherits once more, perhaps without
    forgotten runs, and must find the same keys."""
    return RUNS + number8(bucket_us) + number8(number) + shard.encode()


def marks_from(run: bytes) -> Marks:
    """The marks of a stored run."""
    return np.frombuffer(run, MARK)


def runs_within(
    entries: Iterable[tuple[bytes, bytes]], share: KeyRange
) -> Iterator[tuple[bytes, bytes]]:
    """Stored runs with the marks alone whose keys lie in ``share``."""
    lo, last = np.uint64(share.lo), np.uint64(share.hi - 1)
    for store_key, run in entries:
        marks = marks_from(run)
        heads = marks["head"]
        own_marks = marks[(heads >= lo) & (heads <= last)]
        if len(own_marks):
            yield store_key, own_marks.tobytes()
