"""Time, chance and the story of one simulated run: everything that happens is an entry of one heap,
and every choice is drawn from one seed.

Processes may block: a task is a greenlet, so the real adapters and loops run unchanged, and each of
their calls to the outside gives way to everybody else. Nothing runs at the same time as anything
else.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import greenlet
import xxhash

START_US = 1_700_000_000_000_000
SECOND = 1_000_000
FOREVER = 1 << 62
_STORY = 50_000


class Failure(BaseException):
    """An invariant does not hold; the text says which. ``about`` names the shards, workers or
    records concerned.

    It derives from BaseException, so that nothing under test takes it for an error of its own.
    """

    def __init__(self, text: str, about: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.about = tuple(about)
        self.story: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the story."""

    at_us: int
    text: str
    about: frozenset[str]

    def __str__(self) -> str:
        return f"{self.at_us / 1000:>11.3f} ms  {self.text}"


class Simulation:
    """The heap, the clock of the universe, and the story."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = START_US
        self.hub = greenlet.getcurrent()
        self.story: list[Event] = []
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._order = 0
        self._number = 0
        self._digest = xxhash.xxh3_64()
        self.steps = 0

    def number(self) -> int:
        """A number that was never given before."""
        self._number += 1
        return self._number

    def delay(self, low: int, high: int) -> int:
        """µs between ``low`` and ``high``."""
        return low + int(self.rng.random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def at(self, when: int, action: Callable[[], object]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, action))

    def later(self, after: int, action: Callable[[], object]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self.now + after, self._order, action))

    def trace(self, text: str, *about: str) -> None:
        """A line of the story, which concerns ``about``."""
        at = self.now - START_US
        self._digest.update(f"{at} {text}".encode())
        self.story.append(Event(at, text, frozenset(about)))
        if len(self.story) > _STORY:
            del self.story[: _STORY // 2]

    def written(self, entries: Sequence[bytes]) -> None:
        """What goes to a journal is part of the trace hash: snapshots are taken by its size, so
        bytes that vary make another story sooner or later."""
        for entry in entries:
            self._digest.update(entry)

    def trace_hash(self) -> str:
        """What two runs of one seed have in common: the story, all commits, and how often something
        happened."""
        self._digest.update(str(self.steps).encode())
        return self._digest.hexdigest()

    def run(self, until: Callable[[], bool], limit_us: int, every: int = 50) -> bool:
        """Let time pass until ``until`` holds (looked at after ``every`` steps), or until
        ``limit_us`` have gone by."""
        end = self.now + limit_us
        heap = self._heap
        steps = 0
        pop = heapq.heappop
        while heap and heap[0][0] <= end:
            when, _, action = pop(heap)
            if when > self.now:
                self.now = when
            action()
            steps += 1
            if steps % every == 0 and until():
                self.steps += steps
                return True
        self.steps += steps
        self.now = max(self.now, end)
        return until()
