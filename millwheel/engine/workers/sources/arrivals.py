"""The times at which the records of a source shard arrived (``timestamp: arrival``).

A read gets one time, and that time is committed with the positions that it is for before any of
them is sent: a later owner that reads them again gives them the same time. Nothing will arrive
before the clock of the shard, which is stored as well and never goes back, even if the wall clock
of the next owner is behind. So no record of such a stream is late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from millwheel.adapters.ports import StateStore
from millwheel.core.formats.store_layout import ARRIVED, number8, number_from8, pack
from millwheel.core.model.damage import checked
from millwheel.core.model.times import MAX_TIME, MIN_TIME, clock_step_us
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError

_FEW = 64
"""Up to this many records a list is quicker than an array."""


class _Run(NamedTuple):
    """The records with positions above ``first`` and up to ``last`` arrived at ``at_us``."""

    first: int
    last: int
    at_us: int


_decode_run = checked(
    msgspec.msgpack.Decoder(tuple[int, int]).decode, "the times at which records arrived"
)


class ArrivalClock:
    """The wall clock of a source shard, as far as it is stored. ``at_us``: nothing will arrive
    before that. It goes on by itself, in silence, if it ``runs``."""

    def __init__(self, store: StateStore, runs: bool = True) -> None:
        self._runs = runs
        self._looked_at_us = MAX_TIME
        data = store.get(ARRIVED)
        self.at_us = MIN_TIME if data is None else number_from8(bytes(data))
        self._read_at_us = MIN_TIME

    def read(self, now_us: int, overlay: Overlay) -> int:
        """The time of records that are read now."""
        self._read_at_us = now_us
        return self.move(now_us, overlay)

    def move(self, now_us: int, overlay: Overlay) -> int:
        """Follow the wall clock."""
        # Never back: the next owner's clock may be behind, and its reads would be late. See mistake
        # arrivals_go_by_the_clock_of_the_owner.
        self.at_us = max(self.at_us, now_us)
        self._looked_at_us = MAX_TIME
        overlay.put(ARRIVED, number8(self.at_us))
        return self.at_us

    def look(self, now_us: int) -> None:
        """Follow the wall clock in the next bundle."""
        self._looked_at_us = now_us

    @property
    def moves_at_us(self) -> int:
        """When to follow the wall clock again without a record: each time is a commit."""
        if not self._runs:
            return self._looked_at_us
        step_us = clock_step_us(self.at_us - self._read_at_us)
        return min(self.at_us + step_us, self._looked_at_us)


class Arrivals:
    """The times of one partition's records. Those up to the last run may have been sent."""

    def __init__(self, partition: str, store: StateStore, clock: ArrivalClock) -> None:
        self._prefix = ARRIVED + pack(partition)
        self._clock = clock
        self._runs = [
            _Run(number_from8(key[len(self._prefix) :]), *_decode_run(bytes(data)))
            for key, data in store.scan(self._prefix)
        ]

    def extend(self, position: int, read_to: int, now_us: int, overlay: Overlay) -> bool:
        """Give a time to records from ``position`` up to ``read_to`` that have none: True when that
        must be committed before any of them is sent."""
        first = self._runs[-1].last if self._runs else position
        if read_to <= first:
            return False
        run = _Run(first, read_to, self._clock.read(now_us, overlay))
        # Behind the clock of the shard the whole run would be late.
        if self._runs and run.at_us < self._runs[-1].at_us:
            raise InvariantError(f"{run} arrives before {self._runs[-1]}")
        self._runs.append(run)
        overlay.put(self._prefix + number8(run.first), pack((run.last, run.at_us)))
        return True

    def times(
        self, positions: Sequence[int] | npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64] | list[int]:
        """The time of each record, by its position, which must have one. Positions rise."""
        if len(positions) <= _FEW:
            return [self._at(int(position)) for position in positions]
        rows = np.searchsorted([run.last for run in self._runs], np.asarray(positions, np.int64))
        times: npt.NDArray[np.int64] = np.array([run.at_us for run in self._runs], np.int64)[rows]
        return times

    def _at(self, position: int) -> int:
        return self._runs[bisect_left(self._runs, position, key=lambda run: run.last)].at_us

    def reached_us(self, position: int) -> int:
        """The earliest possible time of records behind ``position``."""
        run = next((run for run in self._runs if run.last > position), None)
        return self._clock.at_us if run is None else run.at_us

    def forget(self, position: int, overlay: Overlay) -> None:
        """Drop the times of records that will not be read again."""
        gone = [run for run in self._runs[:-1] if run.last <= position]
        for run in gone:
            overlay.delete(self._prefix + number8(run.first))
        self._runs = self._runs[len(gone) :]
