"""``emit: changes``: the results of all sliding windows, without those that are as the one
before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.panes import Pane, Timing
from millwheel.core.windows.windows import Window
from tests.search.reference.aggregates import Item
from tests.search.reference.panes import Clocks, Rules


class KeyChanges:
    """The results of one key by the ends of windows. ``emitted``: what stands at each end at which
    something was said."""

    def __init__(
        self,
        key: Any,
        rules: Rules,
        emit: Callable[[Pane], None],
        drop: Callable[[Item, bool], None],
    ) -> None:
        self.key = key
        self._rules = rules
        self._emit = emit
        self._drop = drop
        self._items: list[tuple[Item, int]] = []
        self._emitted: dict[int, Pane] = {}
        self._until: int | None = None
        self._clock = MIN_TIME

    def take(self, records: Sequence[tuple[Item, bool]], clocks: Clocks) -> None:
        """A record behind the watermark corrects what was said, as far as its windows are not
        gone."""
        for item, _ in records:
            windows = self._rules.assign.windows(item.timestamp, item.value)
            live = [
                window.end for window in windows if not self._rules.over(window, clocks.watermark)
            ]
            if live:
                self._items.append((item, live[0]))
            else:
                self._drop(item, False)
        self.pass_time(clocks)

    def pass_time(self, clocks: Clocks) -> None:
        """Say what changed at the ends that the watermark has passed, and what turned out otherwise
        since."""
        self._clock = clocks.watermark
        results = self._results(clocks.watermark)
        before = self._rules.aggregates.result([])
        for end in sorted(results):
            self._correct(end, results[end], results[end] != before, clocks)
            before = results[end]
        self._until = clocks.watermark

    def pass_clock(self, clocks: Clocks) -> None:
        """The wall clock means nothing here."""

    def wakes_at(self, now_us: int) -> int:
        """Never."""
        return MAX_TIME

    def hold(self, watermark: int) -> int:
        """What is unsaid lies ahead of the watermark."""
        return MAX_TIME

    def windows(self) -> list[Window]:
        """Those at which the result changes and that are not gone."""
        results, found = self._results(MAX_TIME), []
        before = self._rules.aggregates.result([])
        for end in sorted(results):
            if results[end] != before and not self._rules.over(self._window(end), self._clock):
                found.append(self._window(end))
            before = results[end]
        return found

    def _window(self, end: int) -> Window:
        return Window(end - self._rules.assign.size, end)

    def _results(self, watermark: int) -> dict[int, Any]:
        """The result at each end, up to the watermark, at which a record enters, has just left, or
        was said."""
        assign, found = self._rules.assign, {}
        ends = {
            window.end
            for item, _ in self._items
            for window in assign.windows(item.timestamp, item.value)
        }
        ends |= {end + assign.every for end in ends} | set(self._emitted)
        for end in sorted(end for end in ends if end <= watermark):
            inside = [
                item
                for item, since in self._items
                if end - assign.size <= item.timestamp < end and since <= end
            ]
            found[end] = self._rules.aggregates.result(inside)
        return found

    def _correct(self, end: int, result: Any, changes: bool, clocks: Clocks) -> None:
        """Without retractions, what was said can only be replaced."""
        standing, retracting = self._emitted.get(end), self._rules.accumulation == "retracting"
        if standing is not None and standing.result == result and (changes or not retracting):
            return
        if standing is not None and retracting:
            self._emit(msgspec.structs.replace(standing, retraction=True))
            del self._emitted[end]
        if not changes and (retracting or standing is None):
            return
        index = 0 if standing is None else standing.index + 1
        late = self._until is not None and end <= self._until
        self._emitted[end] = Pane(
            key=self.key,
            window=self._window(end),
            result=result,
            timestamp=end - 1,
            timing=Timing.LATE if late else Timing.ON_TIME,
            index=index,
            nonspeculative_index=index,
            is_first=index == 0,
            is_last=self._rules.over(self._window(end), clocks.watermark),
        )
        self._emit(self._emitted[end])
