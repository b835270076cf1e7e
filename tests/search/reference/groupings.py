"""Computations with windows: aggregates, callbacks that get the records of a window, and joins."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import msgspec

from millwheel.api import Computation
from millwheel.core.model.records import Record
from millwheel.core.model.times import MAX_TIME
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import AggregationSpec, JoinKind, JoinSpec, WindowedSpec
from millwheel.core.windows.panes import RETRACTION_FIELD, Pane, as_retraction, retracted
from millwheel.core.windows.windows import Window
from millwheel.errors import RecordError
from tests.search.reference.aggregates import Aggregates, Item
from tests.search.reference.assign import Assigner
from tests.search.reference.calls import CallNode
from tests.search.reference.changes import KeyChanges
from tests.search.reference.combinations import trigger_of
from tests.search.reference.counts import KeyCounts
from tests.search.reference.engine import Arrival, World, plain
from tests.search.reference.expressions import CALCULATIONS
from tests.search.reference.kept_joins import joined_one_by_one
from tests.search.reference.keys import key_row
from tests.search.reference.panes import Clocks, KeyWindows, Rules

_NO_FLOAT = re.compile(r"'[^']*'|//|floor\([^()]*\)")
"""What has the signs of a division and gives no float: a text, a whole quotient."""


class WindowNode(CallNode):
    """A computation with a window. Its user code, if any, is called for panes."""

    def __init__(
        self, world: World, spec: ComputationSpec, instance: Computation, code: str
    ) -> None:
        super().__init__(world, spec, instance, code)
        work = spec.work_as(WindowedSpec)
        calls = not isinstance(work, AggregationSpec)
        self.rules = Rules(
            assign=Assigner(work.window, world.load),
            trigger=trigger_of(work.firing.trigger, world.load),
            aggregates=Aggregates(spec, world.load, whole=calls),
            accumulation=work.firing.accumulation,
            lateness=work.firing.allowed_lateness_us,
            output_time=work.firing.output_time,
            late=spec.late,
        )
        self._grouped_by = spec.inputs[0].key
        self._calls = calls
        self._float_sums = () if calls else self._sums_of_floats()
        self._keys: dict[Any, KeyWindows | KeyCounts | KeyChanges] = {}
        self._number = 0
        self._stood: list[tuple[Any, Any, int]] = []

    def take(self, arrival: Arrival) -> None:
        if self.copied(arrival):
            return
        value = plain(arrival.value) if isinstance(arrival.value, msgspec.Struct) else arrival.value
        back = as_retraction(value)
        about = value if back is None else back.value
        try:
            arguments = self.rules.aggregates.read(about)
            if arguments is None:
                return
            self.rules.assign.windows(arrival.timestamp, about)
        except (RecordError, ValueError, TypeError) as ex:
            part = getattr(ex, "aggregate", "")
            who = f" (aggregate {part!r} of stream {arrival.stream!r})" if part else ""
            self.world.letter(self.name, f"{ex}{who}", value, arrival.timestamp)
            return
        self._number += 1
        stream = arrival.stream if self._calls else ""  # sums are of all streams together
        item = Item(about, arrival.timestamp, arguments, self._number, stream)
        self._of(arrival.key).take([(item, back is not None)], self.clocks())
        self._take_back_stood()

    def _of(self, key: Any) -> KeyWindows | KeyCounts | KeyChanges:
        if key not in self._keys:

            def drop(item: Item, back: bool) -> None:
                self._late(key, item, back)

            def reject(item: Item, reason: str) -> None:
                self.world.letter(self.name, reason, item.value, item.timestamp)

            if self.rules.assign.kind == "count":
                self._keys[key] = KeyCounts(key, self.rules, self._emit)
            elif self.rules.assign.kind == "sliding" and self.rules.assign.changes:
                self._keys[key] = KeyChanges(key, self.rules, self._emit, drop)
            else:
                self._keys[key] = KeyWindows(key, self.rules, self._emit, drop, reject)
        return self._keys[key]

    def clocks(self) -> Clocks:
        """What time it is here. All watermarks are one to a percentile watermark."""
        return Clocks(self.watermark, self.world.now)

    # --- time -------------------------------------------------------------------------------------

    def fire(self) -> None:
        for each in list(self._keys.values()):
            each.pass_time(self.clocks())
            self._take_back_stood()
        super().fire()

    def ring(self) -> None:
        for each in list(self._keys.values()):
            each.pass_clock(self.clocks())
            self._take_back_stood()
        super().ring()

    def wakes_at(self) -> int:
        now_us = self.world.now
        return min([super().wakes_at(), *(each.wakes_at(now_us) for each in self._keys.values())])

    def hold(self) -> int:
        return min([super().hold(), *(each.hold(self.watermark) for each in self._keys.values())])

    # --- what comes out ---------------------------------------------------------------------------

    def _emit(self, pane: Pane) -> None:
        if self._calls:
            self._call(pane)
            return
        row = self._shown(_row(pane, key_row(self._grouped_by, pane.key), self.rules.assign.ends))
        if row is None:
            return
        for stream in self.spec.outputs:
            self.world.send(stream, pane.key, plain(row), pane.timestamp, self.name)

    def _sums_of_floats(self) -> tuple[str, ...]:
        """The sums that are floats even of nothing: those of which that can be told before the
        first record, since all fields are declared. Fields themselves are whole numbers here."""
        sums = self.spec.work_as(AggregationSpec).aggregates
        declared = [self.world.spec.stream(each.stream).fields for each in self.spec.inputs]
        if len(declared) != 1 or not declared[0]:
            return ()
        return tuple(
            each.name for each in sums if each.function == "sum" and _is_float(each.argument)
        )

    def _shown(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """With the fields that are made of results, if it is shown. What is drawn here means in
        Python what it means in a file."""
        work = self.spec.work_as(AggregationSpec)
        row |= {name: float(row[name]) for name in self._float_sums}
        for name, text in work.then.items():
            row[name] = eval(text, {}, dict(row))
        return row if not work.having or eval(work.having, {}, dict(row)) else None

    def _call(self, pane: Pane) -> None:
        items: list[Item] = pane.result
        records = [
            Record(pane.key, self._typed(item), item.timestamp, item.stream) for item in items
        ]
        shown = msgspec.structs.replace(pane, result=records)

        if isinstance(self.spec.work, JoinSpec):
            self._join(pane, records)
            return

        def call() -> None:
            self.instance.process_window(
                self.context(pane.key, shown), pane.key, pane.window, deepcopy(records)
            )

        about = {
            "window_start": pane.window.start,
            "window_end": pane.window.end,
            "pane": pane.index,
            "count": len(items),
            "records": [[item.value, item.timestamp] for item in items],
        }
        self.attempt(pane.key, pane.timestamp, "window", call, about)

    def _typed(self, item: Item) -> Any:
        schema = self.world.spec.stream(item.stream).schema
        return msgspec.convert(item.value, self.world.load(schema)) if schema else item.value

    def _join(self, pane: Pane, records: list[Record]) -> None:
        """What the window holds now, without what it held when it fired before, and the other way
        round."""
        rows = [(row, pane.timestamp) for row in self._results(pane, records)]
        if pane.retraction:
            self._stood += [(pane.key, *row) for row in rows]
            return
        come = []
        for row, at in rows:
            if (pane.key, row, at) in self._stood:
                self._stood.remove((pane.key, row, at))
            else:
                come.append((row, at))
        self._take_back_stood()
        for row, at in come:
            self._say(pane.key, row, at)

    def _take_back_stood(self) -> None:
        """What a window emitted that is another one now, or has nothing any more."""
        stood, self._stood = self._stood, []
        for key, row, at in stood:
            self._say(key, retracted(row), at)

    def _say(self, key: Any, row: Any, at: int) -> None:
        for stream in self.spec.outputs:
            self.world.send(stream, key, plain(row), at, self.name)

    def _results(self, pane: Pane, records: list[Record]) -> list[Any]:
        streams = [given.stream for given in self.spec.inputs]
        kind = self.spec.work_as(JoinSpec).kind
        values = [[each.value for each in records if each.stream == stream] for stream in streams]
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            return values[0] if bool(values[1]) is (kind is JoinKind.SEMI) else []
        start, end = pane.window
        head = {**key_row(self._grouped_by, pane.key), "window_start": start, "window_end": end}
        rows = joined_one_by_one(values, kind)
        return [{**head, **dict(zip(streams, row, strict=True))} for row in rows]

    def _late(self, key: Any, item: Item, back: bool) -> None:
        self.counters["late"] += 1
        policy, _, side = self.spec.late.partition(":")
        if policy == "side":
            value = retracted(item.value) if back else item.value
            passed = self.watermark
            if passed == MAX_TIME:
                passed = self.floor()
                self.world.clocked.add(side)
            self.world.send(side, key, plain(value), max(item.timestamp, passed), self.name)

    def windows(self) -> dict[Any, list[Window]]:
        """The windows of each key that still take records."""
        found = {}
        for key, each in self._keys.items():
            if isinstance(each, KeyWindows):
                found[key] = sorted(o.window for o in each.open if not o.closed)
            else:
                found[key] = each.windows()
        return found


def _is_float(text: str) -> bool:
    """Whether an expression gives floats, whatever the whole numbers in its fields."""
    if text in CALCULATIONS:
        return type(CALCULATIONS[text](1)) is float
    return not {"/", "."}.isdisjoint(_NO_FLOAT.sub("", text))


def _row(pane: Pane, row: dict[str, Any], bounded: bool) -> dict[str, Any]:
    if bounded:
        row["window_start"], row["window_end"] = pane.window
    row.update(pane.result if isinstance(pane.result, dict) else {"result": pane.result})
    if pane.retraction:
        row[RETRACTION_FIELD] = 1
    return row


def windowed(world: World, spec: ComputationSpec) -> WindowNode:
    """The node of a computation with a window."""
    if spec.called is not None:
        made = world.load(spec.called.callback)(**dict(spec.called.options))
        return WindowNode(world, spec, made, spec.called.callback)
    return WindowNode(world, spec, Computation(), "join")
