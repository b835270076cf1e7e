"""Records with aggregates of those before them: every record is kept for ever, and a timer at its
time says when it counts."""

from __future__ import annotations

from typing import Any

import msgspec

from millwheel.api import Computation
from millwheel.core.model.records import Record, Timer
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import OverSpec
from millwheel.errors import RecordError
from tests.search.reference.aggregates import Aggregates, Item
from tests.search.reference.calls import CallNode
from tests.search.reference.engine import World, plain

_content = msgspec.msgpack.Encoder(order="deterministic").encode


class LookingBack(Computation):
    """``waiting`` and ``taken`` are the records of each key: (the time that counts, the place among
    those of one time, the item)."""

    def __init__(self, world: World, spec: ComputationSpec) -> None:
        self._work = spec.work_as(OverSpec)
        self._streams = [each.stream for each in spec.inputs]
        self._sources = {each.name for each in world.spec.streams if each.source is not None}
        self._outputs = spec.outputs
        self._aggregates = Aggregates(spec, world.load)
        self._waiting: dict[Any, list[Any]] = {}
        self._taken: dict[Any, list[Any]] = {}

    def process_record(self, ctx: Any, record: Record) -> None:
        value = plain(record.value)
        if not isinstance(value, dict):
            raise RecordError(
                f"over adds fields to a record, and a {type(value).__name__} has no fields"
            )
        arguments = self._aggregates.read(value)
        if arguments is None:
            return
        arrival = ctx._node.arrival
        names = [each.name for each in self._work.aggregates]
        content = _content({name: value[name] for name in value if name not in names})
        own = record.stream in self._sources
        among = (arrival.origin, arrival.number) if own else ("", 0)
        place = (self._streams.index(record.stream), *among, b"" if own else content)
        item = Item(value, record.timestamp, arguments, arrival.number)
        self._waiting.setdefault(record.key, []).append((place, item))
        ctx.set_timer(str(record.timestamp), record.timestamp)

    def process_timer(self, ctx: Any, timer: Timer) -> None:
        waiting = self._waiting[timer.key]
        due = [each for each in waiting if each[1].timestamp <= timer.at]
        self._waiting[timer.key] = [each for each in waiting if each[1].timestamp > timer.at]
        taken = self._taken.setdefault(timer.key, [])
        before = len(taken)
        for _, item in sorted(due, key=lambda each: (each[1].timestamp, each[0])):
            at = max([item.timestamp, *(time for time, _ in taken[-1:])])
            taken.append((at, item))
        for index in range(before, len(taken)):
            at, item = taken[index]
            result = self._aggregates.result(self._lookback(taken, index))
            for stream in self._outputs:
                ctx.produce(stream, {**item.value, **result}, item.timestamp)

    def _lookback(self, taken: list[Any], index: int) -> list[Item]:
        work, at = self._work, taken[index][0]
        some = taken[: index + 1] if work.by_rows else [row for row in taken if row[0] <= at]
        if work.ttl_us is not None:
            for place in range(len(some) - 1, 0, -1):
                if some[place][0] - some[place - 1][0] > work.ttl_us:
                    some = some[place:]
                    break
        if work.size is not None:
            some = (
                some[-work.size :]
                if work.by_rows
                else [row for row in some if row[0] >= at - work.size]
            )
        return [item for _, item in some]


def looking_back(world: World, spec: ComputationSpec) -> CallNode:
    """The node of a computation with ``over``."""
    return CallNode(world, spec, LookingBack(world, spec), "over")
