"""A step of a shard, and the commit that becomes of it, between its bundle and the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millwheel.core.formats.codec import Commit
from millwheel.core.formats.store_layout import PENDING, number8
from millwheel.core.model.times import MIN_TIME
from millwheel.engine.workers.bundle.bundle import Bundle, Hold
from millwheel.engine.workers.delivery.inbox import Arrival
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.errors import invariant

if TYPE_CHECKING:
    from millwheel.engine.workers.shard.shard import Shard


_VERDICT = "a step with too many failures, which waits for a verdict"


@dataclass(slots=True)
class Step:
    """A bundle with its arrivals. ``hold`` kept the watermark before it, and ``work_us`` is what
    was to be done then. While it ``asks``, it has not run yet: it may wait for ``asks_for``, from
    outside. ``chunk`` holds what it produced.

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
        # them again, although what made them is acked; in the commit alone, a snapshot that skips
        # this commit would not hold them.
        commit.puts.append((store_key, chunk.stored_form))
        self.shard.store.apply([(store_key, chunk.stored_form)], [])
        chunk.stored = True
