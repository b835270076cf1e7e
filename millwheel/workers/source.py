"""Reads the partitions of a replayable source that fall into a shard's key range.

Nothing that was read is logged: a partition's channel is numbered by its positions, reads are sent at once,
and the position is committed when every consumer has applied them. After a crash the partition is read
again from there, and consumers cut off what they have. So everything that decides about a record here is
a function of the partition's content; the one thing that is not, "its timestamp lies in the far future", is
committed before anything is sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millwheel.core.column_batch import AnyBatch
from millwheel.core.layout import JUDGED, POSITION, Position, decode_position, number8, number_from8, pack
from millwheel.core.limits import DEFAULTS, Limits
from millwheel.core.records import Batch, DeadLetter
from millwheel.core.spec import DEAD_LETTERS, StreamSpec
from millwheel.core.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND, duration_text, idle_progress
from millwheel.ports import StateStore
from millwheel.sources.base import Chunk as Read
from millwheel.sources.base import FrameChunk, Partition, Reader, Source
from millwheel.workers.carried import carried
from millwheel.workers.outbox import Chunk
from millwheel.workers.productions import earliest_of
from millwheel.workers.routing import Fanout
from millwheel.workers.source_end import SourceEnd
from millwheel.workers.source_frames import ReadSize, sort_frame
from millwheel.workers.timestamps import Stamps, Timestamps, column_of
from millwheel.workers.turn import Hold, Turn, beginning, plain_letter

_LIST_EVERY_US = SECOND


@dataclass(slots=True)
class _Outstanding:
    """A read that the consumers have not applied yet, and what it makes true once they have."""

    chunk: Chunk
    after: Position
    counters: dict[str, int]


@dataclass(slots=True)
class _Part:
    """One partition as this shard reads it. ``position`` and ``max_timestamp`` run ahead of ``committed``."""

    partition: Partition
    channel: str
    committed: Position
    position: int
    max_timestamp: int
    read_all: bool
    judged: set[int]
    heard_at: int
    reader: Reader | None = None
    next_poll: int = 0
    next_chunk: int = 1
    size: ReadSize = field(default_factory=ReadSize)
    rows_until: int = 0
    outstanding: deque[_Outstanding] = field(default_factory=deque)
    certain: bool = True


@dataclass(frozen=True, slots=True)
class SourceParts:
    """What a source shard is made of. ``partitions`` lists what there is to read, ``mine`` says which of it
    falls into this shard's range. ``needs`` are the fields that consumers want, if all of them take columns.
    ``first_owner``: nobody has read for this shard before. Positions are committed every ``settle_us``."""

    pipeline: str
    node: str
    stream: StreamSpec
    source: Source
    partitions: Callable[[], Sequence[Partition]]
    mine: Callable[[str], bool]
    fanout: Fanout
    timestamps: Timestamps
    max_records: int = 5_000
    needs: frozenset[str] | None = None
    limits: Limits = DEFAULTS
    first_owner: bool = True
    settle_us: int = 0


class SourceOperator:
    """The operator of a ``source.*`` shard."""

    def __init__(self, parts: SourceParts, store: StateStore, now: int) -> None:
        self._parts = parts
        self._store = store
        self._spec = parts.stream
        self._known: dict[str, _Part] = {}
        self._poll_us: int = getattr(parts.source, "poll_us", 50_000)
        self._list_us: int = getattr(parts.source, "list_us", _LIST_EVERY_US)
        self._listed_at = -self._list_us
        self._settled_at = 0
        self._awaiting_commit = False
        self._end = SourceEnd(store)
        self._list(now)

    def appetite(self, waiting: int, now: int, watermark: int) -> int:
        return 0

    def wakes_at(self, now: int) -> int:
        if self._end.due(self.unrest() == 0):
            return now
        settles_at = self._settles_at(now)
        if self._awaiting_commit:
            return settles_at
        polls = [part.next_poll for part in self._readable()]
        polls.append(settles_at)
        if self._lists():
            polls.append(self._listed_at + self._list_us)
        return min(polls)

    def due_at(self) -> int:
        return MAX_TIME

    def run(self, turn: Turn) -> None:
        if turn.now >= self._settles_at(turn.now):
            self._settle(turn)
        if self._end.due(self.unrest() == 0):
            self._end.commit(turn)
        if self._lists() and turn.now >= self._listed_at + self._list_us:
            self._list(turn.now)
        ready = [part for part in self._readable() if part.next_poll <= turn.now]
        if ready and not self._awaiting_commit:
            self._read(min(ready, key=lambda part: part.max_timestamp), turn)

    def durable(self, number: int, now: int) -> None:
        self._awaiting_commit = False

    def rest(self, wanted: bool, now: int) -> None:
        """Read nothing while it is wanted. The time of a rest counts for no partition as silence."""
        passed = self._end.rest(wanted, now)
        for part in self._known.values():
            part.heard_at += passed

    def finish(self) -> None:
        """Read nothing more, for ever: what was read so far is all there is."""
        self._end.finishing = True

    def catch_up(self, wanted: bool) -> None:
        """While it is wanted, a rest begins only where no earlier owner can have read further."""
        self._end.catching_up = wanted

    def unrest(self) -> int:
        """How many partitions have to catch up, or have reads that are not applied and committed."""
        behind = self._end.catching_up
        return sum(bool(part.outstanding) or (behind and not part.certain) for part in self._known.values())

    def _lists(self) -> bool:
        return not self._parts.source.bounded and not self._end.reads_nothing

    def _readable(self) -> list[_Part]:
        """What may be read now. Before an end, also what an earlier owner may have sent to some consumers and not to
        others: it cannot have read beyond what there is."""
        parts = [part for part in self._known.values() if not part.read_all]
        if self._end.reads_nothing:
            return [part for part in parts if self._end.catching_up and not part.certain]
        return parts

    def hold(self, now: int) -> Hold:
        if self._end.ended:
            return Hold()
        now = self._end.time(now)
        holds = [self._hold_of(part, now) for part in self._known.values()]
        if not holds and not self._parts.source.bounded:
            return Hold(IDLE_TIME, "no partition yet")
        return min(holds, key=lambda hold: hold.at, default=Hold())

    def close(self) -> None:
        for part in self._known.values():
            if part.reader is not None:
                part.reader.close()

    def look(self, now: int) -> None:
        """There may be new input: list the partitions and read them at the next turn, whatever was planned."""
        self._list(now)
        for part in self._known.values():
            part.next_poll = now

    # --- partitions and their watermarks -----------------------------------------------------------------

    def _list(self, now: int) -> None:
        self._listed_at = now
        for partition in self._parts.partitions():
            if partition.name not in self._known and self._parts.mine(partition.name):
                self._known[partition.name] = self._open(partition, now)

    def _open(self, partition: Partition, now: int) -> _Part:
        data = self._store.get(POSITION + partition.name.encode())
        at = Position() if data is None else decode_position(data)
        prefix = JUDGED + pack(partition.name)
        judged = {number_from8(place[len(prefix) :]) for place, _ in self._store.scan(prefix)}
        channel = f"{self._parts.node}/{partition.name}"
        certain = at.finished or self._parts.first_owner or self._end.ended
        return _Part(partition, channel, at, at.position, at.max_timestamp, at.finished, judged, now, certain=certain)

    def _hold_of(self, part: _Part, now: int) -> Hold:
        name = part.partition.name
        if part.read_all:
            if part.committed.finished:
                return Hold()
            return Hold(self._watermark(part), f"partition {name}: its end is not committed yet")
        idle_after = self._spec.idle_after_us
        silent = now - part.heard_at
        idle = (
            not self._parts.source.bounded and idle_after is not None and silent > idle_after and not part.outstanding
        )
        if part.max_timestamp == MIN_TIME:
            return Hold(IDLE_TIME if idle else MIN_TIME, f"partition {name}: nothing read from it yet")
        if idle:
            silent = idle_progress(silent)
            return Hold(self._watermark(part) + silent, f"partition {name}, idle for {duration_text(silent)}")
        return Hold(self._watermark(part), f"partition {name}, read up to position {part.position}")

    def _watermark(self, part: _Part) -> int:
        return (
            max(part.max_timestamp - self._spec.max_delay_us, MIN_TIME) if part.max_timestamp > MIN_TIME else MIN_TIME
        )

    # --- reading -----------------------------------------------------------------------------------------

    def _read(self, part: _Part, turn: Turn) -> None:
        if part.reader is None:
            part.reader = self._parts.source.open(part.partition)
        if self._parts.needs is not None and part.position >= part.rows_until and self._read_frame(part, turn):
            return
        read = part.reader.read(part.position, self._parts.max_records)
        part.certain = part.certain or read.finished or read.caught_up
        if not read.positions and not read.rejects and not read.finished and read.next_position == part.position:
            part.certain = True
            part.next_poll = turn.now + self._poll_us
            return
        part.heard_at = turn.now
        if read.caught_up:
            part.next_poll = turn.now + self._poll_us
        sorting = _Sorting(self._parts, part.max_timestamp, part.judged, turn.now)
        batches, counters = sorting.sort(part.partition.name, read)
        self._commit_judgements(part, sorting.newly_judged, turn)
        part.position, part.max_timestamp, part.read_all = read.next_position, sorting.max_timestamp, read.finished
        self._send(part, batches, counters, turn)

    def _read_frame(self, part: _Part, turn: Turn) -> bool:
        """Read columns; False when there are none to be had, or they need a look at each record."""
        needs, reader = self._parts.needs, part.reader
        read_frame = getattr(reader, "read_frame", None)
        if needs is None or read_frame is None or part.judged:
            return False
        read: FrameChunk | None = read_frame(part.position, part.size.bytes)
        if read is None:
            return False
        if not len(read) and not read.rejects and not read.finished and read.next_position == part.position:
            part.size.told(False)
            part.certain = True
            part.next_poll = turn.now + self._poll_us
            return True
        split = self._parts.fanout.split_columns
        found = sort_frame(read, self._spec, needs, part.max_timestamp, turn.now, split)
        if found is None:
            part.rows_until = read.next_position
            return False
        part.heard_at = turn.now
        part.size.told(read.next_position > part.position and not read.finished)
        part.certain = part.certain or read.finished
        counters = {"records_in": len(read)}
        if found.late:
            counters["late"] = found.late
        part.position, part.max_timestamp, part.read_all = read.next_position, found.max_timestamp, read.finished
        self._send(part, found.batches, counters, turn)
        return True

    def _send(self, part: _Part, batches: list[tuple[str, AnyBatch]], counters: dict[str, int], turn: Turn) -> None:
        """A read goes on its way; its position is committed once every consumer has applied it."""
        after = Position(part.position, part.max_timestamp, part.read_all)
        chunk = Chunk(part.next_chunk, part.channel, batches, earliest_of(batches), stored=False, read=True)
        part.next_chunk += 1
        part.outstanding.append(_Outstanding(chunk, after, counters))
        turn.chunks.append(chunk)

    def _commit_judgements(self, part: _Part, positions: list[int], turn: Turn) -> None:
        for position in positions:
            turn.overlay.put(JUDGED + pack(part.partition.name) + number8(position), b"")
            part.judged.add(position)
        if positions:
            turn.commit_before_sending = self._awaiting_commit = True

    def _settles_at(self, now: int) -> int:
        """When positions are to be committed (wall clock; MAX_TIME: there is nothing to commit). What is read meanwhile
        only has to be read again after a crash, so it waits for others, unless somebody waits for the last of it."""
        applied = [part for part in self._known.values() if part.outstanding and part.outstanding[0].chunk.finished]
        if not applied:
            return MAX_TIME
        if self._end.reads_nothing or any(part.read_all for part in applied):
            return now
        return self._settled_at + self._parts.settle_us

    def _settle(self, turn: Turn) -> None:
        """Commit the positions up to which all reads, in order, have been applied."""
        self._settled_at = turn.now
        for part in self._known.values():
            moved = False
            while part.outstanding and part.outstanding[0].chunk.finished:
                settled = part.outstanding.popleft()
                part.committed, moved = settled.after, True
                for name, by in settled.counters.items():
                    turn.count(name, by)
            if moved:
                self._write_position(part, turn)

    def _write_position(self, part: _Part, turn: Turn) -> None:
        turn.overlay.put(POSITION + part.partition.name.encode(), pack(part.committed))
        for position in [place for place in part.judged if place <= part.committed.position]:
            turn.overlay.delete(JUDGED + pack(part.partition.name) + number8(position))
            part.judged.discard(position)
        if part.committed.finished and part.reader is not None:
            part.reader.close()
            part.reader = None


class _Sorting:
    """Sorts one read into records for the consumers, late ones, and dead letters."""

    def __init__(self, parts: SourceParts, max_timestamp: int, judged: set[int], now: int) -> None:
        self._parts = parts
        self._spec = parts.stream
        self._judged = judged
        self._now = now
        self._letters: list[tuple[int, DeadLetter]] = []
        self._stated = False
        self._size = 0
        self.newly_judged: list[int] = []
        self.max_timestamp = max_timestamp

    def sort(self, partition: str, read: Read) -> tuple[list[tuple[str, AnyBatch]], dict[str, int]]:
        """(batches for the consumers, counters), deterministic but for judgements by the clock."""
        counters = {"records_in": len(read) + len(read.rejects)}
        self._stated = read.watermark is not None
        for reject in read.rejects:
            self._letter(reject.position, partition, reject.reason, reject.raw)
        stamps, problems = self._parts.timestamps.as_array(read.values)
        self._size, uncarried = carried(read.values, self._parts.limits.record)
        problems.update(uncarried)
        for place, reason in problems.items():
            raw = read.values[place]
            self._letter(read.positions[place], partition, reason, beginning(raw) if place in uncarried else raw)
        bad = set(problems) | self._too_far(partition, read, stamps, problems)
        floor = self.max_timestamp - self._spec.max_delay_us if self.max_timestamp > MIN_TIME else MIN_TIME
        late = self._late(stamps, bad)
        if late and self._parts.fanout.drops_late(self._spec.name):
            counters["late"] = len(late)
        batch = self._batch(partition, read, stamps, bad)
        out, keyless = self._parts.fanout.split(batch, batch.values, _moved(late, bad))
        for missing in keyless:
            place = missing.place
            self._letter(batch.seqs[place], partition, missing.reason, batch.values[place], missing.node)
        if self._letters:
            counters["dead_letters"] = len(self._letters)
            out += self._dead_letters(max(floor, 0))
        if read.watermark is not None and read.watermark > MIN_TIME:
            self.max_timestamp = max(self.max_timestamp, read.watermark + self._spec.max_delay_us)
        return out, counters

    def _too_far(self, partition: str, read: Read, stamps: Stamps, problems: dict[int, str]) -> set[int]:
        if self._spec.max_future_us is None or not len(stamps):
            return set()
        limit = self._now + self._spec.max_future_us
        if stamps.max() <= limit and not self._judged:
            return set()
        far = {
            place
            for place, stamp in enumerate(stamps.tolist())
            if place not in problems and (stamp > limit or read.positions[place] in self._judged)
        }
        for place in sorted(far):
            position = read.positions[place]
            if position not in self._judged:
                self.newly_judged.append(position)
            allowed = duration_text(self._spec.max_future_us)
            reason = f"timestamp {stamps[place]} µs lies more than {allowed} in the future (watermark.max_future)"
            self._letter(position, partition, reason, read.values[place])
        return far

    def _late(self, stamps: Stamps, bad: set[int]) -> set[int]:
        good = np.delete(np.arange(len(stamps)), list(bad)) if bad else None
        times = stamps if good is None else stamps[good]
        if not len(times):
            return set()
        delay, first = self._spec.max_delay_us, self.max_timestamp
        if not self._stated:
            self.max_timestamp = max(first, int(times.max()))
        if int(times.min()) >= self.max_timestamp - delay:
            return set()
        before = np.full(len(times), first, np.int64)
        if not self._stated:
            np.maximum(np.maximum.accumulate(times[:-1]), first, out=before[1:])
        late = np.flatnonzero(times + delay < before)
        return set((late if good is None else good[late]).tolist())

    def _batch(self, partition: str, read: Read, stamps: Stamps, dropped: set[int]) -> Batch:
        values, seqs, times = read.values, read.positions, stamps.tolist()
        if dropped:
            kept = [place for place in range(len(values)) if place not in dropped]
            values, seqs, times = [values[i] for i in kept], [seqs[i] for i in kept], [times[i] for i in kept]
        ids = column_of(values, self._spec.id) if self._spec.id else None
        keys = [partition if given is None else given for given in ids] if ids else [partition] * len(values)
        return Batch(self._spec.name, seqs, times, keys, values, ids, self._now, self._size)

    def _letter(self, position: int, partition: str, reason: str, raw: Any, node: str = "") -> None:
        letter = DeadLetter(
            self._parts.pipeline,
            node or self._parts.node,
            self._spec.name,
            reason,
            value=raw,
            position=f"{partition}@{position}",
        )
        self._letters.append((position, letter))

    def _dead_letters(self, timestamp: int) -> list[tuple[str, AnyBatch]]:
        self._letters.sort(key=lambda pair: pair[0])
        seqs = [position for position, _ in self._letters]
        values = [plain_letter(letter) for _, letter in self._letters]
        count = len(seqs)
        keys = [self._parts.node] * count
        batch = Batch(DEAD_LETTERS, seqs, [timestamp] * count, keys, values, None, self._now)
        return self._parts.fanout.split(batch, values)[0]


def _moved(late: set[int], bad: set[int]) -> set[int]:
    """The places of late records once the bad ones are taken out."""
    if not late or not bad:
        return late
    dropped = sorted(bad)
    return {place - bisect_left(dropped, place) for place in late}
