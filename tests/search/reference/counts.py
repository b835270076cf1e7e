"""Count windows: every so many records of a key in a row, as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millwheel.core.model.times import MAX_TIME
from millwheel.core.windows.panes import Pane, Timing
from millwheel.core.windows.windows import Window
from tests.search.reference.aggregates import Item
from tests.search.reference.panes import Clocks, Rules


class KeyCounts:
    """The one window of a key that is filling."""

    def __init__(self, key: Any, rules: Rules, emit: Callable[[Pane], None]) -> None:
        self.key = key
        self._rules = rules
        self._emit = emit
        self._items: list[Item] = []
        self._held: list[int] = []

    def take(self, records: Sequence[tuple[Item, bool]], clocks: Clocks) -> None:
        """One record after the other."""
        for item, _ in records:
            self._items.append(item)
            if item.timestamp >= clocks.watermark:
                self._held.append(item.timestamp)
            if len(self._items) == self._rules.assign.count:
                self._fire(clocks.watermark)

    def pass_time(self, clocks: Clocks) -> None:
        """What is left when input has ended."""
        if clocks.watermark == MAX_TIME and self._items:
            self._fire(clocks.watermark)

    def pass_clock(self, clocks: Clocks) -> None:
        """The wall clock means nothing here."""

    def wakes_at(self, now_us: int) -> int:
        """Never."""
        return MAX_TIME

    def hold(self, watermark: int) -> int:
        """Only ``earliest`` asks for it: a key may wait for ever for its next record."""
        return min(self._held) if self._rules.output_time == "earliest" and self._held else MAX_TIME

    def windows(self) -> list[Window]:
        """What is filling now."""
        return [self._window()] if self._items else []

    def _window(self) -> Window:
        times = [item.timestamp for item in self._items]
        return Window(min(times), max(times) + 1)

    def _timestamp(self, watermark: int) -> int:
        """Nothing downstream has passed it."""
        if self._rules.output_time == "earliest" and self._held:
            return min(self._held)
        return min(max(self._window().end - 1, watermark), MAX_TIME - 1)

    def _fire(self, watermark: int) -> None:
        pane = Pane(
            key=self.key,
            window=self._window(),
            result=self._rules.aggregates.result(self._items),
            timestamp=self._timestamp(watermark),
            timing=Timing.ON_TIME,
            index=0,
            nonspeculative_index=0,
            is_first=True,
            is_last=True,
        )
        self._items, self._held = [], []
        self._emit(pane)
