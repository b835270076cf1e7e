"""Sorts the records that a source has read: for the consumers, late, or dead letters."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from millwheel.connect.sources.base import Chunk as Read
from millwheel.core.columns.batch import AnyBatch
from millwheel.core.formats.codec import encode_value
from millwheel.core.instants.numbers import NO_UNIT
from millwheel.core.model.failures import KINDS, UNIT
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch, DeadLetter, without
from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.core.windows.lateness import (
    is_too_far,
    labels_of,
    late_mask,
    late_rows,
    none_late,
    too_far,
    watermark_after,
)
from millwheel.engine.workers.bundle.bundle import (
    LINE,
    Bundle,
    beginning,
    keys_of,
    kind_in,
    plain_letter,
)
from millwheel.engine.workers.bundle.value_sizes import carried
from millwheel.engine.workers.delivery.consumer_keys import Dividing, Keyless
from millwheel.engine.workers.delivery.timestamps import Stamps, TimesOf, column_of, extent
from millwheel.engine.workers.sources.source_parts import SourceParts

Batches = list[tuple[NodeName, AnyBatch]]
_Stamps = Stamps | list[int]


@dataclass(frozen=True, slots=True)
class Sorted:
    """A read as batches for the consumers, and its dead letters by the node that could not use the
    record, not split among their consumers. A record has at most one letter of each node, so its
    position numbers the letter. ``counters`` count what was read."""

    batches: Batches
    letters: dict[str, Batch]
    counters: dict[str, int]


class Sorting:
    """Sorts one read into records for the consumers, late ones, and dead letters."""

    def __init__(
        self,
        parts: SourceParts,
        max_timestamp: int,
        judged: set[int],
        now_us: int,
        epochs: Dividing = None,
        labelled: bool = False,
        times: TimesOf | None = None,
    ) -> None:
        """``labelled``: the records get labels. ``times``: those of arrival, where these are the
        timestamps."""
        self._parts = parts
        self._spec = parts.stream
        self._judged = judged
        self._now = now_us
        self._epochs = epochs
        self._labelled = labelled
        self._times = times
        self._letters: list[tuple[int, DeadLetter]] = []
        self._stated = False
        self._size = 0
        self.newly_judged: list[int] = []
        self.max_timestamp = max_timestamp

    def sort(self, partition: str, read: Read) -> Sorted:
        """Deterministic but for judgements by the clock."""
        counters = {"records_in": len(read) + len(read.rejects)}
        self._stated = read.watermark is not None and self._times is None
        for reject in read.rejects:
            self._letter(reject.position, partition, reject.reason, reject.raw)
        stamps, problems = (
            self._parts.timestamps.stamps(read.values)
            if self._times is None
            else (self._times(read.positions), {})
        )
        self._size, uncarried = carried(read.values, self._parts.limits.record)
        problems.update(uncarried)
        for index, reason in problems.items():
            raw = read.values[index]
            self._letter(
                read.positions[index],
                partition,
                reason,
                beginning(raw) if index in uncarried else raw,
            )
        bad = set(problems) | self._too_far(partition, read, stamps, problems)
        first = self.max_timestamp
        late = self._late(stamps, bad)
        if late and self._parts.fanout.drops_late(self._spec.name):
            counters["late"] = len(late)
        batch = self._batch(partition, read, stamps, bad)
        # Where a source states its watermarks, they lie between its reads, and those may be cut
        # otherwise next time.
        if self._labelled and not self._stated and len(batch):
            batch.labels = labels_of(batch.held_timestamps, first, self._spec.max_delay_us)
        out, keyless = self._split(batch, _moved(late, bad))
        for missing in keyless:
            index = missing.index
            about = batch.values[index], batch.timestamps[index]
            self._letter(
                batch.seqs[index], partition, missing.reason, about[0], missing.node, about[1]
            )
        letters: dict[str, Batch] = {}
        if self._letters:
            counters["dead_letters"] = len(self._letters)
            for _, letter in self._letters:
                kind = KINDS + kind_in(letter)
                counters[kind] = counters.get(kind, 0) + 1
            letters = self._dead_letters(self._floors(first, read.positions, stamps, bad))
        if self._stated and read.watermark is not None and read.watermark > MIN_TIME:
            self.max_timestamp = max(self.max_timestamp, read.watermark + self._spec.max_delay_us)
        return Sorted(out, letters, counters)

    @property
    def letters(self) -> list[DeadLetter]:
        """The unusable records."""
        return [letter for _, letter in self._letters]

    def judge(self, bundle: Bundle, read: int) -> None:
        """Report the unusable lines of a read to a step."""
        keys = keys_of(self._spec.name)
        bundle.try_(LINE, read)
        bundle.try_(keys, read)
        bundle.try_(UNIT, read)
        for _, letter in self._letters:
            bundle.fail(letter, LINE if letter.computation == self._parts.node else keys)
            if letter.reason.startswith(NO_UNIT):
                bundle.fail(letter, UNIT)

    def _split(self, batch: Batch, late: set[int]) -> tuple[Batches, list[Keyless]]:
        result = (
            None
            if self._parts.beside is None
            else self._parts.beside.split(batch, late, self._epochs)
        )
        return (
            self._parts.fanout.split(batch, batch.values, late, self._epochs)
            if result is None
            else result
        )

    def _too_far(
        self, partition: str, read: Read, stamps: _Stamps, problems: dict[int, str]
    ) -> set[int]:
        limit = self._spec.max_future_us
        if limit is None or not len(stamps):
            return set()
        if not is_too_far(extent(stamps)[1], self._now, limit) and not self._judged:
            return set()
        far = {
            index
            for index, stamp in enumerate(_listed(stamps))
            if index not in problems
            and (is_too_far(stamp, self._now, limit) or read.positions[index] in self._judged)
        }
        for index in sorted(far):
            position = read.positions[index]
            if position not in self._judged:
                self.newly_judged.append(position)
            self._letter(
                position, partition, too_far(int(stamps[index]), limit), read.values[index]
            )
        return far

    def _late(self, stamps: _Stamps, bad: set[int]) -> set[int]:
        good = [index for index in range(len(stamps)) if index not in bad] if bad else None
        times = stamps if good is None else _picked(stamps, good)
        if not len(times):
            return set()
        delay, first = self._spec.max_delay_us, self.max_timestamp
        lowest, highest = extent(times)
        if not self._stated:
            self.max_timestamp = max(first, highest)
        if none_late(lowest, self.max_timestamp, delay):
            return set()
        # Against the records before it in the partition, not against those of earlier reads: the
        # size of a read must not decide which records are late. See
        # test_who_is_late_does_not_depend_on_how_much_is_read_at_once.
        late = _late_of(times, first, delay, self._stated)
        return set(late if good is None else [good[index] for index in late])

    def _batch(self, partition: str, read: Read, stamps: _Stamps, dropped: set[int]) -> Batch:
        values = read.values
        ids = column_of(values, self._spec.id) if self._spec.id else None
        keys = (
            [partition if each is None else each for each in ids]
            if ids
            else [partition] * len(values)
        )
        batch = Batch(
            self._spec.name, read.held_positions, stamps, keys, values, ids, self._now, self._size
        )
        return without(batch, sorted(dropped)) if dropped else batch

    def _letter(
        self,
        position: int,
        partition: str,
        reason: str,
        raw: Any,
        node: str = "",
        timestamp: int | None = None,
    ) -> None:
        letter = DeadLetter(
            self._parts.pipeline,
            node or self._parts.node,
            self._spec.name,
            reason,
            value=raw,
            timestamp=timestamp,
            what=keys_of(self._spec.name) if node else LINE,
            position=f"{partition}@{position}",
        )
        self._letters.append((position, letter))

    def _floors(
        self, first: int, positions: list[int], stamps: _Stamps, bad: set[int]
    ) -> list[int]:
        """A timestamp for each letter: the watermark of the partition there, which another read
        that begins elsewhere finds, too. (Where the source states its watermarks, the one at the
        beginning of the read.)"""
        # Not the watermark before the read: that begins elsewhere after a crash. See mistake
        # letters_stamped_with_the_read.
        self._letters.sort(key=lambda pair: pair[0])
        if self._times is not None:
            return _listed(self._times([position for position, _ in self._letters]))
        highest = first
        floors: list[int] = []
        index = 0
        for position, _ in self._letters:
            while not self._stated and index < len(positions) and positions[index] < position:
                if index not in bad:
                    highest = max(highest, int(stamps[index]))
                index += 1
            floors.append(max(watermark_after(highest, self._spec.max_delay_us), 0))
        return floors

    def _dead_letters(self, timestamps: list[int]) -> dict[str, Batch]:
        letters: dict[str, Batch] = {}
        for name in dict.fromkeys(letter.computation for _, letter in self._letters):
            indexes = [
                index
                for index, (_, letter) in enumerate(self._letters)
                if letter.computation == name
            ]
            values = [plain_letter(self._letters[index][1]) for index in indexes]
            seqs, times = (
                [self._letters[index][0] for index in indexes],
                [timestamps[index] for index in indexes],
            )
            keys = [self._parts.node] * len(values)
            size = len(encode_value(values))
            letters[name] = Batch(DEAD_LETTERS, seqs, times, keys, values, None, self._now, size)
        return letters


def _listed(stamps: _Stamps) -> list[int]:
    return stamps if isinstance(stamps, list) else stamps.tolist()


def _picked(stamps: _Stamps, rows: list[int]) -> _Stamps:
    return [stamps[row] for row in rows] if isinstance(stamps, list) else stamps[rows]


def _late_of(times: _Stamps, highest_us: int, max_delay_us: int, stated: bool) -> list[int]:
    """The late rows, of a list or an array: for few records an array has more overhead."""
    if isinstance(times, list):
        return late_rows(times, highest_us, max_delay_us, stated)
    rows: list[int] = np.flatnonzero(late_mask(times, highest_us, max_delay_us, stated)).tolist()
    return rows


def _moved(late: set[int], bad: set[int]) -> set[int]:
    """The indexes of late records once the bad ones are taken out."""
    if not late or not bad:
        return late
    dropped = sorted(bad)
    return {index - bisect_left(dropped, index) for index in late}
