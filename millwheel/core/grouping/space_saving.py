"""Space-Saving: the frequent keys of a stream, counted in a fixed number of pairs (Metwally,
Agrawal, El Abbadi 2005).

A table of our own rather than the frequent items of ``datasketches``: those purge at a sampled
median, so the remaining keys depend on the library's version. Here a replay finds the same keys in
the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from millwheel.core.model.keys import Key


@dataclass(frozen=True, slots=True)
class Frequent:
    """A counted key: ``count - error <= true count <= count``."""

    key: Key
    count: int
    error: int


class SpaceSaving:
    """Counts with ``ceil(1/epsilon)`` pairs: holds every key that has more than a share epsilon of
    all offers.

    >>> sketch = SpaceSaving(epsilon=0.5)
    >>> for key in "aabac":
    ...     sketch.offer(key)
    >>> [(found.key, found.count, found.error) for found in sketch.above(0.5)]
    [('a', 3, 0)]
    """

    def __init__(self, epsilon: float) -> None:
        if not 0 < epsilon <= 1:
            raise ValueError(f"epsilon is {epsilon}: use a number above 0 and up to 1")
        self.pairs = ceil(1 / epsilon)
        self.offered = 0
        self._counts: dict[Key, int] = {}
        self._errors: dict[Key, int] = {}
        self._by_count: dict[int, dict[Key, None]] = {}
        """The keys of each count, oldest first: offers of one make every step O(1)."""
        self._least = 0

    def offer(self, key: Key) -> None:
        """Count one more of a key."""
        self.offered += 1
        count = self._counts.get(key)
        if count is None:
            count = self._room_for(key)
        else:
            self._leave(key, count)
        self._counts[key] = count + 1
        self._by_count.setdefault(count + 1, {})[key] = None

    def __iter__(self) -> Iterator[Frequent]:
        """All keys held, the most frequent first; among equals, the one that reached its count
        first."""
        for count in sorted(self._by_count, reverse=True):
            yield from (Frequent(key, count, self._errors[key]) for key in self._by_count[count])

    def above(self, share: float) -> list[Frequent]:
        """The keys whose counts exceed a share of all offered keys. If share >= epsilon, no such
        key is missing."""
        return [each for each in self if each.count > share * self.offered]

    def _room_for(self, key: Key) -> int:
        """The count that a new key begins with: that of the key it replaces, which may have been as
        frequent."""
        if len(self._counts) < self.pairs:
            self._least = 1
            self._errors[key] = 0
            return 0
        count = self._least
        replaced = next(iter(self._by_count[count]))
        self._leave(replaced, count)
        del self._counts[replaced], self._errors[replaced]
        self._errors[key] = count
        return count

    def _leave(self, key: Key, count: int) -> None:
        same = self._by_count[count]
        del same[key]
        if not same:
            del self._by_count[count]
            if count == self._least:
                # The next count of the key that leaves, or of the one that replaces it.
                self._least = count + 1
