"""The number of spares of ``--spares auto``: so many that any one host may die. Pure: "now" is an
argument.

The loss of a host takes all its workers, with a seat or without. All seats are filled afterwards
exactly if there were at least as many spares as workers on that host. Where each spare has a host
of its own, that is the most workers with a seat on any host, plus one: the spare that dies with
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

FIRST = 1
"""Spares that a run begins with, before its workers have joined; also the number of spares where
there is only one host."""
_STEADY_S = 2.0  # hosts have not changed for so long before a spare is added
_SURPLUS_S = 60.0  # and before one is ended: hosts come back
_WAIT_S = 60.0  # for a spare to join, before a line reports that it has not


@dataclass(frozen=True, slots=True)
class SpareStep:
    """The next step: start a spare (``more``), or end the idle worker of a slot; and a line to
    announce ("": none)."""

    more: bool = False
    fewer: int | None = None
    line: str = ""


@dataclass(slots=True)
class AutoSpares:
    """The spares of one run; the driver asks for the next step again and again. ``most`` workers
    can be started, spares included (None: any number)."""

    most: int | None = None
    _seen: Mapping[int, str] = field(default_factory=dict)
    _since_s: float = 0.0
    _waiting_s: float | None = None
    _announced: str = ""

    def awaited(self, slots: Collection[int], now_s: float) -> SpareStep:
        """These slots have no worker yet: nothing is decided until they have."""
        self._waiting_s = now_s if self._waiting_s is None else self._waiting_s
        if now_s - self._waiting_s < _WAIT_S:
            return SpareStep()
        named = ", ".join(map(str, sorted(slots)))
        return self._announce(
            f"--spares auto waits for the workers of the slots {named}: do they have cores to"
            " run on?"
        )

    def look(
        self, hosts: Mapping[int, str], spares: int, idle: Collection[int], now_s: float
    ) -> SpareStep:
        """All workers are there: ``hosts`` maps their slots to their hosts, ``idle`` are the slots
        without shards."""
        self._waiting_s = None
        if hosts != self._seen:
            self._seen, self._since_s = dict(hosts), now_s
        if now_s - self._since_s < _STEADY_S:
            return SpareStep()
        counts = Counter(hosts.values())
        fullest = min(counts, key=lambda host: (-counts[host], host))
        if spares < needed(counts):
            return self._more(spares, len(hosts) - spares, fullest, counts[fullest])
        slot = superfluous(hosts, spares, idle)
        if slot is not None and now_s - self._since_s >= _SURPLUS_S:
            return SpareStep(fewer=slot)
        if len(counts) < 2:
            return self._announce(
                f"All workers are on the host {fullest}, and no spare outlives it: --spares auto is"
                f" {FIRST} here, for the loss of a process"
            )
        return self._announce(
            f"Any one host may die: there are {spares} spares, and {counts[fullest]} workers on"
            f" {fullest}"
        )

    def _more(self, spares: int, seats: int, fullest: str, count: int) -> SpareStep:
        full = self.most is not None and spares + seats >= self.most
        if not full and spares <= seats:
            return SpareStep(more=True)
        why = (
            f"this Spark has room for {self.most} workers"
            if full
            else "they start where others are already"
        )
        return self._announce(
            f"The host {fullest} may not die: it has {count} workers, and there are {spares}"
            f" spares. More do not help, because {why}; spread the workers over more hosts"
        )

    def _announce(self, line: str) -> SpareStep:
        if line == self._announced:
            return SpareStep()
        self._announced = line
        return SpareStep(line=line)


def needed(counts: Mapping[str, int]) -> int:
    """How many spares are needed so that any one host may die, by the number of workers on each,
    spares included."""
    return max(counts.values()) if len(counts) > 1 else FIRST


def superfluous(hosts: Mapping[int, str], spares: int, idle: Collection[int]) -> int | None:
    """An idle worker without which any one host may still die, on the host with the most; None:
    there is none."""
    counts = Counter(hosts.values())
    for slot in sorted(idle, key=lambda slot: (-counts[hosts[slot]], -slot)):
        rest = Counter(host for other, host in hosts.items() if other != slot)
        if spares > FIRST and spares - 1 >= needed(rest):
            return slot
    return None
