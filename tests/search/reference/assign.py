"""Which windows a record is in, found by looking at all that come into question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.work import WindowSpec
from millwheel.core.windows.windows import Window
from millwheel.errors import RecordError

_BOUNDS = ("window_start", "window_end")
_EPOCH = datetime(1970, 1, 1)
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR


class Assigner:
    """The windows of one computation. ``kind`` is as in YAML, ``options`` as in WindowSpec."""

    def __init__(self, spec: WindowSpec, load: Callable[[str], Any]) -> None:
        self.kind = spec.kind
        self._size = spec.options.get("size_us") or 0
        self.every: int = spec.options.get("every_us") or 0
        self._offset = spec.options.get("offset_us") or 0
        self._zone = spec.options.get("time_zone") or ""
        self._gap = spec.options.get("gap_us") or 0
        self.count: int = spec.options.get("count") or 0
        self.changes = bool(spec.options.get("changes"))
        self.empty = bool(spec.options.get("empty"))
        self.size: int = self._size
        self._bounds = _BOUNDS if spec.kind == "of" else ()
        self._custom = None
        if spec.kind == "custom":
            self._custom = load(spec.options["factory"])(
                **{k: v for k, v in spec.options.items() if k != "factory"}
            )
        self.ends = spec.kind != "forever"
        self.ttl: int = spec.options.get("ttl_us") or MAX_TIME
        self.merges = spec.kind == "session" or callable(getattr(self._custom, "merge", None))

    def windows(self, t: int, value: Any) -> list[Window]:
        """The windows of a record alone, earliest end first; none reaches beyond time. Those of
        results are what the results say."""
        if self._bounds:
            return [self._stated(value)]
        found = [
            Window(max(start, MIN_TIME), min(end, MAX_TIME)) for start, end in self._windows(t)
        ]
        return sorted(found, key=lambda window: window.end)

    def groups(self, windows: Sequence[Window]) -> list[list[Window]]:
        """Windows of a key that belong together. Those of sessions overlap, and do not only
        touch."""
        if self._custom is not None:
            return [list(group) for group in self._custom.merge(sorted(windows))]
        groups: list[list[Window]] = []
        for window in windows:
            near = [
                group
                for group in groups
                if any(a.start < window.end and window.start < a.end for a in group)
            ]
            groups = [group for group in groups if group not in near]
            groups.append([window, *(a for group in near for a in group)])
        return groups

    def _stated(self, value: Any) -> Window:
        fields = value if isinstance(value, dict) else {}
        start, end = (fields.get(name) for name in self._bounds)
        if type(start) is int and type(end) is int and MIN_TIME <= start < end <= MAX_TIME:
            return Window(start, end)
        raise RecordError("window: {of: input}: no bounds of a window")

    def _windows(self, t: int) -> list[tuple[int, int]]:
        if self._custom is not None:
            return list(self._custom.assign(t))
        if self.kind in ("global", "forever"):
            return [(MIN_TIME, MAX_TIME)]
        if self.kind == "count":
            return [(t, t + 1)]
        if self.kind == "session":
            return [(t, t + self._gap)]
        if self.kind == "sliding":
            first = self._offset + (t - self._offset - self._size) // self.every * self.every
            starts = range(first, t + 1, self.every)
            return [
                (start, start + self._size) for start in starts if start <= t < start + self._size
            ]
        start, end = self.period(t)
        if self.kind == "tumbling":
            return [(start, end)]
        ends = [*range(start + self.every, end, self.every), end]
        return [(start, each) for each in ends if t < each]

    def period(self, t: int) -> tuple[int, int]:
        """The tumbling window of a time, or the full one of cumulative windows."""
        if self._zone:
            return self._days(t)
        number = (t - self._offset) // self._size
        start = number * self._size + self._offset
        return start, start + self._size

    def _days(self, t: int) -> tuple[int, int]:
        """Periods of whole local days, counted from 1970-01-01."""
        count = self._size // _DAY
        near = (_EPOCH + timedelta(microseconds=t)).date().toordinal() - date(
            1970, 1, 1
        ).toordinal()
        for number in range(near // count - 2, near // count + 3):
            start, end = self._begin(number * count), self._begin((number + 1) * count)
            if start <= t < end:
                return start, end
        raise ValueError(f"{t} is in no day")

    def _begin(self, day: int) -> int:
        """The first instant at which the local clock shows the midnight that begins a day (plus
        offset), or more."""
        wanted = day * _DAY + self._offset
        about = range(wanted - 40 * _HOUR, wanted + 40 * _HOUR, _HOUR)
        jumps = [
            self._jump(at, at + _HOUR) for at in about if self._ahead(at) != self._ahead(at + _HOUR)
        ]
        tries = {wanted - self._ahead(at) for at in about} | set(jumps)
        return min(at for at in tries if at + self._ahead(at) >= wanted)

    def _jump(self, low: int, high: int) -> int:
        """The first instant of another offset, between two."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._ahead(middle) == self._ahead(low) else (low, middle)
        return high

    def _ahead(self, t: int) -> int:
        """How far the local clock is ahead of UTC at an instant."""
        instant = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=t)
        offset = instant.astimezone(ZoneInfo(self._zone)).utcoffset()
        assert offset is not None
        return offset // timedelta(microseconds=1)
