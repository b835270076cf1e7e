"""A stream in windows, until it is said what is computed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from millwheel.core.triggers import Trigger
from millwheel.fluent.agg import Aggregate
from millwheel.fluent.draft import Dials, Draft, Input
from millwheel.fluent.places import At, CodeKey, Place, here
from millwheel.fluent.windowing import trigger_tree, window_tree

if TYPE_CHECKING:
    from millwheel.fluent.streams import Stream

Late = Literal["drop", "refire"] | str
Accumulation = Literal["discarding", "accumulating", "retracting"]


@dataclass(frozen=True)
class Opened:
    """What is known of the computation so far; ``stream(name)`` makes the stream of its results."""

    draft: Draft
    inputs: tuple[Input, ...]
    window: Any
    place: Place
    stream: Callable[[str], Stream]
    fields: Mapping[str, Any]
    trigger: Any = None
    trigger_place: Place | None = field(default=None)


class WindowedStream:
    """Records in windows. :meth:`aggregate` says what becomes of them, and makes the computation."""

    def __init__(self, parts: Opened) -> None:
        self._parts = parts

    def trigger(self, trigger: Trigger, *, accumulation: Accumulation | None = None) -> WindowedStream:
        """When windows speak: ``AfterWatermark(early=AfterCount(100))``, ``Repeat(…)``, …; without this, once, as the
        watermark passes their end. ``accumulation`` as in ``window()``.
        """
        fields = dict(self._parts.fields)
        if accumulation is not None:
            fields["accumulation"] = accumulation
        return WindowedStream(replace(self._parts, trigger=trigger, trigger_place=here(), fields=fields))

    def aggregate(
        self,
        aggregates: Mapping[str, Aggregate | str] | None = None,
        *,
        where: str = "",
        name: str = "",
        output: str = "",
        delivery: Literal["exactly_once", "at_least_once"] | None = None,
        productions: Literal["strong", "weak"] | None = None,
        max_attempts: int | None = None,
        shards: int | None = None,
    ) -> Stream:
        """One record per key and pane, with the fields of the key, ``window_start``, ``window_end`` (µs) and these.

        ``aggregates`` maps names of fields to what they hold: ``agg.count()``, ``agg.sum("size")``, or a function's
        name (``"count"``). Without them the field ``result`` is a list of the records. Records that do not satisfy the
        expression ``where`` are left out.
        """
        parts = self._parts
        found = parts.draft.name_for(name, output, f"{parts.inputs[0].stream}_windows")
        fields = {"window": At(parts.place, self._window(found)), **parts.fields}
        if parts.trigger is not None:
            fields["trigger"] = At(parts.trigger_place or parts.place, self._trigger(found))
        if aggregates:
            fields["aggregate"] = {field: self._aggregate(found, field, each) for field, each in aggregates.items()}
        if where:
            fields["where"] = where
        fields["output"] = output or found
        dials = Dials(delivery, productions, max_attempts, shards).fields()
        parts.draft.add_computation(found, parts.inputs, {**fields, **dials})
        return parts.stream(output or found)

    def _window(self, name: str) -> Any:
        window = self._parts.window
        if isinstance(window, (str, dict)) or not callable(getattr(window, "assign", None)):
            text = f"must be a window such as Tumbling('1m') or Sessions('30m'), not {window!r:.60}"
            self._parts.draft.problems.append((self._parts.place, f"computations.{name}.window", text))
            return "global"
        return window_tree(window, lambda thing, what: self._parts.draft.keep(thing, name, what))

    def _trigger(self, name: str) -> Any:
        trigger = self._parts.trigger
        if not isinstance(trigger, Trigger):
            place = self._parts.trigger_place or self._parts.place
            text = f"must be a trigger such as AfterWatermark() or Repeat(AfterCount(100)), not {trigger!r:.60}"
            self._parts.draft.problems.append((place, f"computations.{name}.trigger", text))
            return "default"
        return trigger_tree(trigger, lambda thing, what: self._parts.draft.keep(thing, name, what))

    def _aggregate(self, name: str, field: str, given: Aggregate | str) -> Any:
        if isinstance(given, str):
            return given
        if not isinstance(given, Aggregate):
            path = f"computations.{name}.aggregate.{field}"
            self._parts.draft.note(path, f"must be such as agg.count() or agg.sum('size'), not {given!r:.60}")
            return "count"
        function = given.function
        if not isinstance(function, str):
            return self._own(name, field, given)
        options = {**given.options, **({"where": given.where} if given.where else {})}
        return {function: given.of or None, **options} if given.of or options else function

    def _own(self, name: str, field: str, given: Aggregate) -> Any:
        """An aggregator of the user's."""
        code = self._parts.draft.keep(given.function, name, field)
        options = {**given.options, **({"where": given.where} if given.where else {})}
        return CodeKey(code, {"of": given.of or None, **options})
