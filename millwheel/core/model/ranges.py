"""Key ranges: half-open intervals of the 64-bit hash of a key. The ranges of a computation tile the
space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from millwheel.errors import InvariantError, invariant

SPACE = 2**64  # Fixed: hashes of keys


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """``[lo, hi)`` with ``0 <= lo < hi <= 2**64``."""

    lo: int
    hi: int

    def __post_init__(self) -> None:
        if not 0 <= self.lo < self.hi <= SPACE:
            raise InvariantError(f"key range [{self.lo}, {self.hi}) is empty or outside the space")

    def __contains__(self, key_hash: int) -> bool:
        return self.lo <= key_hash < self.hi

    def overlap(self, other: KeyRange) -> KeyRange | None:
        """The intersection, None when it is empty."""
        lo, hi = max(self.lo, other.lo), min(self.hi, other.hi)
        return KeyRange(lo, hi) if lo < hi else None

    def __str__(self) -> str:
        return f"[{self.lo:016x}, {self.hi - 1:016x}]"


def tile(count: int, grain: int = 1) -> list[KeyRange]:
    """``count`` ranges of (almost) equal width that cover the whole space. Their edges are
    multiples of ``grain``, which divides the space."""
    # Else the last edge is not that of the space, and the keys above it have no shard.
    invariant(count > 0 and SPACE % grain == 0, f"{count} ranges cannot have edges at {grain}")
    edges = [SPACE // grain * i // count * grain for i in range(count + 1)]
    return [KeyRange(lo, hi) for lo, hi in pairwise(edges)]


def check_tiling(ranges: Iterable[KeyRange], what: str) -> Sequence[KeyRange]:
    """The ranges in order, or InvariantError naming ``what`` and the gap or overlap."""
    ordered = sorted(ranges)
    edge = 0
    for piece in ordered:
        if piece.lo != edge:
            raise InvariantError(
                f"{what}: {piece} does not start where its neighbour ends ({edge:016x})"
            )
        edge = piece.hi
    invariant(edge == SPACE, f"{what}: the key space above {edge:016x} has no range")
    return ordered
