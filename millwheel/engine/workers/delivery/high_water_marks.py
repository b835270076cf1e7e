"""The high-water marks of a channel: the numbers up to which its records have been applied, which
may differ by key.

A shard has one high-water mark per channel. Two shards that become one have two, because the lower
half of the keys may have applied more or less than the upper half. A lane sends in the order of
numbers, over all keys of its target. So the next applied record raises every mark to its number,
and the first record beyond the highest mark makes them one again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from millwheel.core.columns.batch import AnyBatch, ColumnBatch, key_list
from millwheel.core.formats.store_layout import pack
from millwheel.core.model.damage import checked
from millwheel.core.model.keys import KeyHash, key_hash
from millwheel.core.model.names import ChannelName
from millwheel.core.model.ranges import KeyRange
from millwheel.errors import InvariantError, invariant


@dataclass(frozen=True, slots=True)
class HighWaterMarks:
    """High-water marks by sub-range, which tile the range of the shard in ascending order."""

    pieces: tuple[tuple[KeyRange, int], ...]

    @property
    def lowest(self) -> int:
        """Everything up to here has been applied."""
        return min(mark for _, mark in self.pieces)

    @property
    def highest(self) -> int:
        """Beyond this nothing has been applied."""
        return max(mark for _, mark in self.pieces)

    def raised(self, seq: int) -> HighWaterMarks | int:
        """The marks after a delivery that ends with ``seq``; a plain number once they are all the
        same."""
        if seq >= self.highest:
            return seq
        # Every mark rises, since a lane sends all keys in the order of numbers, and none goes back:
        # the records between would be applied twice
        # (test_a_delivery_raises_every_mark_to_its_end_and_one_beyond_all_makes_them_one).
        return HighWaterMarks(tuple((piece, max(mark, seq)) for piece, mark in self.pieces))

    def fresh(self, batch: AnyBatch, hashed: KeyHash = key_hash) -> AnyBatch:
        """The records of a numbered ``batch`` that were not applied before."""
        batch = batch.after(self.lowest)
        if not len(batch) or batch.seqs[0] > self.highest:
            return batch
        if isinstance(batch, ColumnBatch):
            pairs = zip(key_list(batch.keys), batch.seqs.tolist(), strict=True)
            mask = [self._is_fresh(k, s, hashed) for k, s in pairs]
            return batch.where(np.array(mask, np.bool_))
        # Between the lowest mark and the highest, only the key decides: both halves send under the
        # same numbers.
        rows = enumerate(zip(batch.keys, batch.seqs, strict=True))
        fresh = [i for i, (k, s) in rows if self._is_fresh(k, s, hashed)]
        return batch.pick(fresh)

    def _is_fresh(self, key: Any, seq: int, hashed: KeyHash) -> bool:
        if seq > self.highest:
            return True
        position = hashed(key)
        return seq > next((mark for piece, mark in self.pieces if position in piece), 0)


def joined_high_water_marks(
    parts: Sequence[tuple[KeyRange, HighWaterMarks | int]],
) -> HighWaterMarks | int:
    """The high-water marks of a shard whose range consists of these ranges, each with its own
    marks."""
    pieces: list[tuple[KeyRange, int]] = []
    for piece, piece_marks in parts:
        if isinstance(piece_marks, int):
            pieces.append((piece, piece_marks))
            continue
        shares = [(piece.overlap(inner), mark) for inner, mark in piece_marks.pieces]
        pieces += [(share, mark) for share, mark in shares if share is not None]
    pieces.sort(key=lambda pair: pair[0])
    # A key in no piece has the mark 0: all that is sent again for it would be applied again. Stored
    # marks are checked in the same way when they are read.
    invariant(
        all(left.hi == right.lo for (left, _), (right, _) in pairwise(pieces)),
        f"the marks of a channel do not follow each other: {pieces}",
    )
    # The marks stay as they are, half by half. Their maximum would lose records of the one half,
    # their minimum apply those of the other twice (mutation marks_of_a_merge_made_one, found within
    # ten seeds under "merge reshard").
    marks = {mark for _, mark in pieces}
    return pieces[0][1] if len(marks) == 1 else HighWaterMarks(tuple(pieces))


def encode_high_water_marks(marks: HighWaterMarks | int) -> bytes:
    """The stored form for a channel: a number, or a list of (first hash, last hash, number)."""
    if isinstance(marks, int):
        return pack(marks)
    return pack([(piece.lo, piece.hi - 1, mark) for piece, mark in marks.pieces])


def decode_high_water_marks(data: bytes) -> HighWaterMarks | int:
    """The inverse of :func:`encode_high_water_marks`. Raises CorruptionError for other bytes."""
    return _decode_high_water_marks(data)


def _marks_of(data: bytes) -> HighWaterMarks | int:
    form = _decode_form(data)
    if isinstance(form, int):
        return form
    pieces = tuple((KeyRange(lo, last + 1), mark) for lo, last, mark in form)
    if not pieces or any(left.hi != right.lo for (left, _), (right, _) in pairwise(pieces)):
        raise ValueError("the sub-ranges do not follow each other")
    return HighWaterMarks(pieces)


_decode_form = msgspec.msgpack.Decoder(int | list[tuple[int, int, int]]).decode
_decode_high_water_marks = checked(_marks_of, "the marks of a channel")


class AppliedHighWaterMarks:
    """The marks of each channel for the next commit. Only marks that differ by sub-range have to be
    kept for it."""

    def __init__(self, marks: Mapping[str, HighWaterMarks | int]) -> None:
        self._uneven = {
            channel: mark for channel, mark in marks.items() if isinstance(mark, HighWaterMarks)
        }
        self._last = {
            channel: mark.lowest if isinstance(mark, HighWaterMarks) else mark
            for channel, mark in marks.items()
        }

    def after(self, channel: ChannelName, last: int) -> bytes:
        """The stored form for a channel that has been applied up to ``last``."""
        # With a lower mark in the store, the next owner would apply the records between again.
        if last < self._last.get(channel, 0):
            raise InvariantError(
                f"the mark of {channel} would fall from {self._last[channel]} to {last}"
            )
        self._last[channel] = last
        uneven = self._uneven.pop(channel, None)
        raised = last if uneven is None else uneven.raised(last)
        if isinstance(raised, HighWaterMarks):
            self._uneven[channel] = raised
        return encode_high_water_marks(raised)
