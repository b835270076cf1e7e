"""One call of a window machine, and its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from millwheel.core.model.keys import Key
from millwheel.core.windows.contract import Effects, KeyState, Times
from millwheel.core.windows.triggers import Moment
from millwheel.core.windows.windows import Window


@dataclass(frozen=True, slots=True)
class Gone:
    """A record that its producer has taken back."""

    prepared: Any
    timestamp: int
    value: Any


@dataclass(frozen=True, slots=True)
class Group:
    """Records of one bundle, key and window, already aggregated: their accumulator, their number,
    and the earliest and latest of their timestamps that are not behind the watermark (None: all
    are)."""

    window: Window
    acc: Any
    count: int
    earliest: int | None
    latest: int | None


@runtime_checkable
class TakesGroups(Protocol):
    """A machine that also takes groups."""

    def on_groups(
        self, state: KeyState, key: Key, groups: Sequence[Group], times: Times, effects: Effects
    ) -> None:
        """Take groups of one key, all of one bundle."""


class Taken:
    """Records of one bundle that go to the same window: ``rows`` of (number, timestamp, prepared,
    value) in order of arrival, and the retracted ones. Numbers count the records of the bundle, or,
    where windows merge, of the key."""

    __slots__ = ("gone", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, Any, Any]] = []
        self.gone: list[Gone] = []

    @property
    def prepared(self) -> list[Any]:
        """The prepared value of each row."""
        return [row[2] for row in self.rows]

    @property
    def timestamps(self) -> list[int]:
        """The timestamp of each row."""
        return [row[1] for row in self.rows]


class Call:
    """One call of a machine: the state of the key, the clocks, and the receiver of effects."""

    __slots__ = ("effects", "key", "refires", "state", "times")

    def __init__(self, state: KeyState, key: Key, times: Times, effects: Effects) -> None:
        self.state = state
        self.key = key
        self.times = times
        self.effects = effects
        self.refires: dict[Window, Taken] = {}

    def moment(self, window: Window) -> Moment:
        """The view of the call for a trigger of this window."""
        return Moment(window, self.times.watermark, self.times.now_us, self.times.percentiles)
