"""The timers of one shard, in the order in which they come due. Pure.

One timer per (key, domain, tag); setting it again moves it. A timer fires once its clock has
*passed* its time (is greater), so that every record at or before that time has been processed.
Timers of one key with the same time fire in the order of their tags: no other order would survive a
recovery.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.model.times import MAX_TIME
from millwheel.errors import InvariantError, invariant

_Id = tuple[Key, str]


@dataclass(frozen=True, slots=True)
class Due:
    """A timer that fires now. ``cause`` is the argument with which it was set (see
    core/pipeline/production_ids.py)."""

    key: Key
    tag: str
    at: int
    domain: Domain
    cause: bytes = b""


class TimerQueue:
    """The timers of one domain. Changes can be undone back to a savepoint, for a callback that
    fails."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._at: dict[_Id, int] = {}
        self._heap: list[tuple[int, str, int, _Id]] = []
        self._order = 0
        self.earliest = MAX_TIME
        """The time of the next timer (MAX_TIME: there is none)."""
        self.uncommitted: list[tuple[_Id, int | None, bytes]] = []
        """The changes since :meth:`take_changes`, each with the time and cause before it."""
        self._causes: dict[_Id, bytes] = {}
        self._counts: Counter[Key] | None = None
        self._count_predicate: Callable[[str], bool] = bool
        self._firsts: dict[Key, list[tuple[int, str]]] | None = None
        self._first_predicate: Callable[[str], bool] = bool

    def __len__(self) -> int:
        return len(self._at)

    def get(self, key: Key, tag: str) -> int | None:
        """The time of the timer, or None."""
        return self._at.get((key, tag))

    def waiting(self, key: Key, predicate: Callable[[str], bool]) -> int:
        """The number of a key's timers whose tags satisfy ``predicate``, which must be the same in
        each call. Timers are counted from the first call on."""
        if self._counts is None:
            self._count_predicate = predicate
            self._counts = Counter(key for key, tag in self._at if predicate(tag))
        return self._counts[key]

    def first_of(self, key: Key, predicate: Callable[[str], bool]) -> int:
        """The time of the next timer of a key among those whose tags satisfy ``predicate``, which
        must be the same in each call (MAX_TIME: there is none). Keys have queues of their own from
        the first call on."""
        if self._firsts is None:
            self._firsts, self._first_predicate = {}, predicate
            for (owner, tag), at in self._at.items():
                if predicate(tag):
                    heapq.heappush(self._firsts.setdefault(owner, []), (at, tag))
        queue = self._firsts.get(key)
        if queue is None:
            return MAX_TIME
        while queue and self._at.get((key, queue[0][1])) != queue[0][0]:
            heapq.heappop(queue)
        if queue:
            return queue[0][0]
        del self._firsts[key]
        return MAX_TIME

    def set(self, key: Key, tag: str, at: int, cause: bytes = b"") -> None:
        """Set or move a timer."""
        timer_id = (key, tag)
        before = self._at.get(timer_id)
        self.uncommitted.append((timer_id, before, self._recall(timer_id, cause)))
        if before != at:
            if before is None:
                self._count(timer_id, 1)
            self._at[timer_id] = at
            self._push(at, timer_id)
            if at < self.earliest:
                self.earliest = at
            elif before == self.earliest:
                self._find_earliest()

    def cancel(self, key: Key, tag: str) -> bool:
        """Forget a timer; False when there was none."""
        before = self._at.pop((key, tag), None)
        if before is None:
            return False
        self._count((key, tag), -1)
        self.uncommitted.append(((key, tag), before, self._recall((key, tag), b"")))
        if before == self.earliest:
            self._find_earliest()
        return True

    def cause_of(self, key: Key, tag: str) -> bytes:
        """The cause with which the timer was set."""
        return self._causes.get((key, tag), b"")

    def _recall(self, timer_id: _Id, cause: bytes) -> bytes:
        """Replace the cause of a timer and return the former one. Only weak productions need
        causes, so there are few."""
        before = self._causes.pop(timer_id, b"") if self._causes else b""
        if cause:
            self._causes[timer_id] = cause
        return before

    def first(self) -> Due | None:
        """The next timer, whether due or not."""
        if not self._heap:
            return None
        key, tag = self._heap[0][3]
        return Due(key, tag, self.earliest, self.domain, self.cause_of(key, tag))

    def more_due_than(self, many: int, clock_us: int) -> bool:
        """Whether ``clock`` has passed more timers than so many."""
        if len(self._at) <= many:
            return False
        # The entries of a heap before some time form a tree below the root, so the walk stops at
        # the first later ones.
        heap, due, nodes = self._heap, 0, [0]
        while nodes and due <= many:
            node = nodes.pop()
            if node < len(heap) and heap[node][0] < clock_us:
                due += self._at.get(heap[node][3]) == heap[node][0]
                nodes += (2 * node + 1, 2 * node + 2)
        return due > many

    def pop_due(self, clock_us: int) -> Due | None:
        """The next timer that ``clock`` has passed, removed."""
        if self.earliest >= clock_us or not self._heap:
            return None
        at, _, _, (key, tag) = heapq.heappop(self._heap)
        # The heap also has the former times of timers that were moved: none of these may fire.
        if self._at.pop((key, tag)) != at:
            raise InvariantError(f"timer {tag!r} of {key!r} fires at {at}, where it was before")
        self._count((key, tag), -1)
        cause = self._recall((key, tag), b"")
        self.uncommitted.append(((key, tag), at, cause))
        self._find_earliest()
        return Due(key, tag, at, self.domain, cause)

    def items(self) -> Iterator[tuple[Key, str, int]]:
        """All timers as (key, tag, at), in no order."""
        for (key, tag), at in self._at.items():
            yield key, tag, at

    def savepoint(self) -> int:
        """A point to which :meth:`undo_to` can return; it discards nothing."""
        return len(self.uncommitted)

    def undo_to(self, savepoint: int) -> None:
        """Take back every change since the savepoint, newest first."""
        # Changes taken for a commit in between cannot be undone: a failed call's timers would stay.
        if savepoint > len(self.uncommitted):
            raise InvariantError("the timers since this savepoint are not known any more")
        while len(self.uncommitted) > savepoint:
            timer_id, before, cause = self.uncommitted.pop()
            self._recall(timer_id, cause)
            if before is None:
                if self._at.pop(timer_id, None) is not None:
                    self._count(timer_id, -1)
            else:
                if timer_id not in self._at:
                    self._count(timer_id, 1)
                self._at[timer_id] = before
                self._push(before, timer_id)
        self._find_earliest()

    def validate(self) -> None:
        """Raise InvariantError unless each timer will come due, and is counted. For tests: it looks
        at all timers."""
        queued = {(timer_id, at) for at, _, _, timer_id in self._heap}
        for timer_id, at in self._at.items():
            invariant(
                (timer_id, at) in queued,
                f"timer {timer_id} at {at} is not in the heap: it never comes due",
            )
        earliest = min(self._at.values(), default=MAX_TIME)
        invariant(
            self.earliest == earliest,
            f"the next timer is at {earliest}, but it is looked for at {self.earliest}",
        )
        invariant(self._causes.keys() <= self._at.keys(), "a timer that is not set has a cause")
        if self._counts is not None:
            counts = Counter(key for key, tag in self._at if self._count_predicate(tag))
            invariant(
                self._counts == counts,
                f"timers by key are {counts}, but are counted as {self._counts}",
            )
        if self._firsts is not None:
            firsts = {
                (owner, at, tag) for owner, queue in self._firsts.items() for at, tag in queue
            }
            for (owner, tag), at in self._at.items():
                is_queued = not self._first_predicate(tag) or (owner, at, tag) in firsts
                invariant(
                    is_queued, f"timer {tag} of {owner} at {at} is not in the queue of its key"
                )

    def _find_earliest(self) -> None:
        # Each change that may end the first one must come here: a shard looks at `earliest` alone,
        # and one that is too late fires no timer and lets the watermark pass it (mutation
        # moved_timers_are_looked_for_at_their_former_time).
        heap = self._heap
        while heap and self._at.get(heap[0][3]) != heap[0][0]:
            heapq.heappop(heap)
        self.earliest = heap[0][0] if heap else MAX_TIME

    def _push(self, at: int, timer_id: _Id) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at, timer_id[1], self._order, timer_id))
        if self._firsts is not None and self._first_predicate(timer_id[1]):
            heapq.heappush(self._firsts.setdefault(timer_id[0], []), (at, timer_id[1]))

    def _count(self, timer_id: _Id, by: int) -> None:
        counts, (key, tag) = self._counts, timer_id
        if counts is None or not self._count_predicate(tag):
            return
        counts[key] += by
        # A shard that waits for the last timer of a key would wait for ever.
        if counts[key] < 0:
            raise InvariantError(f"{counts[key]} timers of {key!r} are counted")
        if not counts[key]:
            del counts[key]

    def take_changes(self) -> dict[_Id, int | None]:
        """The changes since the last call, as the present time of each touched timer (None:
        removed)."""
        changed = {timer_id: self._at.get(timer_id) for timer_id, *_ in self.uncommitted}
        self.uncommitted.clear()
        return changed
