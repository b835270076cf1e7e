"""One partition of a source as its shard reads it, and its stored state."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from millwheel.adapters.ports import StateStore
from millwheel.adapters.waits import Wait
from millwheel.connect.sources.base import Chunk, FrameChunk, Partition, Reader
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.formats.store_layout import (
    DECIDED,
    JUDGED,
    POSITION,
    Position,
    decode_position,
    number8,
    number_from8,
    pack,
)
from millwheel.core.grouping.epochs import MOST_COUNTED, KeyEpochs, Rule
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.windows.lateness import watermark_after
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.engine.workers.shard.productions import earliest_of
from millwheel.engine.workers.sources.arrivals import ArrivalClock, Arrivals
from millwheel.engine.workers.sources.combining import Combine
from millwheel.engine.workers.sources.completion import CompletionTimes, ReadAhead
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.engine.workers.sources.key_epochs import delete_epochs, open_key_epochs, write_epoch
from millwheel.engine.workers.sources.silence import Silence
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError, invariant

_BYTES_COUNTED = 1 << 16
"""Of a first read in columns that only finds hot keys: about as much as is counted of any read."""


@dataclass(slots=True)
class Outstanding:
    """A read that the consumers have not applied yet, and its effects once they have. When it was
    sent, ``waited`` records waited for them, with its own: 0 where that is not measured. Its
    position is committed ``with_results``, once a batch of the chained sink has its output."""

    chunks: list[OutputChunk]
    after: Position
    counters: dict[str, int]
    records: int = 0
    waited: int = 0
    sent_at_us: int = 0
    with_results: bool = False

    @property
    def applied(self) -> bool:
        """True once every consumer has all of it."""
        return not self.with_results and all(chunk.finished for chunk in self.chunks)


@dataclass(slots=True)
class Part:
    """One partition as its shard reads it. ``position``, ``max_timestamp`` and ``note`` run ahead
    of ``committed``. ``is_full``: its last read brought as much as it may. Its reader was given
    ``columns``: the inferred ones, or all that there may be. Nothing more is read before commit
    number ``awaits`` of the shard is durable. ``judged``: positions of records that lay too far in
    the future; ``decided``: notes by position, see :class:`millwheel.connect.sources.base.Chunk`.
    ``gone_at``: since when no listing has it. It is ``behind`` before a look has found nothing, or
    nothing more. In a run that ends once it has caught up it is ``certain`` once it has, and then
    idle if ``idles``. ``epochs``: how keys are divided, where a consumer divides them by tables,
    with measurements of ``completion`` if any goes by them; then it is read ``ahead`` of the
    consumers by a limited time only. ``combine``: whether groups are sent in place of records.
    ``with_results``: the consumers run in the shard itself, no record is sent, and a position is
    committed with the output of all reads before it. ``arrivals``: the times of its records, where
    those are their timestamps. ``wait`` is set while it cannot be read."""

    partition: Partition
    channel: ChannelName
    committed: Position
    position: int
    max_timestamp: int
    read_all: bool
    note: bytes
    judged: set[int]
    decided: dict[int, bytes]
    silence: Silence
    certain: bool
    reader: Reader | None = None
    next_poll_us: int = 0
    next_chunk: int = 1
    size: ReadSize = field(default_factory=ReadSize)
    rows_until: int = 0
    is_full: bool = False
    columns: Mapping[str, str] | None = None
    outstanding: deque[Outstanding] = field(default_factory=deque)
    awaits: int = 0
    gone_at_us: int | None = None
    behind: bool = True
    idles: bool = False
    epochs: KeyEpochs | None = None
    completion: CompletionTimes | None = None
    ahead: ReadAhead | None = None
    record_bytes: int = 1 << 20
    combine: Combine = field(default_factory=lambda: Combine(False))
    with_results: bool = False
    arrivals: Arrivals | None = None
    wait: Wait | None = None

    @property
    def idle(self) -> bool:
        """True when it holds no watermark any more: all that it had is applied, and it has been
        silent for long."""
        # Not by the clock in a run that ends once it has caught up: the windows that such a run
        # closes are a function of the input.
        return not self.outstanding and (self.silence.idle or (self.idles and self.certain))

    @property
    def idle_in_words(self) -> str:
        """The text of ``status`` for an idle partition."""
        return (
            self.silence.in_words()
            if self.silence.idle
            else "read to where it ended when the run began"
        )

    def was_read(self) -> None:
        """Note that it can be read."""
        if self.wait is not None:
            self.wait.over()
            self.wait = None

    def chain(self, first_owner: bool) -> bool:
        """Commit the output of a read together with the position behind it, unless a former owner
        may have sent reads that lie behind the committed one. True where that is not in the store
        yet."""
        # Consumers have those under their positions, and would take the output of a chain for new:
        # see mistake what_was_sent_is_taken_by_a_chain_again.
        stored = self.committed.with_results
        self.with_results = stored or first_owner
        self.combine.on = self.with_results
        self.committed = msgspec.structs.replace(self.committed, with_results=self.with_results)
        return self.with_results and not stored

    def standing(self, max_delay_us: int) -> tuple[int, bool]:
        """Its watermark, before which nothing is expected, and whether it is :attr:`idle`."""
        if self.arrivals is not None:
            return self.arrivals.reached_us(self.position), self.idle
        return watermark_after(self.max_timestamp, max_delay_us), self.idle

    def notes(self) -> list[tuple[int, bytes]]:
        """The notes for a new reader, see :class:`millwheel.connect.sources.base.Reader`."""
        later = sorted((at, note) for at, note in self.decided.items() if at >= self.position)
        return [(self.position, self.note), *later]

    def close(self) -> None:
        """Close its reader; another one will continue at its position."""
        if self.reader is not None:
            self.reader.close()
            self.reader = self.columns = None

    @property
    def applied(self) -> bool:
        """Whether the consumers have all that was sent as records."""
        return all(each.applied for each in self.outstanding)

    @property
    def waiting(self) -> int:
        """How many records wait for the consumers."""
        return sum(each.records for each in self.outstanding if not each.applied)

    def most_records(self, limit: int) -> int:
        """How many records the next read may have: no more than are counted, while no key can be
        hot."""
        limit = (
            min(limit, MOST_COUNTED) if self.epochs is not None and self.epochs.is_empty else limit
        )
        return limit if self.ahead is None else min(limit, self.ahead.share)

    @property
    def most_bytes(self) -> int:
        """The same for a read in columns."""
        most = (
            _BYTES_COUNTED if self.epochs is not None and self.epochs.is_empty else self.size.bytes
        )
        return most if self.ahead is None else min(most, self.ahead.share * self.record_bytes)

    def note_size(self, size_bytes: int, records: int) -> None:
        """Note the size of the records in a read of columns."""
        if records:
            self.record_bytes = min(self.record_bytes, max(size_bytes // records, 1))

    def leave_groups(self, bundle: Bundle) -> None:
        """Send records from here on, once that is committed."""
        # Were it not, the next owner would send groups again from this position on, with records in
        # them that some consumers have: see mistake records_are_sent_before_that_is_committed.
        self.combine.leave()
        self.next_poll_us = bundle.now_us  # the records of this read are there
        # Records that are still on their way lie behind what groups have committed.
        invariant(not self.outstanding, f"{self.channel} has sent records and groups at once")
        self.committed = msgspec.structs.replace(self.committed, with_results=False)
        self.write(bundle.overlay)
        self.await_commit(bundle)

    def await_commit(self, bundle: Bundle) -> None:
        """Send nothing, and read no more of it, before this bundle's commit is durable."""
        bundle.commit_before_sending, self.awaits = True, bundle.number

    def move(self, read: Chunk | FrameChunk, max_timestamp: int) -> None:
        """Move behind a read that is to be sent: the next one begins there."""
        self.position, self.max_timestamp, self.read_all = (
            read.next_position,
            max_timestamp,
            read.finished,
        )
        self.note = read.note
        if self.epochs is not None:
            self.epochs.moved(read.next_position)

    def after(self) -> Position:
        """The position to commit once all that was read so far is applied."""
        # With the counts of that position and not those of a later read: see
        # test_the_counts_of_a_position_are_….
        counts = {} if self.epochs is None else self.epochs.counts()
        return Position(self.position, self.max_timestamp, self.read_all, self.note, counts=counts)

    def chunk(self, channel: ChannelName, batches: list[tuple[NodeName, AnyBatch]]) -> OutputChunk:
        """Records of a read, numbered by their positions, for the outbox."""
        chunk = OutputChunk(
            self.next_chunk, channel, batches, earliest_of(batches), stored=False, read=True
        )
        self.next_chunk += 1
        return chunk

    # --- storage ----------------------------------------------------------------------------------

    def judge(self, positions: list[int], overlay: Overlay) -> None:
        """Store that the records at these positions lie too far in the future; later readers do not
        judge again."""
        for position in positions:
            overlay.put(_store_key(JUDGED, self.partition, position), b"")
            self.judged.add(position)

    def decide(self, position: int, note: bytes, overlay: Overlay) -> None:
        """Store a decision about the input behind the position; later readers do not decide
        again."""
        overlay.put(_store_key(DECIDED, self.partition, position), note)
        self.decided[position] = note

    def extend_epochs(self, position: int, overlay: Overlay, now_us: int) -> bool:
        """Before a read up to ``position`` is routed: True when it must not be sent before the
        bundle's commit, which then has the tables that it is routed by."""
        if self.epochs is None:
            return False
        measured = (
            dict if self.completion is None else partial(self.completion.take, self.epochs.rules)
        )
        decided = self.epochs.extended(position, measured, now_us)
        for epoch in decided:
            write_epoch(epoch, self.epochs.rules, self.partition.name, overlay)
        return bool(decided)

    def commit(self, after: Position, overlay: Overlay) -> None:
        """Store a position behind the committed one."""
        # From a lower position records would be read again, by numbers that consumers have: those
        # between would seem to be applied. And after an end, nothing is read any more.
        before = self.committed
        if after.position < before.position or (before.finished and not after.finished):
            raise InvariantError(
                f"the position of {self.partition.name} would fall from {before.position} to"
                f" {after.position}{', behind its end' if before.finished else ''}"
            )
        self.committed = after
        self.write(overlay)

    def write(self, overlay: Overlay) -> None:
        """Store the committed position, and drop notes about earlier ones. A decision about input
        exactly at the position is still needed: the position's note is older."""
        overlay.put(POSITION + self.partition.name.encode(), pack(self.committed))
        for position in [
            position for position in self.judged if position <= self.committed.position
        ]:
            overlay.delete(_store_key(JUDGED, self.partition, position))
            self.judged.discard(position)
        # Strictly before: with <= a crash right behind the end of a file finds no decision about
        # the input behind it. See
        # test_a_decision_about_what_follows_a_position_is_kept_when_that_position_is_committed.
        for position in [
            position for position in self.decided if position < self.committed.position
        ]:
            overlay.delete(_store_key(DECIDED, self.partition, position))
            del self.decided[position]
        if self.epochs is not None:
            delete_epochs(self.epochs.forget(self.committed.position), self.partition.name, overlay)
        if self.arrivals is not None:
            self.arrivals.forget(self.committed.position, overlay)


