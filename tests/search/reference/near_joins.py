"""Joins within an interval: every record is kept for ever, and a timer of its own says when it
ends."""

from __future__ import annotations

from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.records import Record, Timer
from millwheel.core.model.times import LAST_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import IntervalJoinSpec, JoinKind
from millwheel.errors import RecordError
from tests.search.reference.calls import CallNode
from tests.search.reference.engine import World, plain
from tests.search.reference.keys import key_row

_WITHOUT = {
    JoinKind.LEFT: (0,),
    JoinKind.ANTI: (0,),
    JoinKind.RIGHT: (1,),
    JoinKind.OUTER: (0, 1),
}
"""The inputs whose records are results where they find no partner."""


class Near(Computation):
    """``rows`` are those of both streams in the order in which they came: the number of the stream,
    the value, the time, when it ends, and whether it has found a partner."""

    rows: Any = ValueState(list, default=list)

    def __init__(self, spec: ComputationSpec) -> None:
        self._work = spec.work_as(IntervalJoinSpec)
        self._inputs = spec.inputs
        self._outputs = spec.outputs
        self._pairs = self._work.kind not in (JoinKind.SEMI, JoinKind.ANTI)

    def process_record(self, ctx: Any, record: Record) -> None:
        rows = self.rows.get()
        number = [each.stream for each in self._inputs].index(record.stream)
        own = [number, plain(record.value), record.timestamp, 0, False]
        own[3] = self._end(own)
        for other in rows:
            if other[0] == number or other[3] < ctx._node.watermark:
                continue
            left, right = (own, other) if number == 0 else (other, own)
            if not self._near(left, right):
                continue
            at = max(left[2], right[2])
            if self._pairs:
                self._say(ctx, self._pair(ctx.key, left[1], right[1]), at)
            elif self._work.kind is JoinKind.SEMI and not left[4]:
                self._say(ctx, left[1], at)
            left[4] = right[4] = True
        if own[3] < ctx._node.watermark:
            self._part(ctx, own)
        else:
            ctx.set_timer(str(len(rows)), own[3])
            rows.append(own)
        self.rows.set(rows)

    def process_timer(self, ctx: Any, timer: Timer) -> None:
        self._part(ctx, self.rows.get()[int(timer.tag)])

    def _part(self, ctx: Any, row: list[Any]) -> None:
        if row[4] or row[0] not in _WITHOUT.get(self._work.kind, ()):
            return
        value, none = row[1], None
        if self._pairs:
            value = self._pair(ctx.key, *((value, none) if row[0] == 0 else (none, value)))
        self._say(ctx, value, row[3])

    def _near(self, left: list[Any], right: list[Any]) -> bool:
        before, after = self._work.before_us, self._work.after_us
        return (
            (before is None or left[2] - before <= right[2])
            and (after is None or right[2] <= left[2] + after)
            and all(
                low <= other[2] <= high
                for one, other in ((left, right), (right, left))
                for low, high in [self._named(one)]
            )
        )

    def _end(self, row: list[Any]) -> int:
        most = self._work.after_us if row[0] == 0 else self._work.before_us
        last = LAST_TIME if most is None else row[2] + most
        end: int = min(max(row[2], min(last, self._named(row)[1])), LAST_TIME)
        return end

    def _named(self, row: list[Any]) -> tuple[Any, Any]:
        """The bounds that a record says itself."""
        stream = self._inputs[row[0]].stream
        lows, highs = (
            [
                compile_expression(each.expression).evaluate({stream: row[1]})
                for each in bounds
                if each.stream == stream
            ]
            for bounds in (self._work.froms, self._work.untils)
        )
        for value in (*lows, *highs):
            if type(value) is not int:
                raise RecordError(f"{value!r} is not a time")
        return max(lows, default=float("-inf")), min(highs, default=float("inf"))

    def _say(self, ctx: Any, value: Any, at: int) -> None:
        for stream in self._outputs:
            ctx.produce(stream, value, at)

    def _pair(self, key: Any, left: Any, right: Any) -> Any:
        one, other = self._inputs
        row = {**key_row(one.key, key), one.stream: left, other.stream: right}
        return decode_value(encode_value(row))


def near_join(world: World, spec: ComputationSpec) -> CallNode:
    """The node of a join within an interval."""
    return CallNode(world, spec, Near(spec), "join")
