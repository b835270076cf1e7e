"""Reads the partitions of a replayable source that fall into a shard's key range.

Nothing that was read is logged: a partition's channel is numbered by its positions, reads are sent
at once, and the position is committed when every consumer has applied them. After a crash the
partition is read again from there, and consumers drop the records that they have. So every decision
about a record must be a function of the partition's content. One decision is not, "its timestamp
lies in the far future"; it is committed before anything is sent.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from millwheel.adapters.ports import StateStore
from millwheel.connect.sources.base import Chunk as Read
from millwheel.connect.sources.base import FrameChunk, Partition, Reader
from millwheel.core.aggregates.columns import Inexact
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.formats.store_layout import Position
from millwheel.core.model.failures import UNIT
from millwheel.core.model.names import letters_channel
from millwheel.core.model.times import IDLE_TIME, MAX_TIME
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.boundaries import ColumnBoundary
from millwheel.engine.workers.bundle.bundle import LINE, Bundle, Hold, keys_of
from millwheel.engine.workers.bundle.hangs import Watched
from millwheel.engine.workers.bundle.lone_records import LoneReads
from millwheel.engine.workers.bundle.operator import Operator
from millwheel.engine.workers.sources.frames import sort_frame
from millwheel.engine.workers.sources.partition import Outstanding, Part
from millwheel.engine.workers.sources.partitions import Partitions
from millwheel.engine.workers.sources.sorting import Sorted, Sorting
from millwheel.engine.workers.sources.source_parts import SourceEnd, SourceParts, TablesFirst
from millwheel.errors import ExhaustedError

_PER_FULL = 20
"""The next read is tried in columns, too, if this one had that part of a full one: few records are
as fast in rows."""
_LOOKED_AT = 2_000
"""The types of undeclared fields are inferred from this many records, where all fields are passed
on: they are read again in columns, and each further read is checked."""
_SILENCE_PER_PAUSE, _LONGEST_PAUSE = 100, 5
"""A silent partition is polled after a pause of 1/100 of its silence so far, at least one and at
most five poll intervals."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """The position in the commit with this number, and how many reads lie between the position
    before and it."""

    commit: int
    partition: Partition
    position: int
    reads: int


class SourceOperator(Operator):
    """The operator of a ``source.*`` shard."""

    def __init__(self, parts: SourceParts, store: StateStore, now_us: int) -> None:
        self._parts = parts
        self.fellows = parts.fellows
        self.first = parts.first
        self.has_chain = parts.chain is not None
        self._store = store
        self._spec = parts.stream
        self._poll_us = parts.source.poll_us
        self._boundary = ColumnBoundary(f"source {self._spec.name}")
        self._settled_at_us = 0
        self._settled: deque[_Settled] = deque()
        self._durable = 0
        self._lone_reads = LoneReads()
        self._end = SourceEnd(store)
        self._tables = TablesFirst(parts.first, self._spec.name) if parts.first.names else None
        self.partitions = Partitions(parts, store, lambda: self._end.ended, now_us)
        self.partitions.look(now_us)

    def intake(self, waiting: int, now_us: int, watermark: int) -> int:
        return 0

    def wakes_at(self, now_us: int) -> int:
        if self._end.finishing and self._end.due(self.unfinished() == 0):
            return now_us
        polls = [part.next_poll_us for part in self._readable()]
        polls.append(self._settles_at(now_us))
        polls.append(self._clock_moves_at())
        polls.append(self._lists_at())
        if self._tables is not None:
            polls.append(self._tables.notes_at())
        return min(polls)

    def run(self, bundle: Bundle) -> None:
        bundle.positions_only = True
        if bundle.now_us >= self._settles_at(bundle.now_us):
            self._settle(bundle)
        # An end that is committed before the last reads are applied loses them: no later owner
        # reads on. See mistake sources_end_before_what_they_read_is_applied.
        if self._end.finishing and self._end.due(self.unfinished() == 0):
            self._end.commit(bundle)
            bundle.positions_only = False
        if bundle.now_us >= self._lists_at():
            self.partitions.look(bundle.now_us)
        self.partitions.open(bundle.now_us)
        # Of all, before any is read: a later owner goes on with a chain only where that is stored.
        for part in self.partitions.newly_chained:
            part.write(bundle.overlay)
        self.partitions.newly_chained.clear()
        if self._tables is not None:
            self._tables.note(bundle.now_us)
        ready = [part for part in self._readable() if part.next_poll_us <= bundle.now_us]
        self._move_clock(bundle)
        if ready:
            self._look_at(self.partitions.choose(ready), bundle)

    def durable(self, number: int, now_us: int) -> None:
        self._durable = max(self._durable, number)
        while self._settled and self._settled[0].commit <= number:
            settled = self._settled.popleft()
            self._parts.source.committed(settled.partition, settled.position)
            if self.avoided is not None and self.avoided.lone:
                self.avoided.ran_alone(settled.reads)

    def watched(self) -> Watched | None:
        return self._parts.chain

    def rest(self, active: bool, now_us: int) -> None:
        """Read nothing while ``active``."""
        self._end.rest(active)

    def finish(self) -> None:
        """Never read again: the input ends with the records read so far."""
        self._end.finish()

    def catch_up(self, active: bool) -> None:
        """While ``active``, a rest begins only where no earlier owner can have read further."""
        self._end.catching_up = active

    def unfinished(self) -> int:
        """How many partitions have to catch up, or have reads that are not applied and
        committed."""
        behind = self._end.catching_up
        unopened = self.partitions.unopened if behind and self._parts.to_the_ends else 0
        awake = self.partitions.awake.values()
        return unopened + sum(
            bool(part.outstanding) or (behind and not part.certain) for part in awake
        )

    def _lists_at(self) -> int:
        if self._parts.source.bounded or self._end.reads_nothing:
            return MAX_TIME
        return self.partitions.lists_at_us

    def _readable(self) -> list[Part]:
        """The partitions that may be read now: not those that wait for a commit, since a read sent
        behind an unsent one makes consumers take that for applied. Before an end, also those whose
        reads an earlier owner may have sent to some consumers and not to others: it cannot have
        read beyond the existing input."""
        # It must be that commit, not just any: see mistake any_commit_is_the_one_awaited.
        parts = [
            part
            for part in self.partitions.awake.values()
            if not part.read_all and part.awaits <= self._durable
        ]
        parts = [part for part in parts if part.ahead is None or part.ahead.has_room(part.waiting)]
        # Groups only once all that was sent as records is applied: their position is committed when
        # they are read. See mistake groups_begin_before_records_are_applied.
        parts = [part for part in parts if not part.combine.planned or part.applied]
        if self._end.reads_nothing:
            # Also while a table is left: the records were first read when none was, and a table
            # that rests as well would never end. See
            # test_what_is_read_again_for_a_savepoint_waits_for_no_table.
            return [part for part in parts if self._end.catching_up and not part.certain]
        return [] if self._parts.first.left else parts

    def hold(self, now_us: int) -> Hold:
        if self._end.ended:
            return Hold()
        hold = self.partitions.hold(now_us)
        if self._tables is not None and self._parts.first.left and hold.at < IDLE_TIME:
            return hold._replace(holder=self._tables.in_words())
        return hold

    def close(self) -> None:
        self.partitions.close()

    def look(self, now_us: int) -> None:
        """List the partitions and read them in the next bundle, because there may be new input,
        even if that was planned for later."""
        self.partitions.look(now_us)
        self.partitions.wake_all(now_us)
        if self.partitions.clock is not None:
            self.partitions.clock.look(now_us)

    # --- reading ----------------------------------------------------------------------------------

    def _look_at(self, part: Part, bundle: Bundle) -> None:
        try:
            reader = self.partitions.reader_of(part, bundle.now_us)
            if bundle.traced is not None:
                reader.tell_traces()
            if part.combine.planned:
                self._settle(bundle)
                part.combine.begin()
            if self.avoided is not None and not self.lone:
                self.avoided.together(self._parts.max_records)
            if self.lone or not (
                self._parts.has_columns(part, reader) and self._read_frame(part, reader, bundle)
            ):
                self._read(part, reader, bundle)
            part.was_read()
        except ExhaustedError as ex:
            self.partitions.exhausted(part, ex, bundle.now_us)

    def _read(self, part: Part, reader: Reader, bundle: Bundle) -> None:
        if self.avoided is not None and self.lone:
            read = self._lone_reads.read(part.partition.name, part.position, reader, self.avoided)
        else:
            most = part.most_records(self._parts.max_records)
            read = reader.read(part.position, min(most, _LOOKED_AT) if self._parts.infers else most)
        if (
            not self.lone
            and self._parts.has_types(part, reader, read)
            and self._read_frame(part, reader, bundle)
        ):
            return
        if not part.combine.on:
            _find_end(self._parts, part, reader, read, read.caught_up)
        if self._found_nothing(part, reader, read, bundle):
            return
        if read.caught_up:
            part.next_poll_us = bundle.now_us + self._poll_us
            # Perhaps no look follows: a partition that waits for one would keep others unopened.
            part.behind = False
        part.is_full = len(read) >= self._parts.max_records
        self._extend_epochs(part, read, bundle)
        self._extend_arrivals(part, read, bundle)
        # With other partitions on their way, the watermark of one is not that of all. See mistake
        # each_partition_of_several_has_the_watermark.
        labelled = self._parts.labelled and self.partitions.alone
        sorting = Sorting(
            self._parts,
            part.max_timestamp,
            part.judged,
            bundle.now_us,
            part.epochs,
            labelled,
            None if part.arrivals is None else part.arrivals.times,
        )
        outcome = sorting.sort(part.partition.name, read)
        plain = not outcome.letters and not sorting.newly_judged and bundle.traced is None
        plain = plain and not part.with_results
        groups = (
            part.combine.groups(self._parts.combining, outcome.batches, len(read))
            if plain
            else None
        )
        if part.combine.on and groups is None and not part.with_results:
            part.leave_groups(bundle)  # and nothing else: it is read again
            return
        if part.combine.on:
            _find_end(self._parts, part, reader, read, read.caught_up)
        part.silence.records_came(bundle.now_us)
        sorting.judge(bundle, len(read) + len(read.rejects))
        part.judge(sorting.newly_judged, bundle.overlay)
        if sorting.newly_judged:
            # "Too far in the future" is a judgement by the clock. A second reading, later, would
            # find these records in time and send them under positions that consumers take for
            # applied, or miss: see test_a_record_too_far_in_the_future_never_costs_its_neighbours.
            part.await_commit(bundle)
        if bundle.traced is not None:
            bundle.traced.read(part.channel, read.positions, read.traces, outcome.batches)
        part.move(read, sorting.max_timestamp)
        if groups is None:
            self._send(part, outcome, bundle)
        else:
            self._commit(part, groups, outcome.counters, bundle)

    def _found_nothing(
        self, part: Part, reader: Reader, read: Read | FrameChunk, bundle: Bundle
    ) -> bool:
        """True when a look found nothing to send. Then look again soon; less often when it has been
        silent for long."""
        if read.begins is not None:
            # Durable before anything behind it is read: see mistake decisions_are_not_stored.
            part.decide(*read.begins, bundle.overlay)
            part.await_commit(bundle)
        if len(read) or read.rejects or read.finished or read.next_position > part.position:
            return False
        if read.begins is not None:
            return True
        _find_end(self._parts, part, reader, read, caught_up=True)
        part.behind = False
        part.silence.nothing(bundle.now_us)
        pause = max(
            self._poll_us,
            min(part.silence.lasted_us // _SILENCE_PER_PAUSE, _LONGEST_PAUSE * self._poll_us),
        )
        part.next_poll_us = bundle.now_us + pause
        self.partitions.fall_asleep(part, bundle.now_us)
        return True

    def _extend_epochs(self, part: Part, read: Read | FrameChunk, bundle: Bundle) -> None:
        """Decide how keys are divided in records that were never read before, if this read has
        some."""
        # A table in memory only, or one for records that an earlier owner may have sent: those come
        # to another instance than the one that has them. See mistake hot_keys_are_found_anew.
        if part.extend_epochs(read.next_position, bundle.overlay, bundle.now_us):
            part.await_commit(bundle)

    def _extend_arrivals(self, part: Part, read: Read | FrameChunk, bundle: Bundle) -> None:
        """Give a time to records that were never read before, where that is the timestamp."""
        # Were it sent before that is durable, one consumer could have it with this time, and
        # another, after a crash, with a later one: see mistake
        # arrivals_sent_before_they_are_stored.
        if part.arrivals is not None and part.arrivals.extend(
            part.position, read.next_position, bundle.now_us, bundle.overlay
        ):
            part.await_commit(bundle)

    def _clock_moves_at(self) -> int:
        clock = self.partitions.clock
        return MAX_TIME if clock is None or self._end.reads_nothing else clock.moves_at_us

    def _move_clock(self, bundle: Bundle) -> None:
        """Move a silent source with the wall clock, as durably as with its records."""
        clock = self.partitions.clock
        if clock is not None and bundle.now_us >= self._clock_moves_at():
            clock.move(bundle.now_us, bundle.overlay)
            bundle.positions_only = False

    def _read_frame(self, part: Part, reader: Reader, bundle: Bundle) -> bool:
        """Read columns. False when there are none, or when each record must be examined."""
        guessed = self._parts.guessed
        checked = guessed or self._parts.whole
        needs, fields = (
            (self._parts.needs, self._spec.fields)
            if guessed is None
            else (guessed.names, guessed.fields)
        )
        if self._parts.whole is not None:
            needs, fields = frozenset(self._parts.whole.fields), self._parts.whole.fields
        most_bytes, read = part.most_bytes, None
        with suppress(Inexact), self._boundary.inside(bundle.count):
            read = reader.read_frame(part.position, most_bytes)
        if read is None or needs is None or fields is None:
            if checked is not None:
                checked.missed()
            return False
        if self._found_nothing(part, reader, read, bundle):
            part.size.note(False)
            return True
        self._extend_epochs(part, read, bundle)
        self._extend_arrivals(part, read, bundle)
        times = None if part.arrivals is None else part.arrivals.times
        split = partial(self._parts.fanout.split_columns, epochs=part.epochs)
        spec, outcome = replace(self._spec, fields=fields), None
        with suppress(Inexact), self._boundary.inside(bundle.count):
            outcome = sort_frame(
                read,
                spec,
                needs,
                part.max_timestamp,
                bundle.now_us,
                split,
                part.partition.name,
                times,
            )
        if outcome is None:
            part.rows_until = read.next_position
            if checked is not None:
                checked.missed()
            return False
        part.is_full = len(read) * _PER_FULL >= self._parts.max_records
        if checked is not None:
            checked.hit()
        part.silence.records_came(bundle.now_us)
        part.note_size(most_bytes, len(read))
        part.size.note(read.next_position > part.position and not read.finished)
        groups = (
            None
            if part.with_results
            else part.combine.groups(self._parts.combining, outcome.batches, len(read))
        )
        if part.combine.on and groups is None and not part.with_results:
            return False
        _find_end(self._parts, part, reader, read, caught_up=False)
        bundle.try_(LINE, len(read))
        bundle.try_(UNIT, len(read))
        bundle.try_(keys_of(self._spec.name), len(read))
        counters = {"records_in": len(read)}
        if outcome.late and self._parts.fanout.drops_late(self._spec.name):
            counters["late"] = outcome.late
        if bundle.traced is not None:
            bundle.traced.read(part.channel, read.positions, read.traces, outcome.batches)
        part.move(read, outcome.max_timestamp)
        if groups is None:
            self._send(part, Sorted(outcome.batches, {}, counters), bundle)
        else:
            self._commit(part, groups, counters, bundle)
        return True

    def _commit(
        self, part: Part, groups: list[AnyBatch], counters: dict[str, int], bundle: Bundle
    ) -> None:
        """Produce groups. The position behind their records is part of the commit."""
        for batch in groups:
            bundle.outputs.produce_groups(batch)
        for name, by in counters.items():
            bundle.count(name, by)
        bundle.positions_only = False
        after = Position(
            part.position, part.max_timestamp, part.read_all, part.note, with_results=True
        )
        self._write(part, after, bundle, 1)

    def _write(self, part: Part, after: Position, bundle: Bundle, reads: int) -> None:
        """Make a position part of the commit."""
        part.commit(after, bundle.overlay)
        self._settled.append(
            _Settled(bundle.number, part.partition, part.committed.position, reads)
        )
        if self.avoided is not None and self._lone_reads.skipped:
            name, position = part.partition.name, part.committed.position
            self._lone_reads.committed(name, position, self.avoided, bundle.number)
        if part.committed.finished:
            part.close()
            bundle.positions_only = False

    def _send(self, part: Part, outcome: Sorted, bundle: Bundle) -> None:
        """Send a read to its consumers; its position is committed once every consumer has applied
        it. Chained operators take it here, in one commit with the position.

        Dead letters are numbered by positions as well. So the letters of each node have a channel
        of their own, and a consumer of several nodes' letters keeps a high-water mark for each."""
        if part.with_results:
            pass_on(self._parts, part, outcome, bundle)
            self._commit(part, [], outcome.counters, bundle)
            return
        # On the channel of the records, their high-water mark would cut letters off. On one channel
        # for all nodes, the letter of the second node would pass for a copy: see mistake
        # letters_numbered_with_the_records and mistake one_channel_for_the_letters_of_all.
        chunks = [part.chunk(part.channel, outcome.batches)]
        for name, letters in outcome.letters.items():
            channel = letters_channel(self._parts.node, name, part.partition.name)
            shares, _ = self._parts.fanout.split(letters, letters.values)
            chunks.append(part.chunk(channel, shares))
        records = waited = 0
        if part.ahead is not None:
            records = sum(len(batch) for _, batch in outcome.batches)
            waited = part.waiting + records
        part.outstanding.append(
            Outstanding(chunks, part.after(), outcome.counters, records, waited, bundle.now_us)
        )
        bundle.chunks += chunks

    def _settles_at(self, now_us: int) -> int:
        """When positions are to be committed (wall clock, µs; MAX_TIME: there is nothing to
        commit).

        A position that is committed late only means that more is read again after a crash. So
        positions wait for each other, except at the end of a partition, where the run waits for the
        last one."""
        applied = [
            part
            for part in self.partitions.awake.values()
            if part.outstanding and part.outstanding[0].applied
        ]
        if not applied:
            return MAX_TIME
        if self._end.reads_nothing or any(part.read_all for part in applied):
            return now_us
        return self._settled_at_us + self._parts.settle_us

    def _settle(self, bundle: Bundle) -> None:
        """Commit the positions up to which all reads, in order, have been applied. Consumers that
        wait for the end of a source wait for the last of these."""
        self._settled_at_us = bundle.now_us
        for part in self.partitions.awake.values():
            after, reads = part.committed, 0
            # Applied, and in order. A position that is committed when it is read loses the records
            # that are still on their way when the worker dies: see mistake
            # position_committed_when_read.
            while part.outstanding and part.outstanding[0].applied:
                settled = part.outstanding.popleft()
                after, reads = settled.after, reads + 1
                if part.ahead is not None:
                    part.ahead.applied(settled.waited, settled.sent_at_us, bundle.now_us)
                for name, by in settled.counters.items():
                    bundle.count(name, by)
            if reads:
                self._write(part, after, bundle, reads)


def _find_end(
    parts: SourceParts, part: Part, reader: Reader, read: Read | FrameChunk, caught_up: bool
) -> None:
    """Note after a read that no earlier owner can have read further; in a run that ends once it has
    caught up, that this partition has caught up. A bounded one has when it has ended."""
    if part.certain or read.finished or not caught_up or not parts.to_the_ends:
        part.certain = part.certain or read.finished or caught_up
    elif not parts.source.bounded:
        part.certain = reader.reached(read.next_position)
    part.combine.alone |= part.certain


def pass_on(parts: SourceParts, part: Part, outcome: Sorted, bundle: Bundle) -> None:
    """Let the chain behind the source take a read. Its output, and the unusable records, are
    productions of the bundle."""
    assert parts.chain is not None
    parts.chain.take([batch for _, batch in outcome.batches], part.channel, bundle)
    for letters in outcome.letters.values():
        for key, value, at in zip(letters.keys, letters.values, letters.timestamps, strict=True):
            bundle.outputs.produce(DEAD_LETTERS, key, value, at)