def as_with_results(at: Position) -> Position:
    """A position that is committed with the output of all reads before it."""
    return msgspec.structs.replace(at, with_results=True)


def open_part(
    partition: Partition,
    channel: ChannelName,
    store: StateStore,
    silence: Silence,
    certain: bool,
    rules: Mapping[str, Rule] | None = None,
    clock: ArrivalClock | None = None,
) -> Part:
    """A partition as its store has it. ``certain``: no owner can have read further than that.
    ``rules``: those of the consumers that divide keys by tables. ``clock``: where the timestamps
    are times of arrival."""
    data = store.get(POSITION + partition.name.encode())
    at = Position() if data is None else decode_position(data)
    # The pair of a source's check as it commits: no owner has read beyond the end.
    invariant(
        at.position >= 0, f"partition {partition.name} is committed at position {at.position}"
    )
    judged = _prefix(JUDGED, partition)
    decided = _prefix(DECIDED, partition)
    return Part(
        partition,
        channel,
        at,
        at.position,
        at.max_timestamp,
        at.finished,
        at.note,
        {number_from8(store_key[len(judged) :]) for store_key, _ in store.scan(judged)},
        {
            number_from8(store_key[len(decided) :]): bytes(note)
            for store_key, note in store.scan(decided)
        },
        silence,
        certain or at.finished,
        epochs=open_key_epochs(rules or {}, partition.name, store, at.position, at.counts),
        combine=Combine(at.with_results),
        arrivals=None if clock is None else Arrivals(partition.name, store, clock),
    )


def _prefix(family: bytes, partition: Partition) -> bytes:
    return family + pack(partition.name)


def _store_key(family: bytes, partition: Partition, position: int) -> bytes:
    return _prefix(family, partition) + number8(position)
