"""Triggers, as objects that live in one window and know what happened there. docs/windows.md has
the rules.

Those made of others are in combinations.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.triggers import Moment as CustomMoment
from millwheel.core.windows.windows import Window


@dataclass(frozen=True, slots=True)
class Moment:
    """What a trigger may look at. ``shares`` are percentile watermarks."""

    window: Window
    watermark: int
    now: int
    shares: Mapping[float, int]

    @property
    def complete(self) -> bool:
        """The watermark has reached the end."""
        return self.watermark >= self.window.end


class Trigger:
    """In one window. ``finished``: it will never be ready again. ``tells``: it waits for the end of
    the window."""

    finished = False
    tells = False

    def fresh(self) -> Trigger:
        """One that has seen nothing."""
        raise TypeError(type(self).__name__)

    def add(self, records: int, size: int, moment: Moment) -> None:
        """Records came."""

    def ready(self, moment: Moment) -> bool:
        """Should the window fire?"""
        return False

    def fire(self, moment: Moment) -> None:
        """It fires."""
        self.finished = True

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        """One for a window made of others, which had these."""
        merged = self.fresh()
        merged.finished = any(part.finished for part in parts)
        return merged

    def wakes_at(self) -> int:
        """When the wall clock may make it ready."""
        return MAX_TIME


class Default(Trigger):
    """From the end on, whenever it is asked."""

    tells = True

    def fresh(self) -> Trigger:
        return Default()

    def ready(self, moment: Moment) -> bool:
        return moment.complete

    def fire(self, moment: Moment) -> None:
        pass


class Never(Trigger):
    """Never."""

    def fresh(self) -> Trigger:
        return Never()


class AfterCount(Trigger):
    """Once n records have come."""

    def __init__(self, n: int) -> None:
        self.n, self.seen = n, 0

    def fresh(self) -> Trigger:
        return AfterCount(self.n)

    def add(self, records: int, size: int, moment: Moment) -> None:
        self.seen += records

    def ready(self, moment: Moment) -> bool:
        return self.seen >= self.n

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        merged = AfterCount(self.n)
        merged.finished, merged.seen = (
            any(part.finished for part in parts),
            sum(part.seen for part in parts),
        )
        return merged


class AfterBytes(AfterCount):
    """Once their values have n bytes."""

    def fresh(self) -> Trigger:
        return AfterBytes(self.n)

    def add(self, records: int, size: int, moment: Moment) -> None:
        self.seen += size

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        merged = AfterBytes(self.n)
        merged.finished, merged.seen = (
            any(part.finished for part in parts),
            sum(part.seen for part in parts),
        )
        return merged


class AfterProcessingTime(Trigger):
    """So long after the first record by the clock."""

    def __init__(self, delay: int, align: int) -> None:
        self.delay, self.align, self.at = delay, align, MAX_TIME

    def fresh(self) -> Trigger:
        return AfterProcessingTime(self.delay, self.align)

    def add(self, records: int, size: int, moment: Moment) -> None:
        if self.at == MAX_TIME:
            self.at = moment.now + self.delay
            while self.align and self.at % self.align:
                self.at += self.align - self.at % self.align

    def ready(self, moment: Moment) -> bool:
        return self.at <= moment.now

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        merged = AfterProcessingTime(self.delay, self.align)
        merged.finished, merged.at = (
            any(part.finished for part in parts),
            min(part.at for part in parts),
        )
        return merged

    def wakes_at(self) -> int:
        return self.at


class AfterShare(Trigger):
    """When the percentile watermark of a share passes the end."""

    def __init__(self, share: float) -> None:
        self.share = share

    def fresh(self) -> Trigger:
        return AfterShare(self.share)

    def ready(self, moment: Moment) -> bool:
        return (
            moment.complete or moment.shares.get(self.share, moment.watermark) >= moment.window.end
        )

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        merged = AfterShare(self.share)
        merged.finished = all(part.finished for part in parts) and merged.ready(moment)
        return merged


class AfterWatermark(Trigger):
    """At the end; ``early`` again and again before it, ``late`` after it. Without ``late`` it has
    then finished."""

    tells = True

    def __init__(self, early: Trigger | None, late: Trigger | None) -> None:
        self.early, self.late, self.passed = early, late, False

    def fresh(self) -> Trigger:
        return AfterWatermark(self.early and self.early.fresh(), self.late and self.late.fresh())

    @property
    def _inner(self) -> Trigger | None:
        return self.late if self.passed else self.early

    def add(self, records: int, size: int, moment: Moment) -> None:
        if self._inner is not None:
            self._inner.add(records, size, moment)

    def ready(self, moment: Moment) -> bool:
        if not self.passed and moment.complete:
            return True
        return self._inner is not None and self._inner.ready(moment)

    def fire(self, moment: Moment) -> None:
        if not self.passed and moment.complete:
            self.passed = True
            self.finished = self.late is None
            return
        inner = self._inner
        if inner is None:
            return
        inner.fire(moment)
        if inner.finished and self.passed:
            self.late = inner.fresh()
        elif inner.finished:
            self.early = inner.fresh()

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        merged = AfterWatermark(self.early and self.early.fresh(), self.late and self.late.fresh())
        waiting = [part for part in parts if not part.passed and not part.finished]
        if waiting or not moment.complete:
            if self.early is not None and waiting:
                merged.early = lasting(self.early, [part.early for part in waiting], moment)
            return merged
        merged.passed = True
        merged.finished = any(part.finished for part in parts)
        if self.late is not None and not merged.finished:
            merged.late = lasting(self.late, [part.late for part in parts], moment)
        return merged

    def wakes_at(self) -> int:
        return MAX_TIME if self._inner is None else self._inner.wakes_at()


def lasting(trigger: Trigger, parts: Sequence[Trigger], moment: Moment) -> Trigger:
    """The merger of what is repeated: when it has finished it starts afresh."""
    merged = trigger.merge(parts, moment)
    return trigger.fresh() if merged.finished else merged


class Custom(Trigger):
    """The user's own, which keeps plain data."""

    def __init__(self, own: Any) -> None:
        self.own, self.state = own, own.start()
        self.tells = bool(own.on_time)

    def fresh(self) -> Trigger:
        return Custom(self.own)

    def add(self, records: int, size: int, moment: Moment) -> None:
        self.state = self.own.add(self.state, records, size, _shown(moment))

    def ready(self, moment: Moment) -> bool:
        return bool(self.own.ready(self.state, _shown(moment)))

    def fire(self, moment: Moment) -> None:
        self.state = self.own.fire(self.state, _shown(moment))
        self.finished = self.state is None

    def merge(self, parts: Sequence[Any], moment: Moment) -> Trigger:
        merged = Custom(self.own)
        merged.state = self.own.merge([part.state for part in parts], _shown(moment))
        merged.finished = merged.state is None
        return merged

    def wakes_at(self) -> int:
        at = self.own.wake(self.state, -MAX_TIME)
        return int(at)


def _shown(moment: Moment) -> CustomMoment:
    return CustomMoment(moment.window, moment.watermark, moment.now, moment.shares)
