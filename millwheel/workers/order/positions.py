"""Which event-time timers of a callback fire before a record: those that the watermark at its position has passed.

A record's **label** is the watermark of its source partition at its position, or at that of its cause: a function of
the input. The watermark of the shard is none, because it depends on how much is read at once, on reports, and on who
dies. But it never passes the label of a record that is still to come. So a timer that a label has made due can come
before the record in every run, and nothing else is due by then.

If all records of a shard come from one partition, a label is the watermark of all its input: the shard **follows** it.
Behind other computations, records of other keys may be on their way, with lower labels. There a record **waits**, if a
timer of its key is to fire before it: it is put aside until the watermark has reached its label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

from millwheel.core.formats.store_layout import number8, number_from8
from millwheel.core.model.keys import Key
from millwheel.core.model.records import NO_LABEL, Batch, Domain, Record
from millwheel.core.model.timers import Due, TimerQueue
from millwheel.core.model.times import MIN_TIME
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.order.ordering import put_aside, taken_back
from millwheel.workers.state.cells import TTL_TAG
from millwheel.workers.state.overlay import Overlay

T = TypeVar("T")
ASIDE_TAG = "\U0010ffffr"
"""How the tags of records begin that are put aside: behind those of a callback's timers of the same time."""


def label_bytes(label: int) -> bytes:
    """What a timer keeps that a call has set for a time before its own label."""
    return number8(label)


def label_of(due: Due, has_cause: bool) -> int:
    """The label of a timer's call: its time, or the label of the call that has set it for an earlier one, if that has
    one. So the labels of a key's calls never fall."""
    if due.tag.startswith(ASIDE_TAG):
        return due.at + 1
    return max(due.at, number_from8(due.cause)) if due.cause and not has_cause else due.at


@dataclass(slots=True)
class _Waiting:
    """The records of one key that were put aside: how many, and until when the last of them waits."""

    count: int = 0
    until: int = MIN_TIME

    def add(self, until: int) -> None:
        self.count, self.until = self.count + 1, max(self.until, until)

    def less(self) -> bool:
        """One has come; True when it was the last."""
        self.count -= 1
        return not self.count


class Positions:
    """The records of one shard among its timers. ``follows``: see the module."""

    def __init__(self, overlay: Overlay, decode: Callable[[str, list[Any]], list[Any]], follows: bool) -> None:
        self.follows = follows
        self._overlay = overlay
        self._decode = decode
        self._number = 0
        self._waiting: dict[Key, _Waiting] | None = None
        self._changed = False

    def none_wait(self, bundle: Bundle) -> bool:
        """Whether no record is put aside."""
        return not self._waiting_in(bundle.timers[Domain.EVENT])

    def rows(
        self, rows: Iterable[T], batch: Batch, bundle: Bundle, begin: Callable[[int], None], fire: Callable[[], None]
    ) -> Iterator[T]:
        """Those that come now, each behind a call of ``begin`` with its label. ``fire`` lets the timers come that the
        clock of the bundle has passed."""
        labels = repeat(NO_LABEL, len(batch)) if batch.labels is None else map(int, batch.labels)
        for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
            if self._comes(batch, index, label, bundle, fire):
                begin(label)
                yield row

    def _comes(self, batch: Batch, index: int, label: int, bundle: Bundle, fire: Callable[[], None]) -> bool:
        queue = bundle.timers[Domain.EVENT]
        if label == NO_LABEL:
            waiting = self._waiting_in(queue)
            if waiting and (those := waiting.get(batch.keys[index])) is not None:
                # It must not overtake those of its sender that wait.
                self._put_aside(batch, index, those.until, bundle)
                return False
            return True
        if self.follows and label > bundle.clock:
            bundle.clock = label
        if queue.earliest() >= label:
            return True
        if self.follows:
            fire()
        # Also where more timers are due than may fire in one bundle.
        if queue.first_of(batch.keys[index], _matters) >= label:
            return True
        self._put_aside(batch, index, label - 1, bundle)
        return False

    def _put_aside(self, batch: Batch, index: int, until: int, bundle: Bundle) -> None:
        self._number += 1
        key = batch.keys[index]
        # In the order of arrival, which is that of production for the records of one sender's key, however its shards
        # are divided meanwhile.
        named = (
            f"{batch.seqs[index]:020d}" if self.follows and batch.seqs else f"{bundle.number:020d}:{self._number:020d}"
        )
        tag = ASIDE_TAG + named
        put_aside(self._overlay, tag, batch, index, batch.timestamps[index])
        bundle.timers[Domain.EVENT].set(key, tag, until)
        self._changed = True
        if self._waiting is not None:
            self._waiting.setdefault(key, _Waiting()).add(until)

    def take(self, due: Due) -> Record:
        """The record that waited until then."""
        self._changed = True
        if self._waiting is not None and self._waiting[due.key].less():
            del self._waiting[due.key]
        return taken_back(self._overlay, self._decode, due)

    def forget(self) -> None:
        """The bundle is taken back."""
        if self._changed:
            self._waiting = None

    def _waiting_in(self, queue: TimerQueue) -> dict[Key, _Waiting]:
        if self._waiting is None:
            self._waiting, self._changed = {}, False
            for key, tag, at in queue.items():
                if tag.startswith(ASIDE_TAG):
                    self._waiting.setdefault(key, _Waiting()).add(at)
        return self._waiting


def _matters(tag: str) -> bool:
    """Whether a timer must come before a record that finds it due. Reads of state go by times, not by its removal."""
    return not tag.startswith(TTL_TAG)
