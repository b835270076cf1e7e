"""Commits of one shard between their bundle and the disk: made, handed to the journal, durable,
always in this order."""

from __future__ import annotations

import operator
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millwheel.core.formats.codec import Commit, encode_commit
from millwheel.core.formats.store_layout import PENDING, Meta, number8
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.errors import InvariantError, invariant

if TYPE_CHECKING:
    from millwheel.engine.workers.shard.shard import Shard


_VERDICT = "a step with too many failures, which waits for a verdict"


@dataclass(slots=True)
class Step:
    """A bundle with its arrivals. ``hold`` kept the watermark before it, and ``work_us`` is the
    earliest work of that time. While it ``asks``, it has not run yet: it may wait for ``asks_for``,
    from outside. ``chunk`` holds its productions.

    It is not frozen: the shard makes one for each bundle, and setting fields of a frozen one takes
    three times as long."""

    bundle: Bundle
    arrivals: list[Arrival]
    hold: Hold
    work_us: int
    chunk: OutputChunk | None = None
    asks: bool = True
    asks_for: str = ""

    def kept(self) -> Hold:
        """The hold on the watermark while the step is not committed: none of its productions was
        sent yet."""
        chunks = [*self.bundle.chunks, *((self.chunk,) if self.chunk is not None else ())]
        at = min([self.hold.at, *(chunk.min_timestamp for chunk in chunks)])
        waits = f"records that wait for {self.asks_for}" if self.asks else _VERDICT
        return Hold(at, waits)


@dataclass(slots=True)
class PendingCommit:
    """A commit that is applied locally and waits for the journal. ``commit`` is None when nothing
    changed: then only the acks wait, for the commits before it. ``weak`` productions were sent
    already, and the commit is not written before the consumers have them, or before they are late
    enough to be checkpointed. ``write_by`` is the wall clock at which it must go to the journal,
    unless another commit goes earlier (0: something waits for it)."""

    shard: Shard
    number: int
    commit: Commit | None
    arrivals: list[Arrival]
    chunk: OutputChunk | None
    hold: Hold
    work_us: int = MIN_TIME
    weak: bool = False
    since_us: int = 0
    write_by_us: int = 0
    floor: int = MIN_TIME
    reads: list[OutputChunk] = field(default_factory=list)

    @property
    def straggles(self) -> bool:
        """True for weak productions that some consumer has not applied yet."""
        return self.weak and self.chunk is not None and not self.chunk.finished

    def checkpoint_chunk(self) -> None:
        """Weak productions in flight become part of the commit, because a consumer takes too
        long."""
        chunk, commit = self.chunk, self.commit
        invariant(chunk is not None and commit is not None, "a weak commit has productions")
        assert chunk is not None
        assert commit is not None
        if chunk.stored:
            return
        store_key = PENDING + number8(chunk.number)
        # Into the commit and the local store alike. In the store alone, a recovery would not send
        # them again, although the records that made them are acked; in the commit alone, a snapshot
        # that skips this commit would not hold them.
        commit.puts.append((store_key, chunk.stored_form))
        self.shard.store.apply([(store_key, chunk.stored_form)], [])
        chunk.stored = True


class InFlight:
    """``made`` numbers the last commit that is applied to the local store, ``durable`` the last one
    that is certainly in the journal, and ``floor`` is the durable floor. Of the commits ``pending``
    between these two, all that are not ``unsubmitted`` are with the journal; of the others,
    ``_urgent`` is the number that something waits for. ``waiting`` is a step that must not be
    committed before there is a verdict, or not run before there are answers from outside."""

    def __init__(self, name: str, meta: Meta, straggler_us: int) -> None:
        self.made = self.durable = meta.number
        self.floor = meta.floor
        self.waiting: Step | None = None
        self._name = name
        self._straggler_us = straggler_us
        self.pending: deque[PendingCommit] = deque()
        self.unsubmitted: deque[PendingCommit] = deque()
        self._urgent = 0

    def enlist(self, pending: PendingCommit) -> PendingCommit:
        """Take a new commit: it waits for the journal."""
        # Recovery replays them by their numbers, and stops at one that does not follow.
        if self.pending and pending.number < self.pending[-1].number:
            raise InvariantError(
                f"{self._name}: commit {pending.number} was made after {self.pending[-1].number}"
            )
        self.pending.append(pending)
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
                    # The commits behind it wait, too: a journal that holds a commit, but not the
                    # one before it, has a gap, and recovery stops at it.
                    break
                pending.checkpoint_chunk()
            self.unsubmitted.popleft()
            self._urgent -= not pending.write_by_us
            entry = b"" if pending.commit is None else encode_commit(pending.commit)
            those.append((pending, entry))
        # With a count too high, each commit would be written at once, alone; too low, and an ack
        # would wait for other commits.
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
        """Note that the journal has the oldest of them."""
        # Out of order, an ack would go out for records whose commit may still be lost: the sender
        # forgets them.
        if not self.pending or self.pending[0] is not pending:
            raise InvariantError(f"{self._name}: commits became durable out of order")
        if self.unsubmitted and self.unsubmitted[0] is pending:
            raise InvariantError(f"{self._name}: the journal never got commit {pending.number}")
        self.pending.popleft()
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
        numbers = [pending.number for pending in self.pending if pending.commit is not None]
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
        tail = list(self.pending)[len(self.pending) - len(self.unsubmitted) :]
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
        for pending in self.pending:
            if pending.hold.at < hold.at:
                hold = pending.hold
        if self.waiting is not None and (waiting_hold := self.waiting.kept()).at < hold.at:
            hold = waiting_hold
        return hold

    def lowest_work(self, work_us: int) -> int:
        """The earliest work that is not durable, or ``work_us``."""
        work_us = min([work_us, *(pending.work_us for pending in self.pending)])
        return (
            work_us
            if self.waiting is None
            else min(work_us, self.waiting.work_us, self.waiting.kept().at)
        )
