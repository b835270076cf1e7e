"""What the sink of a failover run noted, and what follows from it: how long ranges were silent, and
gaps of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

from bench.stats import quantile
from millwheel.core.model.keys import key_hash
from millwheel.core.model.ranges import KeyRange

Line = tuple[float, list[tuple[int, int, float]]]
"""(seen at, [(key, process that made it, made at)]), s since 1970."""


@dataclass(frozen=True, slots=True)
class Struck:
    """Workers that were killed or stopped ``at`` (s since 1970), one or all of a host, and the
    ranges of keys that they served."""

    at: float
    pids: frozenset[int]
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class Silence:
    """Seconds from the blow until each range of the dead had output from somebody else; None when
    one never had."""

    first: float | None
    last: float | None


def lines(folder: Path) -> list[Line]:
    """All that was noted, in order of time. The last line of a file may be torn by a kill."""
    decode = msgspec.json.Decoder(Line).decode
    found = []
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            try:
                found.append(decode(line))
            except msgspec.DecodeError:
                continue
    return sorted(found, key=lambda line: line[0])


def silence(seen: Sequence[Line], blow: Struck, until: float) -> Silence:
    """What the ranges of struck workers showed between the blow and ``until``."""
    came: dict[KeyRange, float] = {}
    for at, rows in seen:
        if not blow.at < at < until or len(came) == len(blow.ranges):
            continue
        for key, pid, _ in rows:
            if pid not in blow.pids:
                position = key_hash(key)
                for piece in blow.ranges:
                    if piece.lo <= position < piece.hi:
                        came.setdefault(piece, at - blow.at)
    whole = len(came) == len(blow.ranges) and bool(came)
    return Silence(min(came.values()) if came else None, max(came.values()) if whole else None)


def longest_gap(seen: Sequence[Line], since: float, until: float) -> float:
    """The longest time without any output between two moments, s."""
    moments = [since, *(at for at, _ in seen if since < at < until), until]
    return max(later - earlier for earlier, later in pairwise(moments))


def spread(values: Iterable[float | None]) -> str:
    """Median, p99 and greatest of some seconds as cells of a table; what never came is told."""
    given = list(values)
    there = sorted(value for value in given if value is not None)
    if not there:
        return "never | never | never"
    cells = " | ".join(f"{quantile(there, share):.2f}" for share in (0.5, 0.99, 1.0))
    return cells + (f" ({len(given) - len(there)} never)" if len(there) < len(given) else "")
