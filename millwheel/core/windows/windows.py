"""Windows: the stretches of event time to which a record belongs.

A window is half-open, ``[start, end)``, in microseconds UTC. Window functions are frozen values;
durations may be written as text ("10s") or as int µs. Aligned functions (tumbling, sliding,
cumulative, global) put every key's records into the same windows; merging ones (sessions) give each
record a window of its own first, and windows of one key that belong together become one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from millwheel.core.model.times import MAX_TIME, MIN_TIME, duration_text, duration_us
from millwheel.core.windows.zones import Days
from millwheel.errors import RecordError

DAY = 86_400_000_000  # Fixed: µs


class Window(NamedTuple):
    """``[start, end)`` in µs. Equal to, and ordered as, the plain tuple; usable as a key of
    state."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last instant that lies in the window; the window is complete once the watermark has
        passed it."""
        return self.end - 1


def within_time(start: int, end: int) -> Window:
    """``[start, end)``, limited to the supported times: others cannot be stored, and no watermark
    reaches them."""
    return Window(start if start > MIN_TIME else MIN_TIME, end if end < MAX_TIME else MAX_TIME)


GLOBAL_WINDOW = Window(MIN_TIME, MAX_TIME)
"""All of time. Its last instant is only passed by the watermark at the end of bounded input."""


class WindowFunction(Protocol):
    """How records get windows."""

    @property
    def merging(self) -> bool:
        """True when windows of one key may become one (sessions)."""

    def assign(self, timestamp: int) -> Sequence[Window]:
        """The windows of a record, earliest end first."""


def _duration(name: str, value: str | int, minimum: int = 1) -> int:
    us = duration_us(value)
    if isinstance(us, bool) or us < minimum:
        raise ValueError(
            f"{name} must be a duration of at least {minimum}us, not {value!r}; write for"
            " example 10s"
        )
    return us


@dataclass(frozen=True, slots=True, init=False)
class Tumbling:
    """Windows of equal size, end to end, from ``offset`` after the epoch on.

    With a ``time_zone`` (an IANA name) the size is a whole number of days, windows begin at local
    midnight (plus ``offset`` by the local clock), and days of 23 or 25 hours keep their length.

    ``empty``: a key that had records in a window and has none in the next emits one empty result
    for that one (see core/machines/aligned_windows.py).
    """

    size: int
    offset: int
    time_zone: str
    empty: bool
    _days: Days | None = field(repr=False, compare=False)

    merging = False

    def __init__(
        self, size: str | int, offset: str | int = 0, time_zone: str = "", empty: bool = False
    ) -> None:
        _init(
            self,
            size=_duration("size", size),
            offset=duration_us(offset),
            time_zone=time_zone,
            empty=empty,
        )
        _init(self, _days=_days("tumbling", self.size, self.offset, time_zone))

    def window(self, timestamp: int) -> Window:
        """The one window of a record."""
        if self._days is not None:
            return Window(*self._days.bounds(timestamp))
        start = timestamp - (timestamp - self.offset) % self.size
        return within_time(start, start + self.size)

    def assign(self, timestamp: int) -> Sequence[Window]:
        return (self.window(timestamp),)


@dataclass(frozen=True, slots=True, init=False)
class Sliding:
    """Windows of one ``size`` that begin ``every`` µs apart; a record belongs to size / every of
    them.

    ``changes`` asks for key windows: the same results, but computed and emitted only where a key's
    result changes (see core/machines/key_windows.py). The size must then be a multiple of the
    slide.
    """

    size: int
    every: int
    offset: int
    changes: bool

    merging = False

    def __init__(
        self, size: str | int, every: str | int, offset: str | int = 0, changes: bool = False
    ) -> None:
        _init(self, size=_duration("size", size), every=_duration("every", every))
        _init(self, offset=duration_us(offset), changes=changes)
        if self.every > self.size:
            raise ValueError(
                f"sliding windows of {duration_text(self.size)} every {duration_text(self.every)}"
                " would lose the records between them; make `every` at most the size, or use"
                " tumbling windows and a filter"
            )
        if changes and self.size % self.every:
            raise ValueError(
                "emit: changes needs a size that is a multiple of the slide;"
                f" {duration_text(self.size)} is not a multiple of {duration_text(self.every)};"
                " write a slide that divides it"
            )

    def assign(self, timestamp: int) -> Sequence[Window]:
        size, every = self.size, self.every
        last = timestamp - (timestamp - self.offset) % every
        count = (last - timestamp + size + every - 1) // every
        return [
            within_time(last - i * every, last - i * every + size) for i in range(count - 1, -1, -1)
        ]


@dataclass(frozen=True, slots=True, init=False)
class Sessions:
    """Windows around bursts of a key's records: a session ends when no record came for ``gap``."""

    gap: int

    merging = True

    def __init__(self, gap: str | int) -> None:
        _init(self, gap=_duration("gap", gap))

    def assign(self, timestamp: int) -> Sequence[Window]:
        return (within_time(timestamp, timestamp + self.gap),)

    def merge(self, windows: Sequence[Window]) -> Sequence[Sequence[Window]]:
        """Groups of windows that overlap (touching ones do not), each of which becomes one
        window."""
        groups: list[list[Window]] = []
        end = MIN_TIME
        for window in sorted(windows):
            if groups and window.start < end:
                groups[-1].append(window)
                end = max(end, window.end)
            else:
                groups.append([window])
                end = window.end
        return groups


