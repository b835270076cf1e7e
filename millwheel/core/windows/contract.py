"""The contract between a window machine and the runtime: its calls and their effects.

A machine is pure. It is called with the records of one key out of one bundle, or with a timer of
one key, and with that key's state as a small mapping; it changes the mapping and appends what else
must happen to :class:`Effects`. All of it belongs to one commit.

Timers fire once their clock is *greater* than their time. There is at most one event-time and one
processing-time timer per window, both under the window's tag. A hold is like a timer that never
fires: while it stands, the output watermark must not pass its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import msgspec

from millwheel.core.model.keys import Key
from millwheel.core.model.records import Domain
from millwheel.core.windows.panes import Accumulation, OutputTime, Pane
from millwheel.core.windows.triggers import Default, Trigger
from millwheel.core.windows.windows import Window, WindowFunction
from millwheel.errors import RecordError

Slot = str | int | tuple[int, int]
"""Names one entry of a key's state: a window, the number of a session, or the name of an index."""


class KeyState(Protocol):
    """The stored state of one key: slot to plain data. A value obtained by ``get`` may be changed
    in place; it is saved by setting it."""

    def get(self, slot: Any, default: Any = None) -> Any: ...

    def __setitem__(self, slot: Any, value: Any) -> None: ...

    def __delitem__(self, slot: Any) -> None: ...


class LatePolicy(Enum):
    """The treatment of a record whose windows are final."""

    DROP = "drop"
    """It is reported as late, to be counted or sent to a side stream."""
    REFIRE = "refire"
    """It makes a late pane of its own, at once."""


@dataclass(frozen=True, slots=True)
class Windowing:
    """All settings of windows but the aggregation.

    ``takes_retractions`` is set when the input may contain retractions: then the data that undoes a
    record is kept. ``stated_in`` is set where the values are results of windows in a form of their
    own: it gives the window of a value, or raises RecordError.
    """

    window: WindowFunction
    trigger: Trigger = field(default_factory=Default)
    accumulation: Accumulation = Accumulation.DISCARDING
    allowed_lateness: int = 0
    output_time: OutputTime = OutputTime.END_OF_WINDOW
    late: LatePolicy = LatePolicy.DROP
    takes_retractions: bool = False
    stated_in: Callable[[Any], Window] | None = None


class TimerEffect(msgspec.Struct, frozen=True):
    """Set the timer ``tag`` of ``key`` to ``at`` (µs), or cancel it (None).

    With a ``share`` the timer obeys the percentile watermark of that share, and holds nothing back:
    the window's own timer comes later and does the same.
    """

    key: Key
    tag: str
    domain: Domain
    at: int | None
    share: float | None = None


class HoldEffect(msgspec.Struct, frozen=True):
    """Hold the output watermark of the shard at ``at`` (µs) for ``tag`` of ``key``, or let go
    (None)."""

    key: Key
    tag: str
    at: int | None


class LateRecord(msgspec.Struct, frozen=True):
    """A record whose windows all take no more records. ``reason`` is a sentence."""

    key: Key
    value: Any
    timestamp: int
    reason: str


class RejectedRecord(msgspec.Struct, frozen=True):
    """A record that the aggregation cannot use: if it has several parts, ``aggregate`` cannot.
    ``stream`` is filled in where records of several streams come together."""

    key: Key
    value: Any
    timestamp: int
    reason: str
    aggregate: str = ""
    stream: str = ""


def rejected(key: Key, value: Any, timestamp: int, ex: RecordError) -> RejectedRecord:
    """A record that an aggregation or a window function has refused."""
    return RejectedRecord(key, value, timestamp, str(ex), ex.aggregate)


@dataclass(slots=True)
class Effects:
    """The effects of a call, in order. May be passed to further calls, to collect those of a whole
    bundle."""

    panes: list[Pane] = field(default_factory=list)
    timers: list[TimerEffect] = field(default_factory=list)
    holds: list[HoldEffect] = field(default_factory=list)
    late: list[LateRecord] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)


MANY = 1 << 62
"""No limit."""


@dataclass(slots=True)
class Times:
    """The clocks as of a call: input watermark, wall clock, percentile watermarks (µs). ``most``:
    how many windows a timer may fire in the call, if it can fire the others when it is called
    again."""

    watermark: int
    now_us: int
    percentiles: Mapping[float, int] = field(default_factory=dict)
    most: int = MANY


class Machine(Protocol):
    """The interface of every window machine."""

    def on_records(
        self,
        state: KeyState,
        key: Key,
        records: Sequence[tuple[Any, int]],
        times: Times,
        effects: Effects,
    ) -> None:
        """Take (value, timestamp) records of one key, all of one bundle, then ask the triggers
        once."""

    def on_timer(
        self,
        state: KeyState,
        key: Key,
        tag: str,
        domain: Domain,
        at: int,
        times: Times,
        effects: Effects,
    ) -> None:
        """Process a timer that has come due. Unknown tags are ignored."""

    def open_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        """The windows that still take records, given all slots of the key, ordered by end."""

    def closed_windows(self, state: KeyState, slots: Sequence[Slot]) -> list[Window]:
        """The windows whose trigger has finished; they are kept only so that their records are
        dropped."""
