"""Joins without windows: the whole result of a key is computed before and after each record, and
the difference is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from millwheel.api import Computation, ValueState
from millwheel.core.formats.codec import decode_value, encode_value
from millwheel.core.model.records import Record
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import JoinKind, RegularJoinSpec
from millwheel.core.windows.panes import as_retraction, retracted
from tests.search.reference.calls import CallNode
from tests.search.reference.engine import World, plain
from tests.search.reference.keys import key_row

Said = tuple[bytes, int | None]
"""A row of the result, and its time; None where that depends on what came first."""


class Joining(Computation):
    """``rows`` are those of both streams that are there, in the order in which they came: the
    number of the stream, the value and the time."""

    rows: Any = ValueState(list, default=list)

    def __init__(self, spec: ComputationSpec) -> None:
        self._kind = spec.work_as(RegularJoinSpec).kind
        self._inputs = spec.inputs
        self._outputs = spec.outputs

    def process_record(self, ctx: Any, record: Record) -> None:
        rows = self.rows.get()
        before = Counter(self._result(ctx.key, rows))
        back = as_retraction(record.value)
        value = plain(record.value if back is None else back.value)
        number = [each.stream for each in self._inputs].index(record.stream)
        if back is None:
            rows.append([number, value, record.timestamp])
        else:
            same = [each for each in rows if each[:2] == [number, value]]
            rows.remove(next((each for each in same if each[2] == record.timestamp), same[0]))
        self.rows.set(rows)
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
        kind = self._kind
        if len(self._inputs) > 2:
            yield from self._combinations(key, rows)
            return
        lefts = [each for each in rows if each[0] == 0]
        rights = [each for each in rows if each[0] == 1]
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            if bool(rights) == (kind is JoinKind.SEMI):
                yield from ((encode_value(left[1]), None) for left in lefts)
            return
        for left in lefts:
            for right in rights:
                yield self._pair(key, left[1], right[1]), max(left[2], right[2])
        if not rights and kind in (JoinKind.LEFT, JoinKind.OUTER):
            yield from ((self._pair(key, left[1], None), None) for left in lefts)
        if not lefts and kind in (JoinKind.RIGHT, JoinKind.OUTER):
            yield from ((self._pair(key, None, right[1]), None) for right in rights)

    def _combinations(self, key: Any, rows: list[Any]) -> Iterator[Said]:
        of_streams = [[e for e in rows if e[0] == number] for number in range(len(self._inputs))]
        for each in joined_one_by_one(of_streams, self._kind):
            values = [row and row[1] for row in each]
            data = {given.stream: value for given, value in zip(self._inputs, values, strict=True)}
            row = encode_value({**key_row(self._inputs[0].key, key), **data})
            yield row, None if None in each else max(row[2] for row in each)

    def _pair(self, key: Any, left: Any, right: Any) -> bytes:
        one, other = self._inputs
        return encode_value({**key_row(one.key, key), one.stream: left, other.stream: right})


def joined_one_by_one(of_streams: list[list[Any]], kind: JoinKind) -> list[list[Any]]:
    """Joins of two, one after the other: whoever came together so far meets the rows of the next
    stream, or nobody."""
    found = [[row] for row in of_streams[0]]
    for number, nexts in enumerate(of_streams[1:], 1):
        nobody = [None] * number
        if nexts and found:
            found = [[*each, other] for each in found for other in nexts]
        elif nexts:
            found = [[*nobody, other] for other in nexts] if kind in _WITHOUT_FIRST else []
        else:
            found = [[*each, None] for each in found] if kind in _WITHOUT_OTHER else []
    return found


_WITHOUT_FIRST = (JoinKind.RIGHT, JoinKind.OUTER)
_WITHOUT_OTHER = (JoinKind.LEFT, JoinKind.OUTER)


def kept_join(world: World, spec: ComputationSpec) -> CallNode:
    """The node of a join without a window."""
    return CallNode(world, spec, Joining(spec), "join")
