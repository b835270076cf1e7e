"""Chooses the partitions that a source shard looks at: the cost of a look must not grow with
partitions that are silent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from millwheel.adapters.ports import StateStore
from millwheel.adapters.waits import Wait, wait_for
from millwheel.connect.plug_ins import as_reader
from millwheel.connect.sources.base import ENDS, Partition, Reader
from millwheel.core.model.damage import checked
from millwheel.core.model.names import partition_channel
from millwheel.core.model.ranges import SPACE
from millwheel.core.model.times import IDLE_TIME, MIN_TIME, SECOND
from millwheel.engine.workers.bundle.bundle import Hold
from millwheel.engine.workers.sources.arrivals import ArrivalClock
from millwheel.engine.workers.sources.completion import ReadAhead
from millwheel.engine.workers.sources.partition import Part, open_part
from millwheel.engine.workers.sources.silence import Silence
from millwheel.engine.workers.sources.source_parts import SourceParts
from millwheel.errors import ExhaustedError

log = logging.getLogger(__name__)

_LIST_EACH_US = 200
"""The time between listings for each partition, so that listing takes a small share of a core."""
_ASLEEP_AFTER_US = 10 * SECOND  # without news: then a file is looked at, but not kept open
_UNSEEN = 500
"""Partitions of an unbounded source that are opened before all that they hold is read."""
_OPEN = 64  # partitions that are open at once
_SILENT_ABOUT_US = 60 * SECOND  # between warnings about the same trouble


class _Stand(NamedTuple):
    """The progress of some partitions: the lowest watermark of active ones, the highest of idle
    ones."""

    live: Hold | None = None
    idle: Hold | None = None


class Partitions:
    """The partitions of one source shard.

    Those that are ``awake`` have readers and are polled. Of an unbounded source whose listings have
    versions, one that has been read to its end and has been silent for ten seconds falls asleep: it
    is closed, and a listing with another version wakes it. One that no listing has any more is read
    to its end, closed and forgotten, but for its position.
    """

    def __init__(
        self, parts: SourceParts, store: StateStore, ended: Callable[[], bool], now_us: int
    ) -> None:
        self._parts = parts
        self._store = store
        self._ended = ended
        self.lists_at_us = 0
        """When they are to be listed again (wall clock)."""
        self._listed = 0
        self._unknown = False
        self._only: str | None = ""
        self.awake: dict[str, Part] = {}
        self._asleep: dict[str, Part] = {}
        self._unopened: dict[str, Partition] = {}
        self._asleep_stand = _Stand()
        self._warned_at_us = -_SILENT_ABOUT_US
        self.clock = ArrivalClock(store, parts.clock_runs) if parts.stream.arrival else None
        """Where timestamps are times of arrival."""
        self.newly_chained: list[Part] = []
        """Chained partitions that the store does not mark as such yet."""
        parts.fellows.began_us = now_us

    @property
    def _bounded(self) -> bool:
        return self._parts.source.bounded

    # --- listing ----------------------------------------------------------------------------------

    @property
    def _listing(self) -> Wait:
        """The wait for a list, or for something in it."""
        return wait_for(f"stream {self._parts.stream.name}")

    def look(self, now_us: int) -> None:
        """List the partitions."""
        try:
            listed = {partition.name: partition for partition in self._parts.partitions()}
        except ExhaustedError as ex:
            self._list_again(now_us)
            self._unknown = not self._listed
            self._listing.noted(str(ex))
            self._warn(ex, now_us)
            return
        self._listed, self._unknown = len(listed), False
        self._list_again(now_us)
        self._only = next(iter(listed), "") if self._only == "" else self._only
        self._only = self._only if listed.keys() <= {self._only} else None
        if listed or self._bounded:
            self._listing.over()
        else:
            self._listing.noted(self._parts.source.absent)
        for name, partition in listed.items():
            if (part := self.awake.get(name)) is not None:
                part.partition, part.gone_at_us = partition, None
            elif (part := self._asleep.get(name)) is not None:
                self._look_at_sleeper(part, partition, now_us)
            elif name not in self._unopened and self._parts.mine(name):
                self._unopened[name] = partition
        if not self._bounded:
            self._look_for_gone(listed, now_us)
        self._asleep_stand = self._stand_of(self._asleep.values())
        self.open(now_us)

    def _list_again(self, now_us: int) -> None:
        self.lists_at_us = now_us + max(self._parts.source.list_us, self._listed * _LIST_EACH_US)

    def open(self, now_us: int) -> None:
        """Open listed partitions, not many more at once than can be read."""
        room = len(self._unopened)
        if not self._bounded:
            room = min(room, _UNSEEN - sum(part.behind for part in self.awake.values()))
        for name in list(self._unopened)[: max(room, 0)]:
            idle_after_us = None if self._bounded else self._parts.stream.idle_after_us
            to_the_ends = self._parts.to_the_ends
            silence = Silence(None if to_the_ends else idle_after_us, now_us)
            certain = (self._parts.first_owner and not to_the_ends) or self._ended()
            channel = partition_channel(self._parts.node, name)
            rules = self._parts.rules
            part = self.awake[name] = open_part(
                self._unopened.pop(name), channel, self._store, silence, certain, rules, self.clock
            )
            part.combine.alone = (
                part.certain or part.committed.with_results or self._parts.first_owner
            )
            if self._parts.chain is not None and part.chain(self._parts.first_owner):
                self.newly_chained.append(part)
            if self._parts.completion is not None:
                part.completion, part.ahead = self._parts.completion(), ReadAhead()
            part.idles = to_the_ends and idle_after_us is not None
            # the former owner may have died before it reported the position to the source
            if part.position:
                self._parts.source.committed(part.partition, part.position)

    def _look_at_sleeper(self, part: Part, partition: Partition, now_us: int) -> None:
        if partition.version == part.partition.version:
            part.silence.nothing(now_us, closely=True)
            return
        part.partition, part.next_poll_us = partition, now_us
        self.awake[partition.name] = self._asleep.pop(partition.name)

    def _look_for_gone(self, listed: dict[str, Partition], now_us: int) -> None:
        for name in self._unopened.keys() - listed.keys():
            del self._unopened[name]
        # A name that is gone is looked at once more, since it may have got something before it
        # went, and then closed. If none ever were, the worker would run out of open files: see
        # mistake files_that_are_gone_stay_open.
        for name in self._asleep.keys() - listed.keys():
            self._asleep[name].next_poll_us = now_us
            self.awake[name] = self._asleep.pop(name)
        for name in self.awake.keys() - listed.keys():
            part = self.awake[name]
            if part.gone_at_us is None or part.silence.record_at_us >= part.gone_at_us:
                part.gone_at_us = now_us
            elif (
                part.silence.looked_at_us > part.gone_at_us
                and not part.outstanding
                and part.certain
            ):
                part.close()
                del self.awake[name]

    @property
    def alone(self) -> bool:
        """Whether the source has had no more than one partition so far, in all shards."""
        return self._only is not None

    @property
    def unopened(self) -> int:
        """How many partitions were listed, but not opened yet."""
        return len(self._unopened)

    def fall_asleep(self, part: Part, now_us: int) -> None:
        """Stop polling a partition after a look that found nothing, if it needs none for now."""
        if part.partition.version is None or part.outstanding or part.gone_at_us is not None:
            return
        # The versions of these do not change: a sleeping one would never wake, although a broker
        # was only slow to answer.
        if self._bounded or (self._parts.to_the_ends and not part.certain):
            return
        if max(part.silence.lasted_us, now_us - part.partition.changed_at) >= _ASLEEP_AFTER_US:
            part.close()
            self._asleep[part.partition.name] = self.awake.pop(part.partition.name)
            self._asleep_stand = self._stand_of([part], self._asleep_stand)

    def wake_all(self, now_us: int) -> None:
        """Look at each of them soon."""
        self.awake |= self._asleep
        self._asleep.clear()
        self._asleep_stand = _Stand()
        for part in self.awake.values():
            part.next_poll_us = now_us

    # --- readers ----------------------------------------------------------------------------------

    def choose(self, ready: list[Part]) -> Part:
        """The partition to read next: the one that is furthest behind; of those that are open, if
        too many are."""
        if self._bounded and sum(part.reader is not None for part in self.awake.values()) >= _OPEN:
            ready = [part for part in ready if part.reader is not None] or ready
        return min(ready, key=lambda part: part.max_timestamp)

    def reader_of(self, part: Part, now_us: int) -> Reader:
        """Its reader, opened if it must be. Raises ExhaustedError when that cannot be now."""
        if part.reader is None:
            opened = [other for other in self.awake.values() if other.reader is not None]
            if not self._bounded and len(opened) >= _OPEN:
                min(opened, key=lambda other: other.silence.record_at_us).close()
            part.reader = as_reader(self._parts.source.open(part.partition))
            part.reader.resume(part.notes())
            if self._parts.to_the_ends and part.partition.version is not None and not self._bounded:
                part.reader.stop_at(part.partition.version)
        return part.reader

    def exhausted(self, part: Part, error: ExhaustedError, now_us: int) -> None:
        """It cannot be read now: try again in a second, with one file less if one can be closed."""
        part.close()
        if part.wait is None:
            part.wait = wait_for(
                f"stream {self._parts.stream.name} (partition {part.partition.name})"
            )
        part.wait.noted(str(error))
        part.next_poll_us = now_us + SECOND
        opened = [other for other in self.awake.values() if other.reader is not None]
        if opened and not self._bounded:
            min(opened, key=lambda other: other.silence.record_at_us).close()
        self._warn(error, now_us)

    def _warn(self, error: ExhaustedError, now_us: int) -> None:
        if now_us >= self._warned_at_us + _SILENT_ABOUT_US:
            self._warned_at_us = now_us
            log.warning("%s", error)

    def close(self) -> None:
        """Close all readers."""
        for part in self.awake.values():
            part.close()

    # --- watermarks -------------------------------------------------------------------------------

    def hold(self, now_us: int) -> Hold:
        """The source's watermark: the lowest of the partitions that are not idle; if all are idle,
        the time that silence has reached, or that of the furthest stream that meets this one
        further down."""
        if self._unknown:  # if it counted as idle, event time could pass unlisted partitions
            return Hold(MIN_TIME, "its partitions are not known yet")
        # Unopened partitions may hold anything. Without this hold, a folder of many old files is
        # late before it is read.
        if self._unopened:
            return Hold(MIN_TIME, f"partition {next(iter(self._unopened))}: not opened yet")
        if self.clock is not None:
            return self._arrival_hold(self.clock)
        stand = self._stand_of(self.awake.values(), self._asleep_stand)
        if stand.live is not None:
            return stand.live
        if self._bounded:
            return stand.idle or Hold()
        idle = stand.idle or Hold(IDLE_TIME, "no partition yet, or nothing in any")
        fellows_us = self._fellows_us(now_us)
        return idle if fellows_us <= idle.idle_us else idle._replace(idle_us=fellows_us)

    def _arrival_hold(self, clock: ArrivalClock) -> Hold:
        """The hold where timestamps are times of arrival: records that are read again have an
        earlier one."""
        unread = [
            part for part in self.awake.values() if not (part.read_all and part.committed.finished)
        ]
        if self._bounded and not unread:
            return Hold()
        at = min((part.standing(0)[0] for part in unread), default=clock.at_us)
        return Hold(at, "nothing has arrived since")

    def _fellows_us(self, now_us: int) -> int:
        """How far the other streams let event time pass here, now that no partition is awake."""
        idle_after_us, fellows = self._parts.stream.idle_after_us, self._parts.fellows
        if idle_after_us is None:
            return MIN_TIME
        silent = self._parts.to_the_ends or bool(self.awake or self._asleep)
        return (
            fellows.reached_us(now_us)
            if silent or now_us - fellows.began_us > idle_after_us
            else MIN_TIME
        )

    def _stand_of(self, parts: Iterable[Part], stand: _Stand | None = None) -> _Stand:
        live, idle = (None, None) if stand is None else stand
        for part in parts:
            if part.read_all and part.committed.finished:
                continue
            name = part.partition.name
            watermark, idle_now = part.standing(self._parts.stream.max_delay_us)
            if idle_now and not part.read_all:
                idle_us = watermark + part.silence.progress_us
                if part.max_timestamp > MIN_TIME and (idle is None or idle_us > idle.idle_us):
                    idle = Hold(IDLE_TIME, f"partition {name}, {part.idle_in_words}", idle_us)
            elif live is None or watermark < live.at:
                live = Hold(watermark, self._live_in_words(part))
        return _Stand(live, idle)

    def _live_in_words(self, part: Part) -> str:
        name = part.partition.name
        if part.read_all:
            return f"partition {name}: its end is not committed yet"
        if part.max_timestamp == MIN_TIME:
            return f"partition {name}: nothing read from it yet"
        return f"partition {name}, read up to position {part.position}"


decode_partitions = checked(
    msgspec.json.Decoder(list[Partition]).decode, "the partitions of a source (inputs/)"
)


def kept_ends(root: Path) -> dict[str, Sequence[Partition]]:
    """By stream: where unbounded sources ended when a run began that ends once it has caught up;
    else nothing."""
    paths = (root / "inputs").glob(f"*{ENDS}")
    return {path.name.removesuffix(ENDS): decode_partitions(path.read_bytes()) for path in paths}


def spread_of(partitions: Sequence[Partition]) -> dict[str, int]:
    """Positions in the key space for a list of partitions that never changes: evenly, where hashes
    would crowd some shards and leave others without any."""
    count = len(partitions)
    return {
        partition.name: (2 * number + 1) * SPACE // (2 * count)
        for number, partition in enumerate(partitions)
    }
