"""One windowed grouping of the reference, with the interface of millwheel.testing.WindowHarness.

So the transcripts and the examples of docs/windows.md run on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.core.model.times import MAX_TIME, MIN_TIME, duration_us
from millwheel.core.pipeline.work import AggregateSpec, WindowSpec
from millwheel.core.windows.contract import LateRecord, RejectedRecord, rejected
from millwheel.core.windows.panes import Pane, as_retraction
from millwheel.core.windows.windows import Window
from millwheel.errors import RecordError
from tests.computations import computation_spec
from tests.search.reference.aggregates import Aggregates, Item
from tests.search.reference.assign import Assigner
from tests.search.reference.changes import KeyChanges
from tests.search.reference.combinations import trigger_of
from tests.search.reference.counts import KeyCounts
from tests.search.reference.panes import Clocks, KeyWindows, Rules
from tests.search.reference.triggers import Custom, Trigger

_KINDS = {
    "Tumbling": (
        "tumbling",
        {"size": "size_us", "offset": "offset_us", "time_zone": "time_zone", "empty": "empty"},
    ),
    "Sliding": (
        "sliding",
        {"size": "size_us", "every": "every_us", "offset": "offset_us", "changes": "changes"},
    ),
    "Sessions": ("session", {"gap": "gap_us"}),
    "Global": ("global", {}),
    "Forever": ("forever", {"ttl": "ttl_us"}),
    "Count": ("count", {"count": "count"}),
    "Custom": ("custom", {}),
    "OfInput": ("of", {}),
    "Cumulative": (
        "cumulative",
        {
            "size": "size_us",
            "every": "every_us",
            "offset": "offset_us",
            "time_zone": "time_zone",
            "changes": "changes",
        },
    ),
}


class ReferenceWindow:
    """See millwheel.testing.WindowHarness."""

    def __init__(
        self,
        window: Any,
        trigger: Any = None,
        accumulation: str = "discarding",
        allowed_lateness: str | int = 0,
        output_time: str = "end_of_window",
        aggregate: Any = None,
        *,
        late: str = "drop",
        takes_retractions: bool = False,
        stored: bool = False,
    ) -> None:
        self._aggregates = _Single(aggregate)
        self._rules = Rules(
            _assigner(window),
            _trigger(trigger),
            self._aggregates,
            accumulation,
            duration_us(allowed_lateness),
            output_time,
            late,
        )
        self._clocks = Clocks(MIN_TIME, 0, {})
        self.late: list[LateRecord] = []
        self.rejected: list[RejectedRecord] = []
        self._keys: dict[Any, Any] = {}
        self._panes: list[Pane] = []
        self._number = 0

    def push(self, key: Any, value: Any, timestamp: int) -> None:
        """One record."""
        self.push_bundle([(key, value, timestamp)])

    def push_bundle(self, records: Sequence[tuple[Any, Any, int]]) -> None:
        """Records that arrive together."""
        by_key: dict[Any, list[tuple[Item, bool]]] = {}
        for key, value, timestamp in records:
            back = as_retraction(value)
            about = value if back is None else back.value
            try:
                arguments = self._aggregates.read(about)
                self._rules.assign.windows(timestamp, about)
            except RecordError as ex:
                self.rejected.append(rejected(key, about, timestamp, ex))
                continue
            self._number += 1
            assert arguments is not None
            item = Item(about, timestamp, arguments, self._number)
            by_key.setdefault(key, []).append((item, back is not None))
        for key, own in by_key.items():
            self._of(key).take(own, self._clocks)

    def advance_watermark(self, t: int, share: float | None = None) -> None:
        """Of all input, or of a share of it."""
        if share is None:
            self._clocks.watermark = t
        else:
            self._clocks.shares = {**self._clocks.shares, share: t}
        for each in self._keys.values():
            each.pass_time(self._clocks)

    def advance_processing_time(self, t: int) -> None:
        """The wall clock shows ``t``."""
        self._clocks.now_us = t
        for each in self._keys.values():
            each.pass_clock(self._clocks)

    def take(self) -> list[Pane]:
        """The panes since the last call."""
        panes, self._panes = self._panes, []
        return panes

    def open_windows(self, key: Any) -> list[Window]:
        """Those that take records."""
        own = self._of(key)
        if not isinstance(own, KeyWindows):
            return list(own.windows())
        return sorted(
            (each.window for each in own.open if not each.closed), key=lambda w: (w.end, w.start)
        )

    def closed_windows(self, key: Any) -> list[Window]:
        """Those whose trigger has finished."""
        own = self._of(key)
        closed = (
            [each.window for each in own.open if each.closed] if isinstance(own, KeyWindows) else []
        )
        return sorted(closed, key=lambda w: (w.end, w.start))

    def state_of(self, key: Any) -> dict[Any, Any]:
        """Empty once all windows of the key are gone."""
        own = self._of(key)
        return {each.window: True for each in own.open} if isinstance(own, KeyWindows) else {}

    @property
    def hold(self) -> int | None:
        """What holds the output watermark."""
        at = min(
            (each.hold(self._clocks.watermark) for each in self._keys.values()), default=MAX_TIME
        )
        return None if at == MAX_TIME else at

    def _of(self, key: Any) -> Any:
        if key not in self._keys:
            assign = self._rules.assign

            def drop(item: Item, back: bool) -> None:
                self.late.append(LateRecord(key, item.value, item.timestamp, ""))

            def reject(item: Item, reason: str) -> None:
                self.rejected.append(RejectedRecord(key, item.value, item.timestamp, reason))

            # The list of panes is replaced by take().
            def emit(pane: Pane) -> None:
                self._panes.append(pane)

            if assign.kind == "count":
                self._keys[key] = KeyCounts(key, self._rules, emit)
            elif assign.kind == "sliding" and assign.changes:
                self._keys[key] = KeyChanges(key, self._rules, emit, drop)
            else:
                self._keys[key] = KeyWindows(key, self._rules, emit, drop, reject)
        return self._keys[key]


class _Single(Aggregates):
    """What a WindowHarness is told to aggregate: nothing, one function of the value, or named ones
    of its fields."""

    def __init__(self, aggregate: Any) -> None:
        self._one = aggregate is None or not isinstance(aggregate, Mapping)
        given = {"only": aggregate or "collect"} if self._one else dict(aggregate)
        specs = []
        for name, function in given.items():
            settings = {function: ""} if not isinstance(function, Mapping) else dict(function)
            kind, argument = next(iter(settings.items()))
            options = {option: value for option, value in settings.items() if option != kind}
            if isinstance(kind, str):
                specs.append(AggregateSpec(name, kind, argument, "", options))
            else:
                specs.append(AggregateSpec(name, "own:Own", argument, "", {"made": kind}))
        super().__init__(
            computation_spec("c", window=WindowSpec("global"), aggregates=tuple(specs)),
            lambda name: lambda made: made,
        )

    def result(self, items: Sequence[Item], less: Sequence[Item] = ()) -> Any:
        found = super().result(items, less)
        return found["only"] if self._one else found


def _assigner(window: Any) -> Assigner:
    kind, names = _KINDS[type(window).__name__]
    if kind == "custom":
        return Assigner(WindowSpec(kind, {"factory": "own:own"}), lambda name: lambda: _Own(window))
    return Assigner(
        WindowSpec(kind, {to: getattr(window, name) for name, to in names.items()}),
        lambda name: None,
    )


class _Own:
    """A custom window function as the user writes it."""

    def __init__(self, custom: Any) -> None:
        self.assign = custom.assign
        if custom.merging:
            self.merge = custom.merge


def _trigger(trigger: Any) -> Trigger:
    return (
        trigger_of(_tree(trigger), lambda name: lambda: None)
        if _known(trigger)
        else Custom(trigger)
    )


def _known(trigger: Any) -> bool:
    return trigger is None or type(trigger).__module__.startswith("millwheel.core")


def _tree(trigger: Any) -> Any:
    """A trigger object as the tree that YAML has for it."""
    if trigger is None:
        return None
    kind = type(trigger).__name__
    if kind in ("Default", "Never"):
        return kind.lower()
    if kind == "AfterWatermark":
        return {"after_watermark": {"early": _tree(trigger.early), "late": _tree(trigger.late)}}
    if kind in ("AfterCount", "AfterBytes"):
        return (
            {"after_count": trigger.count}
            if kind == "AfterCount"
            else {"after_bytes": trigger.size}
        )
    if kind == "AfterProcessingTime":
        return {"after_processing_time": {"delay": trigger.delay, "align": trigger.align}}
    if kind == "AfterPercentileWatermark":
        return {"after_percentile_watermark": trigger.share}
    if kind in ("Repeat", "Once"):
        return {kind.lower(): _tree(trigger.trigger)}
    if kind == "OrFinally":
        return {"or_finally": {"main": _tree(trigger.parts[0]), "until": _tree(trigger.parts[1])}}
    return {kind.removeprefix("After").lower(): [_tree(part) for part in trigger.parts]}
