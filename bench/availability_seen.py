"""What became visible when, second by second and range by range, from what the sink of a run
noted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise
from pathlib import Path

import msgspec

from millwheel.core.model.keys import key_hash

RANGES = 16
"""Into how many equal ranges the keys are cut, whatever shards there were."""
AVAILABLE_S = 1.0
"""A second counts when every record that was made in it became visible within this time."""

Line = tuple[float, list[tuple[int, int, float]]]
"""(seen at, [(key, number of the record among those of its key, made at)]), s since 1970."""


@dataclass(slots=True)
class Seen:
    """``worst`` is, of each second and each range, the longest way of a record made in it to its
    first sight; ``moments`` are the times at which a range showed something."""

    worst: dict[int, list[float]]
    moments: list[list[float]]
    records: dict[int, int]


def lines(folder: Path) -> Iterator[Line]:
    """All that was noted, in order of time. The last line before a kill may be torn."""
    return merge(
        *(_lines_of(path) for path in sorted(folder.glob("*.jsonl"))), key=lambda line: line[0]
    )


def _lines_of(path: Path) -> Iterator[Line]:
    decode = msgspec.json.Decoder(Line).decode
    with path.open("rb") as file:
        for line in file:
            try:
                yield decode(line)
            except msgspec.DecodeError:
                continue


def look(noted: Iterable[Line]) -> Seen:
    """First sights only: after a kill the sink may show a line again."""
    ranges: dict[int, int] = {}
    seen = Seen(defaultdict(lambda: [0.0] * RANGES), [[] for _ in range(RANGES)], {})
    for at, rows in noted:
        shown = set()
        for key, number, made in rows:
            if number <= seen.records.get(key, 0):
                continue
            seen.records[key] = number
            if key not in ranges:
                ranges[key] = key_hash(key) * RANGES >> 64
            mine, ways = ranges[key], seen.worst[int(made)]
            ways[mine] = max(ways[mine], at - made)
            shown.add(mine)
        for each in shown:
            seen.moments[each].append(at)
    return seen


@dataclass(frozen=True, slots=True)
class Availability:
    """Of so many ``seconds``, those that were ``good`` in every range; of all ranges in all
    seconds, those that were not: ``lost``, in seconds of the whole."""

    seconds: int
    good: int
    lost: float

    def at(self, kills: int, apart_s: float) -> float:
        """The share of range-seconds that are available where a kill costs what these kills did,
        and comes every so many seconds."""
        return 1 - self.lost / max(kills, 1) / apart_s


def availability(seen: Seen, since: float, until: float) -> Availability:
    """Seconds between two moments in which records became visible in time. In a range without
    records nothing is late."""
    seconds = [ways for second, ways in seen.worst.items() if since <= second < until - 1]
    late = [sum(way > AVAILABLE_S for way in ways) for ways in seconds]
    return Availability(len(seconds), late.count(0), sum(late) / RANGES)


def gap(seen: Seen, since: float, until: float) -> float:
    """The longest silence of any range between two moments, s."""
    return max(_longest(moments, since, until) for moments in seen.moments)


def _longest(moments: Sequence[float], since: float, until: float) -> float:
    inside = [since, *(at for at in moments if since < at < until), until]
    return max(later - earlier for earlier, later in pairwise(inside))
