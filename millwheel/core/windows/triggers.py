"""Triggers, which decide when a window fires.

A trigger is a frozen value. Its memory of one window is *state*: plain data made by ``start`` and
passed back in. ``None`` as state means finished: the trigger will never fire again in that window.
The rules follow Apache Beam's:

- After each bundle of records of a key, and whenever the watermark or the clock has passed a
  requested time, ``ready`` is called once; if it is true, the window fires and ``fire`` gives the
  next state.
- A window whose whole trigger has finished is closed: later records of it are dropped.
- When windows merge, their states merge. A trigger that had finished by a count stays finished; a
  trigger on the watermark waits again if the end of the merged window lies ahead.

Leaves are here, combinations in core/windows/combinations.py, the YAML form in
core/windows/trees.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millwheel.core.model.times import MAX_TIME, duration_us
from millwheel.core.windows.lateness import is_complete
from millwheel.core.windows.windows import Window

State = Any
"""Plain data that msgpack can carry; None: finished."""


@dataclass(slots=True)
class Moment:
    """The input of a trigger: the window, the input watermark and the wall clock (µs).

    ``percentiles`` maps a share (0.9) to the watermark that this share of the input has passed.
    """

    window: Window
    watermark: int
    now: int
    percentiles: Mapping[float, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True when, by the watermark, every record of the window has come."""
        return is_complete(self.window.end, self.watermark)


class Trigger:
    """Base of all triggers, and of a user's own."""

    __slots__ = ()

    needs_bytes = False
    """True when ``add`` needs the size of the records, which costs an encoding of each."""
    on_time = False
    """True when the trigger itself fires as the watermark passes the end: a pane is emitted there
    even if it is empty."""

    def start(self) -> State:
        """The state in a window that has no records yet."""
        return 0

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        """``records`` more of ``size`` bytes in total came in one bundle."""
        return state

    def ready(self, state: State, moment: Moment) -> bool:
        """Whether the window should fire now."""
        raise TypeError(f"{type(self).__name__} must define ready(self, state, moment)")

    def fire(self, state: State, moment: Moment) -> State:
        """The state after the window has fired; None when that was the last time."""
        return None

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        """One state for a window made of others, given theirs in order (None: finished there)."""
        raise TypeError(
            f"{type(self).__name__} must define merge(self, states, moment) for sessions"
        )

    def wake(self, state: State, now_us: int) -> int:
        """The wall clock after ``now_us`` at which ``ready`` may become true without new records
        (MAX_TIME: never)."""
        return MAX_TIME

    @property
    def fires_once(self) -> bool:
        """True when the trigger has surely finished once it has fired."""
        return False

    @property
    def ends_on_time(self) -> bool:
        """True when the trigger has surely finished once it has fired behind the window's end."""
        return False

    def shares(self) -> tuple[float, ...]:
        """The percentile watermarks that ``ready`` reads."""
        return ()


@dataclass(frozen=True, slots=True)
class Default(Trigger):
    """When the watermark passes the end of the window, and again for every bundle of late
    records."""

    on_time = True

    def ready(self, state: State, moment: Moment) -> bool:
        return moment.complete

    def fire(self, state: State, moment: Moment) -> State:
        return state

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        return 0


@dataclass(frozen=True, slots=True)
class Never(Trigger):
    """Never fires before the window is removed, at its end plus the allowed lateness."""

    @property
    def fires_once(self) -> bool:
        return True

    def ready(self, state: State, moment: Moment) -> bool:
        return False

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        return 0


@dataclass(frozen=True, slots=True, init=False)
class AfterCount(Trigger):
    """Once there are at least ``count`` records since it was started."""

    count: int

    @property
    def fires_once(self) -> bool:
        return True

    def __init__(self, count: int) -> None:
        if type(count) is not int or count < 1:
            raise ValueError(f"AfterCount needs a whole number of at least 1, not {count!r}")
        object.__setattr__(self, "count", count)

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        return state + records

    def ready(self, state: State, moment: Moment) -> bool:
        return bool(state >= self.count)

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        return _finished_or_sum(states)


@dataclass(frozen=True, slots=True, init=False)
class AfterBytes(Trigger):
    """Once the values that came since it was started have at least ``size`` bytes, encoded as they
    are sent."""

    size: int

    needs_bytes = True

    @property
    def fires_once(self) -> bool:
        return True

    def __init__(self, size: int) -> None:
        if type(size) is not int or size < 1:
            raise ValueError(
                f"AfterBytes needs a whole number of bytes of at least 1, not {size!r}"
            )
        object.__setattr__(self, "size", size)

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        return state + size

    def ready(self, state: State, moment: Moment) -> bool:
        return bool(state >= self.size)

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        return _finished_or_sum(states)


