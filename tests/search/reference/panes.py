"""The windows of one key: how they take records, fire, correct themselves, merge, fall apart, and
end.

A window keeps all its records, and computes each pane (:class:`millwheel.core.windows.panes.Pane`)
from them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from millwheel.core.formats.codec import encode_value
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.windows.panes import Pane, Timing
from millwheel.core.windows.windows import GLOBAL_WINDOW, Window
from tests.search.reference.aggregates import Aggregates, Item
from tests.search.reference.assign import Assigner
from tests.search.reference.triggers import Moment, Trigger


@dataclass(frozen=True, slots=True)
class Rules:
    """What the windows of a computation have in common."""

    assign: Assigner
    trigger: Trigger
    aggregates: Aggregates
    accumulation: str
    lateness: int
    output_time: str
    late: str

    def over(self, window: Window, watermark: int) -> bool:
        """The window and its allowed lateness have passed. All is over at the end of time."""
        return self.assign.ends and watermark >= min(window.end + self.lateness, MAX_TIME)


@dataclass(slots=True)
class Clocks:
    """What time it is."""

    watermark: int
    now_us: int
    shares: Mapping[float, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Open:
    """One window. ``news``: what came (1) or was taken back (-1) since it last fired. ``told``:
    what comes from here on was not there by the end. ``standing``: panes that were emitted and not
    taken back. ``held`` are the times of records in ``news`` that were not behind the watermark.
    ``brought``: some record came into no earlier window."""

    window: Window
    trigger: Trigger
    told: bool
    items: list[Item] = field(default_factory=list)
    news: list[tuple[int, Item]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    index: int = 0
    nonspeculative: int = 0
    standing: list[Pane] = field(default_factory=list)
    closed: bool = False
    brought: bool = False
    newest: int = MIN_TIME
    """The latest time of all that has come."""


class KeyWindows:
    """The windows of one key. ``emit`` gets each pane, ``reject`` what cannot be used, ``drop``
    what is late."""

    def __init__(
        self,
        key: Any,
        rules: Rules,
        emit: Callable[[Pane], None],
        drop: Callable[[Item, bool], None],
        reject: Callable[[Item, str], None],
    ) -> None:
        self.key = key
        self.open: list[Open] = []
        self._rules = rules
        self._emit = emit
        self._drop = drop
        self._reject = reject
        self._passed = MIN_TIME

    # --- records ----------------------------------------------------------------------------------

    def take(self, records: Sequence[tuple[Item, bool]], clocks: Clocks) -> None:
        """Records that arrive together (those with True are taken back); then each trigger is asked
        once."""
        rules = self._rules
        touched: list[Open] = []
        refired: dict[Window, list[Item]] = {}
        for item, back in records:
            for each in self._sort_in(item, back, clocks, refired):
                if each not in touched:
                    touched.append(each)
        for window, items in refired.items():
            self._emit(
                self._pane(
                    Open(window, self._rules.trigger, True, items), Timing.LATE, items, (), False
                )
            )
        for each in touched:
            if each in self.open:
                self.ask(each, clocks)
            if not rules.assign.ends and not each.items and not each.news:
                self.open.remove(each)  # all that the group had has been taken back

    def _sort_in(
        self, item: Item, back: bool, clocks: Clocks, refired: dict[Window, list[Item]]
    ) -> list[Open]:
        rules, windows = self._rules, self._rules.assign.windows(item.timestamp, item.value)
        for each in list(self.open) if not rules.assign.ends else ():
            if item.timestamp - each.newest > rules.assign.ttl:
                if each.news:
                    self._fire(each, clocks, False)
                self.open.remove(each)
        live = [window for window in windows if not rules.over(window, clocks.watermark)]
        if rules.assign.merges:
            if any(
                each.closed and each.window.start <= item.timestamp < each.window.end
                for each in self.open
            ):
                live = []
        else:
            closed = [each.window for each in self.open if each.closed]
            live = [window for window in live if window not in closed]
        if not live:
            self._too_late(item, back, windows, refired)
            return []
        if back and rules.assign.merges:
            return self._take_from_session(item, clocks)
        found = []
        for window in live:
            each = (
                self._at(window, clocks)
                if not rules.assign.merges
                else self._joined(window, clocks)
            )
            if back:
                self._take_back(each, item, clocks)
            else:
                self._add(each, item, clocks)
                each.brought = each.brought or window == live[0]
            found.append(each)
        return found

    def _too_late(
        self, item: Item, back: bool, windows: Sequence[Window], refired: dict[Window, list[Item]]
    ) -> None:
        if self._rules.late == "refire" and not back:
            for window in windows:
                refired.setdefault(window, []).append(item)
        else:
            self._drop(item, back)

    def _at(self, window: Window, clocks: Clocks) -> Open:
        for each in self.open:
            if each.window == window:
                return each
        return self._born(window, clocks)

    def _born(self, window: Window, clocks: Clocks) -> Open:
        self.open.append(Open(window, self._rules.trigger.fresh(), clocks.watermark >= window.end))
        return self.open[-1]

    def _add(self, each: Open, item: Item, clocks: Clocks) -> None:
        each.items.append(item)
        each.items.sort(key=lambda item: item.number)
        self._news(each, 1, item, clocks)
        each.trigger.add(1, len(encode_value(item.value)), self._moment(each.window, clocks))

    def _take_back(self, each: Open, item: Item, clocks: Clocks) -> None:
        held = next((mine for mine in each.items if mine.same(item)), None)
        if held is None and each.window == GLOBAL_WINDOW:
            # A row goes at the time of what takes its place.
            alike = (mine for mine in each.items if mine.alike(item))
            held = min(alike, key=lambda mine: mine.timestamp, default=None)
        if held is None:
            self._reject(item, "a retraction of a record that its window does not hold")
            return
        each.items.remove(held)
        self._news(each, -1, held, clocks)
        each.trigger.add(1, 0, self._moment(each.window, clocks))

    def _news(self, each: Open, sign: int, item: Item, clocks: Clocks) -> None:
        each.news.append((sign, item))
        each.newest = max(each.newest, item.timestamp)
        if item.timestamp >= clocks.watermark:
            each.held.append(item.timestamp)

    # --- sessions ---------------------------------------------------------------------------------

    def _joined(self, own: Window, clocks: Clocks) -> Open:
        """The window that a record's own one becomes part of, merged from all that it brings
        together."""
        known = [each.window for each in self.open if not each.closed]
        for group in self._rules.assign.groups([*known, *([] if own in known else [own])]):
            parts = sorted(
                (e for e in self.open if not e.closed and e.window in group), key=lambda e: e.window
            )
            whole = Window(min(w.start for w in group), max(w.end for w in group))
            if own in group:
                return self._merged(parts, whole, clocks) if parts else self._born(own, clocks)
            if len(parts) > 1:
                self._merged(parts, whole, clocks)
        raise AssertionError(f"{own} is in none of the groups")

    def _merged(self, parts: list[Open], whole: Window, clocks: Clocks) -> Open:
        first = parts[0]
        if len(parts) == 1 and first.window == whole:
            return first
        first.trigger = first.trigger.merge(
            [part.trigger for part in parts], self._moment(whole, clocks)
        )
        first.items = sorted(
            (item for part in parts for item in part.items), key=lambda item: item.number
        )
        first.news = sorted(
            (news for part in parts for news in part.news), key=lambda news: news[1].number
        )
        first.held = [at for part in parts for at in part.held]
        first.standing = [pane for part in parts for pane in part.standing]
        if len(parts) > 1:  # another window
            first.index = first.nonspeculative = 0
        first.told = clocks.watermark >= whole.end and any(part.told for part in parts)
        first.window = whole
        self.open = [each for each in self.open if each is first or each not in parts]
        return first

    def _take_from_session(self, item: Item, clocks: Clocks) -> list[Open]:
        holders = [
            e for e in self.open if not e.closed and any(mine.same(item) for mine in e.items)
        ]
        if not holders:
            self._reject(item, "a retraction of a record that its window does not hold")
            return []
        each = holders[0]
        gone = next(mine for mine in each.items if mine.same(item))
        each.items.remove(gone)
        each.news.append((-1, gone))
        alone = [
            window
            for left in each.items
            for window in self._rules.assign.windows(left.timestamp, left.value)
        ]
        groups = self._rules.assign.groups(sorted(set(alone))) if alone else []
        spans = sorted(
            Window(min(w.start for w in group), max(w.end for w in group)) for group in groups
        )
        if len(spans) != 1:
            self._retract(each)
        if not spans:
            self.open.remove(each)
            return []
        return self._fallen_apart(each, spans, clocks)

    def _fallen_apart(self, each: Open, spans: list[Window], clocks: Clocks) -> list[Open]:
        items = each.items
        each.window, each.items = (
            spans[0],
            [i for i in items if spans[0].start <= i.timestamp < spans[0].end],
        )
        each.told = each.told or clocks.watermark >= each.window.end
        found = [each]
        for span in spans[1:]:
            part = self._born(span, clocks)
            part.items = [item for item in items if span.start <= item.timestamp < span.end]
            part.news = [(1, item) for item in part.items]
            part.trigger.add(len(part.items), 0, self._moment(span, clocks))
            found.append(part)
        return found

    # --- firing -----------------------------------------------------------------------------------

    def ask(self, each: Open, clocks: Clocks) -> None:
        """Ask the trigger once, and end the window if it is time."""
        over = self._rules.over(each.window, clocks.watermark)
        if not each.closed:
            moment = self._moment(each.window, clocks)
            if each.trigger.ready(moment):
                each.trigger.fire(moment)
                self._fire(each, clocks, over or each.trigger.finished)
                each.closed = each.trigger.finished
            elif over and each.news:
                self._fire(each, clocks, True)
            each.told = each.told or (moment.complete and not each.news)
        if over:
            self.open.remove(each)
            if self._rules.assign.empty and each.items:
                self._await_next(each.window, clocks)

    def _await_next(self, window: Window, clocks: Clocks) -> None:
        """``emit: empty``: the window behind one with records fires, too. Its end may have passed
        as well."""
        if window.end == MAX_TIME:
            return
        (following,) = self._rules.assign.windows(window.end, None)
        if all(each.window != following for each in self.open):
            self.open.append(Open(following, self._rules.trigger.fresh(), told=False))
            if clocks.watermark >= following.end:
                self.ask(self.open[-1], clocks)

    def pass_time(self, clocks: Clocks) -> None:
        """The watermark has passed the ends of windows, or of their lateness."""
        due = [
            e for e in self.open if not e.told and not e.closed and clocks.watermark >= e.window.end
        ]
        due += [e for e in self.open if self._rules.over(e.window, clocks.watermark)]
        due += [
            e
            for e in self.open
            if not e.closed and any(at >= e.window.end for at in clocks.shares.values())
        ]
        for each in sorted(set(due), key=self._due_at):
            if each in self.open:
                self.ask(each, clocks)
        if not self._rules.assign.ends:
            self._forget(clocks)
        self._passed = clocks.watermark

    def _forget(self, clocks: Clocks) -> None:
        """Groups whose time to live is over go, and at the end of the input what is unsaid is
        said."""
        for each in list(self.open):
            over = clocks.watermark > min(each.newest + self._rules.assign.ttl, MAX_TIME)
            if each.news and (over or clocks.watermark == MAX_TIME):
                each.trigger.fire(self._moment(each.window, clocks))
                self._fire(each, clocks, False)
            if over:
                self.open.remove(each)

    def _due_at(self, each: Open) -> tuple[int, str, int]:
        """What the watermark passes of a window: its end, or the end of its lateness."""
        ends = each.window.end
        due = ends if self._passed < ends else min(ends + self._rules.lateness, MAX_TIME)
        return due, self._tag(each), each.window.start

    def _tag(self, each: Open) -> str:
        """The docs give no order to what is due at one time. This is the runtime's, so that it can
        be compared."""
        return "" if self._rules.assign.merges else f"{each.window.start},{each.window.end}"

    def pass_clock(self, clocks: Clocks) -> None:
        """The wall clock has reached what triggers wait for."""
        due = [e for e in self.open if not e.closed and e.trigger.wakes_at() <= clocks.now_us]
        for each in sorted(due, key=lambda e: (e.trigger.wakes_at(), self._tag(e))):
            if each in self.open:
                self.ask(each, clocks)

    def wakes_at(self, now_us: int) -> int:
        """When the clock makes a trigger ready that is not."""
        times = [each.trigger.wakes_at() for each in self.open if not each.closed]
        return min((at for at in times if at > now_us), default=MAX_TIME)

    def hold(self, watermark: int) -> int:
        """The earliest timestamp of what is unsaid."""
        return min((self._held(each, watermark) for each in self.open), default=MAX_TIME)

    def _held(self, each: Open, watermark: int) -> int:
        if each.closed or not each.news:
            return MAX_TIME
        if not self._rules.assign.ends:
            return each.newest if each.newest >= watermark else MAX_TIME
        if self._rules.output_time != "end_of_window" and each.held:
            return self._timestamp(each)
        return each.window.end - 1 if watermark >= each.window.end and not each.told else MAX_TIME

    def _fire(self, each: Open, clocks: Clocks, last: bool) -> None:
        timing = self._timing(each, clocks.watermark)
        complete = timing is Timing.ON_TIME and each.trigger.tells and not each.standing
        if (not each.news and not complete) or self._skipped(each):
            return
        retracting = self._rules.accumulation == "retracting"
        if retracting:
            self._retract(each)
        if each.items or not retracting:
            pane = self._pane(each, timing, *self._content(each), last)
            self._emit(pane)
            each.index += 1
            each.nonspeculative += timing is not Timing.EARLY
            if retracting:
                each.standing.append(pane)
        each.told = each.told or timing is not Timing.EARLY
        each.news, each.held = [], []

    def _skipped(self, each: Open) -> bool:
        """Cumulative windows with ``emit: changes``: this one brought no record, and there is
        nothing to correct."""
        assign = self._rules.assign
        return (
            assign.kind == "cumulative" and assign.changes and not each.brought and not each.index
        )

    def _content(self, each: Open) -> tuple[list[Item], list[Item]]:
        """The records of a pane; and, where panes are differences, those that were emitted before
        and are gone."""
        if self._rules.accumulation != "discarding":
            return each.items, []
        came = [item for sign, item in each.news if sign > 0]
        gone = []
        for sign, item in each.news:
            if sign < 0 and item in came:
                came.remove(item)
            elif sign < 0:
                gone.append(item)
        return came, gone

    def _retract(self, each: Open) -> None:
        for pane in each.standing:
            self._emit(msgspec.structs.replace(pane, retraction=True))
        each.standing = []

    def _timing(self, each: Open, watermark: int) -> Timing:
        if watermark < each.window.end:
            return Timing.EARLY
        return Timing.LATE if each.told else Timing.ON_TIME

    def _timestamp(self, each: Open) -> int:
        last = each.window.end - 1
        if not self._rules.assign.ends:
            return each.newest
        if self._rules.output_time == "end_of_window" or not each.held:
            return last
        return min(last, (min if self._rules.output_time == "earliest" else max)(each.held))

    def _pane(
        self, each: Open, timing: Timing, items: Sequence[Item], less: Sequence[Item], last: bool
    ) -> Pane:
        return Pane(
            key=self.key,
            window=each.window,
            result=self._rules.aggregates.result(items, less),
            timestamp=self._timestamp(each),
            timing=timing,
            index=each.index,
            nonspeculative_index=-1 if timing is Timing.EARLY else each.nonspeculative,
            is_first=each.index == 0,
            is_last=last,
        )

    def _moment(self, window: Window, clocks: Clocks) -> Moment:
        return Moment(window, clocks.watermark, clocks.now_us, clocks.shares)
