"""The rivals of key windows as callbacks: a sliding sum or maximum per key. See
``bench/rivals.py``.

All produce {key, at, result}: the result is right for the window that ends at ``at``, and may
change there. ``windows`` counts what each makes: windows, buckets, or raw records kept. Of a sum,
callbacks keep a running total and subtract what leaves; of a maximum, they read all that is left.
"""

from __future__ import annotations

from typing import Any

from millwheel import Computation, Context, MapState, Record, Timer, ValueState


class _Kept(Computation):
    """Parts by the time at which they enter. Each leaves ``size_us`` later."""

    parts = MapState(int, int)
    total = ValueState(int, default=int)

    def __init__(self, size_us: int, function: str) -> None:
        self._size_us, self._subtracts = size_us, function == "sum"

    def part(self, ctx: Context, enters: int, value: int) -> None:
        """Keep a value that enters then, with others of that time."""
        known = self.parts.get(enters)
        if known is None:
            ctx.count("windows")
            ctx.set_timer(f"i{enters}", enters - 1)
            self.parts[enters] = value
        else:
            self.parts[enters] = known + value if self._subtracts else max(known, value)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        kind, enters, at = timer.tag[0], int(timer.tag[1:]), timer.at + 1
        value = self.parts[enters]
        if kind == "i":
            ctx.set_timer(f"o{enters}", enters + self._size_us - 1)
        else:
            del self.parts[enters]
        result: int | None
        if self._subtracts:
            result = self.total.get() + (value if kind == "i" else -value)
            self.total.set(result)
        else:
            result = max((part for time, part in self.parts.items() if time <= at), default=None)
        # Another part may leave or enter at the same time: its timer produces the right result
        # then.
        ctx.produce("results", {"key": ctx.key, "at": at, "result": result})


class Raw(_Kept):
    """Keeps each record until it leaves, and produces whenever one enters or leaves: no slide, so
    nothing limits the results."""

    def process_record(self, ctx: Context, record: Record[dict[str, Any]]) -> None:
        self.part(ctx, record.timestamp + 1, record.value["v"])


class Buckets(_Kept):
    """Keeps one value per bucket of ``bucket_us``. What happens inside of a bucket is seen at its
    end."""

    def __init__(self, size_us: int, function: str, bucket_us: int) -> None:
        super().__init__(size_us, function)
        self._bucket_us = bucket_us

    def process_record(self, ctx: Context, record: Record[dict[str, Any]]) -> None:
        at = record.timestamp
        self.part(ctx, at + self._bucket_us - at % self._bucket_us, record.value["v"])


class Literal(Computation):
    """Left and right key windows as they were published: a record is added to every open window
    that it is in.

    ``windows`` are their results by their ends. A fired window is kept until a newer one has fired,
    because the next left one may begin with it. Records of a key must come in the order of time."""

    windows: MapState[int, Any] = MapState()
    newest_left = ValueState(int, default=int)

    def __init__(self, size_us: int, function: str, every_us: int) -> None:
        self._size_us, self._sums, self._every_us = size_us, function == "sum", every_us

    def process_record(self, ctx: Context, record: Record[dict[str, Any]]) -> None:
        at, value, size = record.timestamp, record.value["v"], self._size_us
        end = at + self._every_us - at % self._every_us
        known = dict(self.windows.items())
        for each, result in known.items():
            if each - size <= at < each:
                self.windows[each] = self._with(result, value)
                ctx.count("adds")
        if end not in known:
            self._make(ctx, end, self._with(self._left(end, known), value))
        if end + size not in known:
            self._make(ctx, end + size, self._with(None, None))
        self.newest_left.set(end)

    def _with(self, result: int | None, value: int | None) -> int | None:
        if self._sums:
            return (result or 0) + (value or 0)
        return max((each for each in (result, value) if each is not None), default=None)

    def _left(self, end: int, known: dict[int, int | None]) -> int | None:
        """The result of what is still in the left window that ends at ``end``, before its own
        record."""
        size, newest = self._size_us, self.newest_left.get()
        if not newest or end - size >= newest:
            return None
        right = max((each for each in known if newest <= each < end), default=newest)
        return known[right]

    def _make(self, ctx: Context, end: int, result: int | None) -> None:
        self.windows[end] = result
        ctx.count("windows")
        ctx.set_timer(str(end), end - 1)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        end = timer.at + 1
        ctx.produce("results", {"key": ctx.key, "at": end, "result": self.windows[end]})
        newest = self.newest_left.get()
        for each, _ in list(self.windows.items()):
            if each < end and each != newest:
                del self.windows[each]
