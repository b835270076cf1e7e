"""Commits of one shard between their bundle and the disk: made, handed to the journal, durable,
always in this order."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator

from millwheel.core.formats.codec import encode_commit
from millwheel.core.formats.store_layout import Meta
from millwheel.core.model.times import MAX_TIME
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.shard.pending_commit import PendingCommit, Step
from millwheel.errors import InvariantError, invariant


class InFlight:
    """``made`` numbers the last commit that is applied to the local store, ``durable`` the last one
    that is known to be in the journal, and ``floor`` is the durable floor. Commits that are not
    ``unsubmitted`` are with the journal; of the others, ``_urgent`` is the number that something
    waits for. ``waiting`` is a step that must not be committed before there is a verdict, or not
    run before there are answers from outside."""

    def __init__(self, name: str, meta: Meta, straggler_us: int) -> None:
        self.made = self.durable = meta.number
        self.floor = meta.floor
        self.waiting: Step | None = None
        self._name = name
        self._straggler_us = straggler_us
        self._commits: deque[PendingCommit] = deque()
        self.unsubmitted: deque[PendingCommit] = deque()
        self._urgent = 0

    def __len__(self) -> int:
        return len(self._commits)

    def full(self, limit: int) -> bool:
        """True if no more may be made."""
        return len(self._commits) >= limit

    def __iter__(self) -> Iterator[PendingCommit]:
        return iter(self._commits)

    def enlist(self, pending: PendingCommit) -> PendingCommit:
        """A commit was made: it waits for the journal."""
        # Recovery replays them by their numbers, and stops at one that does not follow.
        if self._commits and pending.number < self._commits[-1].number:
            raise InvariantError(
                f"{self._name}: commit {pending.number} was made after {self._commits[-1].number}"
            )
        self._commits.append(pending)
        self.unsubmitted.append(pending)
        self._urgent += not pending.write_by_us
        return pending

    def submittable(self, now_us: int) -> list[tuple[PendingCommit, bytes]]:
        """Commits that go to the journal now, in order, with their entry (b"": nothing to
        write)."""
        those: list[tuple[PendingCommit, bytes]] = []
        while self.unsubmitted:
            pending = self.unsubmitted[0]
            if pending.weak and pending.straggles:
                if now_us < pending.since_us + self._straggler_us:
                    # Those behind it wait, too: a journal that holds a commit, but not the one
                    # before it, has a gap, and recovery stops at it.
                    break
                pending.checkpoint_chunk()
            self.unsubmitted.popleft()
            self._urgent -= not pending.write_by_us
            entry = b"" if pending.commit is None else encode_commit(pending.commit)
            those.append((pending, entry))
        # One too many, and each commit is written at once, alone; one too few, and an ack waits
        # for company.
        if self._urgent < 0 or (self._urgent and not self.unsubmitted):
            raise InvariantError(f"{self._name}: {self._urgent} commits count as waited for")
        return those

    def submits_at(self) -> int:
        """When the next commit must be written (wall clock): at once if something waits for it; a
        weak one at the latest when a consumer has not acked for too long."""
        if not self.unsubmitted:
            return MAX_TIME
        first = self.unsubmitted[0]
        if first.straggles:
            return first.since_us + self._straggler_us
        return 0 if self._urgent else first.write_by_us

    def checkpoint_stragglers(self) -> None:
        """Write weak productions on their way into the store, for a copy of it: a recovery from the
        copy skips their commits, which would bring them along if their consumers take too long."""
        for pending in self.unsubmitted:
            if pending.weak and pending.straggles:
                pending.checkpoint_chunk()

    def settle(self, pending: PendingCommit) -> None:
        """The journal has the oldest of them."""
        # Out of order, an ack would go out for records whose commit may still be lost: the sender
        # forgets them.
        if not self._commits or self._commits[0] is not pending:
            raise InvariantError(f"{self._name}: commits became durable out of order")
        if self.unsubmitted and self.unsubmitted[0] is pending:
            raise InvariantError(f"{self._name}: the journal never got commit {pending.number}")
        self._commits.popleft()
        if pending.number < self.durable:
            raise InvariantError(
                f"{self._name}: commit {pending.number} became durable after {self.durable}"
            )
        self.durable = pending.number
        self.floor = max(self.floor, pending.floor)

    def validate(self, meta: Meta) -> None:
        """Raise InvariantError unless commits are in a row from the durable one to the last, which
        ``meta`` names."""
        name = self._name
        numbers = [pending.number for pending in self._commits if pending.commit is not None]
        expected = list(range(self.made - len(numbers) + 1, self.made + 1))
        invariant(
            numbers == expected,
            f"{name}: commits {numbers} are in flight, the last one is {self.made}",
        )
        invariant(
            self.made == meta.number,
            f"{name}: {self.made} commits were made, the store has {meta.number}",
        )
        invariant(
            self.durable <= self.made - len(numbers),
            f"{name}: {self.durable} is durable, but in flight",
        )
        tail = list(self._commits)[len(self._commits) - len(self.unsubmitted) :]
        in_order = len(tail) == len(self.unsubmitted) and all(
            map(operator.is_, tail, self.unsubmitted)
        )
        invariant(
            in_order, f"{name}: a commit is to be submitted before one that is with the journal"
        )
        urgent = sum(not pending.write_by_us for pending in self.unsubmitted)
        invariant(
            self._urgent == urgent,
            f"{name}: {urgent} commits are waited for, but counted as {self._urgent}",
        )
        invariant(
            self.floor <= meta.floor,
            f"{name}: the durable floor {self.floor} is above that of the store",
        )

    def lowest(self, hold: Hold) -> Hold:
        """The hold on the watermark; ``hold`` is that without undurable work, which may have to be
        repeated."""
        for pending in self._commits:
            if pending.hold.at < hold.at:
                hold = pending.hold
        if self.waiting is not None and (waiting_hold := self.waiting.kept()).at < hold.at:
            hold = waiting_hold
        return hold

    def lowest_work(self, work_us: int) -> int:
        """The earliest work that is not durable, or ``work_us``."""
        work_us = min([work_us, *(pending.work_us for pending in self._commits)])
        return (
            work_us
            if self.waiting is None
            else min(work_us, self.waiting.work_us, self.waiting.kept().at)
        )
