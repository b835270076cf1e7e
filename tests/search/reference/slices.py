"""Slices, plainly: every record is kept, and a question looks at all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from millwheel.api import Computation
from millwheel.core.model.times import MAX_TIME, MIN_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.errors import RecordError
from tests.search.questions import answers
from tests.search.reference.aggregates import Aggregates, Item
from tests.search.reference.calls import CallNode
from tests.search.reference.engine import Arrival, World
from tests.search.reference.typed_fields import as_shown


class SlicesNode(CallNode):
    """A computation with slices that begin at multiples of their length."""

    def __init__(self, world: World, spec: ComputationSpec) -> None:
        super().__init__(world, spec, Computation(), "")
        slices = spec.work_as(SlicesSpec)
        self._every, self._keep = slices.levels_us[0], slices.keep_us
        self._aggregates = Aggregates(spec, world.load)
        kept = world.spec.kept.get(spec.name)
        self._scales = {} if kept is None else kept.values
        self._items: defaultdict[Any, list[Item]] = defaultdict(list)
        self.delayed = True

    def _process(self, arrival: Arrival) -> None:
        try:
            arguments = self._aggregates.read(arrival.value)
        except RecordError as ex:
            self.world.letter(self.name, str(ex), arrival.value, arrival.timestamp)
            return
        if arguments is None:
            return
        if self._end(arrival.timestamp) <= self._expired():
            self.counters["late"] += 1
            return
        self._items[arrival.key].append(
            Item(arrival.value, arrival.timestamp, arguments, arrival.number)
        )

    def state_of(self, key: Any) -> dict[str, Any]:
        """The answers to all that is asked of a key."""
        return answers(lambda length, until, mode: self._answer(key, length, until, mode))

    def frozen(self) -> Callable[[Any], dict[str, Any]]:
        """:meth:`state_of` as of now."""
        then = copy(self)
        then._items = defaultdict(list, {key: list(items) for key, items in self._items.items()})
        return then.state_of

    def _answer(
        self, key: Any, length: int, until: int, mode: str
    ) -> tuple[Mapping[str, Any], int, int] | None:
        since = until - length
        if mode == "covering":
            start, end = self._start(since), self._end(until - 1)
        else:
            start, end = self._end(since - 1), self._start(until)
            end = max(start, end)
        if length > self._keep or (start < end and start + self._every <= self._expired()):
            return None
        items = [item for item in self._items[key] if start <= item.timestamp < end]
        newest = max((item.timestamp for item in items), default=MIN_TIME)
        found = as_shown(self._aggregates.result(items), self._scales)
        return found, start, until if newest < until < end else end

    def _expired(self) -> int:
        return MIN_TIME if self.watermark == MAX_TIME else self.watermark - self._keep

    def _start(self, at: int) -> int:
        return at // self._every * self._every

    def _end(self, at: int) -> int:
        return self._start(at) + self._every