class SessionPieces(Sessions):
    """The sessions of one part of a divided key: one piece for each stretch between multiples of
    the gap. The records of a piece are less than a gap apart, so the sessions of the
    whole key are the unions of pieces that overlap. WindowPieces of a long session end while it
    lasts, so none holds the watermark for longer than two gaps."""

    __slots__ = ()

    def merge(self, windows: Sequence[Window]) -> Sequence[Sequence[Window]]:
        groups: dict[int, list[Window]] = {}
        for window in sorted(windows):
            groups.setdefault(window.start // self.gap, []).append(window)
        return list(groups.values())


@dataclass(frozen=True, slots=True)
class WindowPieces:
    """Windows that share their records, of one part of a divided key: one piece for each stretch
    between two times at which one of these windows begins or ends. The windows of the whole key are
    made of the pieces in them.

    ``at_once``: nothing waits for the end of a piece, since queries read their results before."""

    bounds: Callable[[int], tuple[int, int]]
    at_once: bool = False

    merging = False

    def window(self, timestamp: int) -> Window:
        """The one piece of a record. Raises RecordError for a year outside of its time zone."""
        return Window(*self.bounds(timestamp))

    def assign(self, timestamp: int) -> Sequence[Window]:
        return (self.window(timestamp),)


@dataclass(frozen=True, slots=True)
class Global:
    """One window for all of time; useful with a trigger that fires before its end."""

    merging = False

    def assign(self, timestamp: int) -> Sequence[Window]:
        return (GLOBAL_WINDOW,)


@dataclass(frozen=True, slots=True)
class Forever:
    """No windows: each key is one group, whose result is emitted as it changes. That of a key
    without a record for ``ttl`` µs of event time is forgotten (None: never)."""

    ttl: int | None = None

    merging = False

    def assign(self, timestamp: int) -> Sequence[Window]:
        return (GLOBAL_WINDOW,)


@dataclass(frozen=True, slots=True, init=False)
class Count:
    """Every ``count`` records of a key in a row, in order of arrival. A pane's window spans their
    timestamps."""

    count: int

    merging = False

    def __init__(self, count: int) -> None:
        if type(count) is not int or count < 1:
            raise ValueError(f"count must be a whole number of at least 1, not {count!r}")
        _init(self, count=count)

    def assign(self, timestamp: int) -> Sequence[Window]:
        return (Window(timestamp, timestamp + 1),)


@dataclass(frozen=True, slots=True, init=False)
class Cumulative:
    """Windows that share a start and grow by ``every`` up to ``size``: a day so far, minute by
    minute.

    With a ``time_zone`` the size is a whole number of days that begin at local midnight. With
    ``changes`` a step at which a key has no new record emits nothing for it. ``periods`` are the
    full windows.
    """

    size: int
    every: int
    offset: int
    time_zone: str
    changes: bool
    periods: Tumbling = field(repr=False, compare=False)

    merging = False

    def __init__(
        self,
        size: str | int,
        every: str | int,
        offset: str | int = 0,
        time_zone: str = "",
        changes: bool = False,
    ) -> None:
        _init(
            self,
            size=_duration("size", size),
            every=_duration("every", every),
            offset=duration_us(offset),
        )
        _init(
            self,
            time_zone=time_zone,
            changes=changes,
            periods=Tumbling(self.size, self.offset, time_zone),
        )
        if self.size % self.every:
            raise ValueError(
                f"cumulative windows of {duration_text(self.size)} cannot grow by"
                f" {duration_text(self.every)}: make the size a multiple of `every`"
            )

    def base(self, timestamp: int) -> Window:
        """The full window of a record: the last of the windows it belongs to."""
        return self.periods.window(timestamp)

    def step(self, base: Window, timestamp: int) -> int:
        """The end of the first window of ``base`` that the record belongs to."""
        return min(base.end, timestamp + self.every - (timestamp - base.start) % self.every)

    def step_bounds(self, timestamp: int) -> tuple[int, int]:
        """The stretch around a record in which no window begins or ends."""
        base = self.base(timestamp)
        return max(timestamp - (timestamp - base.start) % self.every, base.start), self.step(
            base, timestamp
        )

    def assign(self, timestamp: int) -> Sequence[Window]:
        base = self.base(timestamp)
        ends = range(self.step(base, timestamp), base.end, self.every)
        return [Window(base.start, end) for end in ends] + [base]


@dataclass(frozen=True, slots=True)
class OfInput:
    """The windows of results: a record that is the result of a window, of any kind, is in that same
    window. ``start`` and ``end`` are the fields with its bounds, in µs."""

    start: str = "window_start"
    end: str = "window_end"

    merging = False

    def assign(self, timestamp: int) -> Sequence[Window]:
        """Raises ValueError: only the whole record names its window, see :meth:`window_of`."""
        raise ValueError("the windows of results are in their records, not in their timestamps")

    def window_of(self, record: Any) -> Window:
        """The window of a record. RecordError where its fields are not the bounds of a window."""
        if not isinstance(record, Mapping):
            raise RecordError(
                f"window: {{of: input}} takes results of windows, with the fields {self.start} and"
                f" {self.end}; a {type(record).__name__} has no fields"
            )
        bounds: tuple[Any, Any] = record.get(self.start), record.get(self.end)
        for name, bound in zip((self.start, self.end), bounds, strict=True):
            if type(bound) is not int:
                has = f"{name} {bound!r:.80}" if name in record else f"no field {name!r}"
                raise RecordError(
                    "window: {of: input} takes results of windows, whose bounds are whole numbers"
                    f" of µs; the record has {has}"
                )
        start, end = bounds
        if not MIN_TIME <= start < end <= MAX_TIME:
            raise RecordError(
                f"window: {{of: input}}: {self.start} {start} and {self.end} {end} are not a"
                " window, which starts before it ends, within all of time"
            )
        return Window(start, end)


@dataclass(frozen=True, slots=True)
class Custom:
    """The user's own windows.

    ``assign_to(timestamp)`` returns (start, end) pairs. ``merge_all(windows)``, if given, receives
    the open windows of a key as a sorted list and returns groups (lists) of them; each group
    becomes one window from the earliest start to the latest end. Both must be pure functions.
    """

    assign_to: Callable[[int], Sequence[tuple[int, int]]]
    merge_all: Callable[[Sequence[Window]], Sequence[Sequence[Window]]] | None = None

    @property
    def merging(self) -> bool:
        return self.merge_all is not None

    def assign(self, timestamp: int) -> Sequence[Window]:
        pairs = self.assign_to(timestamp)
        try:
            windows = sorted((Window(*pair) for pair in pairs), key=lambda window: window.end)
        except TypeError:
            raise ValueError(
                f"a custom window function returned {pairs!r:.200}; it must return a list of"
                " (start, end) pairs"
            ) from None
        for window in windows:
            if type(window.start) is not int or type(window.end) is not int:
                raise ValueError(
                    f"a custom window function returned {tuple(window)}: start and end must be"
                    " whole numbers of µs"
                )
            if window.start >= window.end:
                raise ValueError(
                    f"a custom window function returned {tuple(window)}: the start must lie before"
                    " its end"
                )
            if window.start >= MAX_TIME or window.end <= MIN_TIME:
                raise ValueError(
                    f"a custom window function returned {tuple(window)}, which lies outside of all"
                    " time"
                )
        return [within_time(*window) for window in windows]

    def merge(self, windows: Sequence[Window]) -> Sequence[Sequence[Window]]:
        if self.merge_all is None:
            return [[window] for window in windows]
        groups = self.merge_all(sorted(windows))
        try:
            members = sorted(window for group in groups for window in group)
        except TypeError:
            members = []
        if members != sorted(windows):
            raise ValueError(
                f"a custom merge function returned {groups!r:.200} for {sorted(windows)!r:.200}; it"
                " must return groups (lists) in which each window is once"
            )
        return groups


def _init(target: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(target, name, value)


def _days(kind: str, size: int, offset: int, time_zone: str) -> Days | None:
    if not time_zone:
        return None
    if size % DAY:
        raise ValueError(
            f"{kind} windows in a time zone last whole days, because a local day may have 23 or 25"
            f" hours; {duration_text(size)} does not: write 1d, 7d, …, or leave time_zone out"
        )
    return Days(time_zone, size // DAY, offset)