@dataclass(frozen=True, slots=True, init=False)
class AfterProcessingTime(Trigger):
    """Once the wall clock is ``delay`` beyond the first record since it was started.

    With ``align`` the moment is postponed to the next multiple of ``align``, so that all windows
    fire together.
    """

    delay: int
    align: int

    @property
    def fires_once(self) -> bool:
        return True

    def __init__(self, delay: str | int = 0, align: str | int = 0) -> None:
        for name, value in (("delay", delay), ("align", align)):
            us = duration_us(value)
            if us < 0:
                raise ValueError(f"AfterProcessingTime: {name} cannot be negative ({value!r})")
            object.__setattr__(self, name, us)

    def start(self) -> State:
        return MAX_TIME

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        if state != MAX_TIME:
            return state
        at = moment.now + self.delay
        return at if not self.align else at + -at % self.align

    def ready(self, state: State, moment: Moment) -> bool:
        return bool(state <= moment.now)

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        return None if None in states else min(states, default=MAX_TIME)

    def wake(self, state: State, now_us: int) -> int:
        return state if state > now_us else MAX_TIME


@dataclass(frozen=True, slots=True, init=False)
class AfterPercentileWatermark(Trigger):
    """Once the watermark of a share of the input (0.9: the fastest nine tenths) has passed the end
    of the window."""

    share: float

    @property
    def fires_once(self) -> bool:
        return True

    def __init__(self, share: float) -> None:
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise ValueError(
                "AfterPercentileWatermark needs a share between 0 and 1, such as 0.95, not"
                f" {share!r}"
            )
        object.__setattr__(self, "share", float(share))

    @property
    def ends_on_time(self) -> bool:
        return True

    def ready(self, state: State, moment: Moment) -> bool:
        return (
            moment.complete
            or moment.percentiles.get(self.share, moment.watermark) >= moment.window.end
        )

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        return _waits_again(states, self.ready(0, moment))

    def shares(self) -> tuple[float, ...]:
        return (self.share,)


@dataclass(frozen=True, slots=True)
class AfterWatermark(Trigger):
    """When the watermark passes the end of the window.

    ``early`` fires repeatedly before that, ``late`` repeatedly afterwards. Without ``late`` the
    trigger has finished when it has fired on time, and late records are dropped.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    on_time = True

    def __post_init__(self) -> None:
        for name, inner in (("early", self.early), ("late", self.late)):
            if inner is not None and not isinstance(inner, Trigger):
                raise ValueError(
                    f"AfterWatermark: {name} is a trigger, not {inner!r}; write"
                    f" {name}=AfterCount(2)"
                )

    @property
    def fires_once(self) -> bool:
        return self.early is None and self.late is None

    @property
    def ends_on_time(self) -> bool:
        return self.late is None

    def start(self) -> State:
        return [False, self.early.start() if self.early else 0]

    def add(self, state: State, records: int, size: int, moment: Moment) -> State:
        inner = self._inner(state)
        return [state[0], inner.add(state[1], records, size, moment)] if inner else state

    def ready(self, state: State, moment: Moment) -> bool:
        if not state[0] and moment.complete:
            return True
        inner = self._inner(state)
        return inner is not None and inner.ready(state[1], moment)

    def fire(self, state: State, moment: Moment) -> State:
        inner = self._inner(state)
        if not state[0] and moment.complete:
            return [True, self.late.start()] if self.late else None
        if inner is None:
            return state
        after = inner.fire(state[1], moment)
        return [state[0], inner.start() if after is None else after]

    def merge(self, states: Sequence[State], moment: Moment) -> State:
        present = [state for state in states if state is not None]
        early = [state[1] for state in present if not state[0]]
        if early or not moment.complete:
            return [False, _merged(self.early, early, moment)]
        if len(present) < len(states):
            return None
        return [True, _merged(self.late, [state[1] for state in present], moment)]

    def wake(self, state: State, now_us: int) -> int:
        inner = self._inner(state)
        return inner.wake(state[1], now_us) if inner else MAX_TIME

    def shares(self) -> tuple[float, ...]:
        return tuple(
            share for inner in (self.early, self.late) if inner for share in inner.shares()
        )

    @property
    def needs_bytes(self) -> bool:  # type: ignore[override]
        return any(inner.needs_bytes for inner in (self.early, self.late) if inner)

    def _inner(self, state: State) -> Trigger | None:
        return self.late if state[0] else self.early


def _merged(trigger: Trigger | None, states: Sequence[State], moment: Moment) -> State:
    """The merged state of a repeated trigger, which never finishes."""
    if trigger is None:
        return 0
    state = trigger.merge(states, moment) if states else None
    return trigger.start() if state is None else state


def _finished_or_sum(states: Sequence[State]) -> State:
    return None if None in states else sum(states)


def _waits_again(states: Sequence[State], reached: bool) -> State:
    """The state of a part that waits for a watermark: finished only if it was in every merged
    window and the new end is passed, too."""
    return None if reached and all(state is None for state in states) else 0
