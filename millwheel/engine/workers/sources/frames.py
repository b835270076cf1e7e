"""Sorts columns that a source has read: the fast path for input without problems.

Every question of :class:`.sorting.Sorting` is asked of a whole column. When any record needs a
closer look, the answer is None and the same input is read as rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millwheel.connect.sources.base import FrameChunk
from millwheel.core.columns.batch import AnyBatch, ColumnBatch
from millwheel.core.columns.clean import is_clean
from millwheel.core.instants.numbers import are_plain
from millwheel.core.lazy_polars import pl
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.spec import StreamSpec
from millwheel.core.windows.lateness import is_too_far, late_mask
from millwheel.engine.workers.delivery.consumer_keys import Keyless
from millwheel.engine.workers.delivery.timestamps import TimesOf

_FIRST_BYTES = 1 << 20  # of a read while little comes
_MOST_BYTES = 1 << 23  # of a read while there is always more
_GROWTH = 4  # how much more each full read brings

Split = Callable[
    [ColumnBatch, npt.NDArray[np.bool_] | None],
    tuple[list[tuple[NodeName, AnyBatch]], list[Keyless]],
]
"""(records, which of them are late, if any) -> the batches of the consumers, and the records
without a key."""


@dataclass(slots=True)
class ReadSize:
    """How much to read at once (bytes): little while little comes, more and more while reads are
    full."""

    bytes: int = _FIRST_BYTES

    def note(self, was_full: bool) -> None:
        """Note whether a read was full."""
        self.bytes = min(self.bytes * _GROWTH, _MOST_BYTES) if was_full else _FIRST_BYTES


@dataclass(frozen=True, slots=True)
class SortedFrame:
    """A read as batches for the consumers, and its effect on the partition's time."""

    batches: list[tuple[NodeName, AnyBatch]]
    late: int
    max_timestamp: int


def sort_frame(
    read: FrameChunk,
    spec: StreamSpec,
    needs: frozenset[str],
    max_timestamp: int,
    now_us: int,
    split: Split,
    partition: str = "",
    times: TimesOf | None = None,
) -> SortedFrame | None:
    """The records of a ``partition``, which is their key for consumers without one of their own.
    ``times``: those of arrival, where these are the timestamps. None when the input must be looked
    at record by record."""
    if read.rejects or not is_clean(
        read.frame, {name: spec.fields[name] for name in sorted(needs)}
    ):
        return None
    if not len(read):
        return SortedFrame([], 0, max_timestamp)
    stamps = _stamps(read, spec) if times is None else np.asarray(times(read.positions), np.int64)
    if stamps is None:
        return None
    highest = int(stamps.max())
    if is_too_far(highest, now_us, spec.max_future_us):
        return None
    keys = pl.Series("key", [partition], pl.String).new_from_index(0, len(read))
    ids = read.frame[spec.id] if spec.id else None
    batch = ColumnBatch(spec.name, read.positions, stamps, keys, read.frame, now_us, ids)
    late = late_mask(stamps, max_timestamp, spec.max_delay_us)
    count = int(np.count_nonzero(late))
    batches, keyless = split(batch, late if count else None)
    return None if keyless else SortedFrame(batches, count, max(max_timestamp, highest))


def _stamps(read: FrameChunk, spec: StreamSpec) -> npt.NDArray[np.int64] | None:
    """The timestamps by their field; None when each must be looked at."""
    stamps: npt.NDArray[np.int64] = read.frame[spec.timestamp].to_numpy()
    if not are_plain(
        int(stamps.min()), int(stamps.max()), spec.timestamp_unit_us, spec.states_unit
    ):
        return None
    return stamps if spec.timestamp_unit_us == 1 else stamps * spec.timestamp_unit_us
