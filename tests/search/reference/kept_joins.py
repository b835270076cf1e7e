"""Joins without windows: the whole result of a key is computed before and after each record, and
the difference is said. Within an interval: each record meets what came before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.records import Record
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import RegularJoinKind, RegularJoinSpec
from millwheel.core.windows.panes import as_retraction, retracted
from tests.search.reference.calls import CallNode
from tests.search.reference.engine import World, plain
from tests.search.reference.keys import key_row

Said = tuple[bytes, int | None]
"""A row of the result, and its time; None where that depends on what came first."""


class Joining(Computation):
    """``rows`` are those of both streams that are there, in the order in which they came: the
    number of the stream, the value, the time, and as of which time it counts."""

    rows: Any = ValueState(list, default=list)

    def __init__(self, spec: ComputationSpec) -> None:
        self._kind = spec.work_as(RegularJoinSpec).kind
        self._within: Any = spec.work_as(RegularJoinSpec).within_us
        self._inputs = spec.inputs
        self._outputs = spec.outputs

    def process_record(self, ctx: Any, record: Record) -> None:
        rows = self.rows.get()
        before = Counter(self._result(ctx.key, rows))
        back = as_retraction(record.value)
        value = plain(record.value if back is None else back.value)
        number = [each.stream for each in self._inputs].index(record.stream)
        if self._within is not None:
            self._meet(ctx, record, number, value, rows)
        if back is None:
            rows.append([number, value, record.timestamp, ctx._node.moment])
        else:
            same = [each for each in rows if each[:2] == [number, value]]
            rows.remove(next((each for each in same if each[2] == record.timestamp), same[0]))
        self.rows.set(rows)
        if self._within is not None:
            return
        after = Counter(self._result(ctx.key, rows))
        for (data, at), times in (before - after).items():
            for _ in range(times):
                self._say(ctx, retracted(decode_value(data)), at, record)
        for (data, at), times in (after - before).items():
            for _ in range(times):
                self._say(ctx, decode_value(data), at, record)

    def _say(self, ctx: Any, value: Any, at: int | None, record: Record) -> None:
        for stream in self._outputs:
            ctx.produce(stream, value, max(record.timestamp, at or record.timestamp))

    def _result(self, key: Any, rows: list[Any]) -> Iterator[Said]:
        lefts = [each for each in rows if each[0] == 0]
        rights = [each for each in rows if each[0] == 1]
        kind = self._kind
        if kind in (RegularJoinKind.SEMI, RegularJoinKind.ANTI):
            if bool(rights) == (kind is RegularJoinKind.SEMI):
                yield from ((encode_value(left[1]), None) for left in lefts)
            return
        for left in lefts:
            for right in rights:
                yield self._pair(key, left[1], right[1]), max(left[2], right[2])
        if not rights and kind in (RegularJoinKind.LEFT, RegularJoinKind.OUTER):
            yield from ((self._pair(key, left[1], None), None) for left in lefts)
        if not lefts and kind in (RegularJoinKind.RIGHT, RegularJoinKind.OUTER):
            yield from ((self._pair(key, None, right[1]), None) for right in rights)

    def _meet(self, ctx: Any, record: Record, number: int, value: Any, rows: list[Any]) -> None:
        """Within an interval: what is near, and has not been forgotten by the time of the call."""
        before, after = self._within
        for other in [each for each in rows if each[0] != number]:
            came = max(each[3] for each in rows if each[:2] == other[:2])
            if came + (before if number == 0 else after) < ctx._node.moment:
                continue
            times = (record.timestamp, other[2])
            left, right = times if number == 0 else times[::-1]
            if left - before <= right <= left + after:
                sides = (value, other[1]) if number == 0 else (other[1], value)
                pair = decode_value(self._pair(ctx.key, *sides))
                self._say(ctx, pair, max(left, right), record)

    def _pair(self, key: Any, left: Any, right: Any) -> bytes:
        one, other = self._inputs
        return encode_value({**key_row(one.key, key), one.stream: left, other.stream: right})


def kept_join(world: World, spec: ComputationSpec) -> CallNode:
    """The node of a join without a window."""
    return CallNode(world, spec, Joining(spec), "join")
