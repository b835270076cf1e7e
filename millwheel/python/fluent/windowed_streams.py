"""A stream in windows, before its aggregation or callback is chosen; and one without windows, as a
change log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from millwheel.api import Computation
from millwheel.core.windows import kinds, trees
from millwheel.core.windows.triggers import Trigger
from millwheel.python.fluent.agg import Aggregate
from millwheel.python.fluent.code_lines import At, Code, CodeKey, CodeLine, here
from millwheel.python.fluent.draft import DialOptions, Draft, Input, given_dials
from millwheel.python.fluent.ends import Duration

if TYPE_CHECKING:
    from typing_extensions import TypeVar, Unpack

    from millwheel.python.fluent.streams import Row, Stream

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

Late = Literal["drop", "refire"] | str
Accumulation = Literal["discarding", "accumulating", "retracting"]


class GroupedStreams:
    """Streams whose records can be aggregated by key alone."""

    _draft: Draft
    _inputs: tuple[Input, ...]

    def aggregate(
        self,
        aggregates: Mapping[str, Aggregate | str],
        *,
        every: Duration | None = None,
        ttl: Duration | None = None,
        where: str = "",
        then: Mapping[str, str] | None = None,
        having: str = "",
        accumulation: Literal["accumulating", "retracting"] | None = None,
        queryable: Literal["latest"] | None = None,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[Row]:
        """A change log: one group for each key, without windows. A record with the fields of the
        key and the aggregates is emitted whenever a bundle has changed a group, or ``every="1s"``.

        A group without a record for ``ttl`` (event time) is forgotten, and begins anew. Records
        that do not satisfy the expression ``where`` are left out; ``then`` and ``having`` as in
        :meth:`WindowedStream.aggregate`. ``accumulation``: whether a
        version replaces the one before it (``accumulating``) or takes it back first
        (``retracting``). Without it, it takes back where a consumer would count both.
        ``queryable="latest"``: the newest version of each key is kept to be asked. See
        docs/pipeline.md, "Change logs".
        """
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_groups")
        options = {
            "trigger": None if every is None else {"every": every},
            "ttl": ttl,
            "where": where or None,
            "then": dict(then) if then else None,
            "having": having or None,
            "accumulation": accumulation,
            "queryable": queryable,
        }
        fields: dict[str, Any] = {
            "aggregate": aggregates_tree(self._draft, node, aggregates),
            **{name: value for name, value in options.items() if value is not None},
            "output": output or node,
        }
        self._draft.add_computation(node, self._inputs, {**fields, **given_dials(dials)})
        return self._stream(output or node)

    if TYPE_CHECKING:

        def _stream(self, name: str) -> Stream: ...


class RankedStreams(Generic[T]):
    """Streams of whose records some are chosen by key."""

    _draft: Draft
    _inputs: tuple[Input, ...]

    def deduplicate(
        self,
        *by: str,
        within: Duration | None = None,
        keep: Literal["first", "last"] | None = None,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[T]:
        """Keep the first of the records of a key that are equal in the fields ``by`` (none: in all
        fields).

        Equal records are dropped and counted, until one is ``within`` later than the record passed
        on. ``keep="last"``, or ``keep="first"`` without ``within``: of all records of a key the one
        with the latest or the earliest time; the stream takes back the one before it.
        """
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_deduplicate")
        settings = {"by": list(by) or None, "within": within, "keep": keep}
        options = {option: value for option, value in settings.items() if value is not None}
        fields = {"deduplicate": options, "output": output or node, **given_dials(dials)}
        self._draft.add_computation(node, self._inputs, fields)
        return self._stream(output or node)

    def top(
        self,
        *by: str,
        k: int,
        rank: str = "",
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[T]:
        """The first ``k`` records of each key by an order: ``bids.key_by("auction").top("price
        desc", "at", k=10)``.

        ``by`` are fields or expressions, each with ``asc`` (the default) or ``desc``. A record that
        comes among the first is emitted, and one that has left them is taken back. ``rank`` names a
        field for the place, from 1; then records whose place has changed come anew as well.
        """
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_top")
        options = {"by": list(by), "k": k, **({"rank": rank} if rank else {})}
        fields = {"top": options, "output": output or node, **given_dials(dials)}
        self._draft.add_computation(node, self._inputs, fields)
        return self._stream(output or node)

    def over(
        self,
        aggregates: Mapping[str, Aggregate | str],
        *,
        rows: int | Literal["all"] | None = None,
        range: Duration | Literal["all"] | None = None,
        ttl: Duration | None = None,
        where: str = "",
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[Row]:
        """Each record with aggregates of itself and of those of its key before it, in the order of
        their times: ``sales.key_by("seller").over({"mean": agg.mean("price")}, rows=10)``.

        These are either so many ``rows``, this one included, or those in a ``range`` of time before
        the record, ``"10m"``, with all of its own time; ``"all"``: everything before it. A key
        without a record for ``ttl`` (event time) begins anew. Records that do not satisfy the
        expression ``where`` are left out. See docs/pipeline.md, "over".
        """
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_over")
        options = {"rows": rows, "range": range, "ttl": ttl}
        fields: dict[str, Any] = {
            "over": {option: value for option, value in options.items() if value is not None},
            "aggregate": aggregates_tree(self._draft, node, aggregates),
            **({"where": where} if where else {}),
            "output": output or node,
        }
        self._draft.add_computation(node, self._inputs, {**fields, **given_dials(dials)})
        return self._stream(output or node)

    if TYPE_CHECKING:

        def _stream(self, name: str) -> Stream: ...


@dataclass(frozen=True)
class Opened:
    """The parts of the computation so far; ``stream(name)`` makes the stream of its results."""

    draft: Draft
    inputs: tuple[Input, ...]
    window: Any
    line: CodeLine
    stream: Callable[[str], Stream]
    fields: Mapping[str, Any]
    trigger: Any = None
    trigger_line: CodeLine | None = field(default=None)


class WindowedStream(Generic[T]):
    """Records in windows. :meth:`aggregate` or :meth:`process` makes the computation."""

    def __init__(self, parts: Opened) -> None:
        self._parts = parts

    def trigger(
        self, trigger: Trigger, *, accumulation: Accumulation | None = None
    ) -> WindowedStream[T]:
        """Choose when windows fire: ``AfterWatermark(early=AfterCount(100))``, ``Repeat(…)``, …. By
        default they fire once, as the watermark passes their end. ``accumulation`` as in
        ``window()``.
        """
        fields = dict(self._parts.fields)
        if accumulation is not None:
            fields["accumulation"] = accumulation
        return WindowedStream(
            replace(self._parts, trigger=trigger, trigger_line=here(), fields=fields)
        )

    def aggregate(
        self,
        aggregates: Mapping[str, Aggregate | str] | None = None,
        *,
        where: str = "",
        then: Mapping[str, str] | None = None,
        having: str = "",
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[Row]:
        """One record per key and pane, with the fields of the key, ``window_start``, ``window_end``
        (µs) and the aggregates.

        ``aggregates`` maps names of fields to aggregates: ``agg.count()``, ``agg.sum("size")``, or
        a function's name (``"count"``). Without them the field ``result`` is a list of the records.
        Records that do not satisfy the expression ``where`` are left out. ``then={"mean": "total /
        n"}`` makes fields of the fields of a result, and results that do not satisfy the expression
        ``having`` are left out.
        """
        parts = self._parts
        node = parts.draft.name_for(name, output, f"{parts.inputs[0].stream}_windows")
        fields = self._windowing(node)
        if aggregates:
            fields["aggregate"] = aggregates_tree(parts.draft, node, aggregates)
        options = {"where": where, "then": dict(then or {}), "having": having}
        fields.update({word: value for word, value in options.items() if value})
        fields["output"] = output or node
        parts.draft.add_computation(node, parts.inputs, {**fields, **given_dials(dials)})
        return parts.stream(output or node)

    @overload
    def process(
        self,
        callback: type[Computation] | str,
        *,
        output: str = "",
        options: Mapping[str, Any] | None = None,
        where: str = "",
        name: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream: ...
    @overload
    def process(
        self,
        callback: type[Computation] | str,
        *,
        output: list[str] | tuple[str, ...],
        options: Mapping[str, Any] | None = None,
        where: str = "",
        name: str = "",
        **dials: Unpack[DialOptions],
    ) -> tuple[Stream, ...]: ...
    def process(
        self,
        callback: type[Computation] | str,
        *,
        output: str | list[str] | tuple[str, ...] = "",
        options: Mapping[str, Any] | None = None,
        where: str = "",
        name: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream | tuple[Stream, ...]:
        """Calls ``process_window`` of a class derived from :class:`millwheel.Computation` with the
        records of a window, whenever it fires. ``output`` and ``options`` are those of
        :meth:`KeyedStream.process`; records that do not satisfy the expression ``where`` are left
        out.
        """
        parts = self._parts
        outputs = ((output,) if output else ()) if isinstance(output, str) else tuple(output)
        word = (
            callback.rpartition(":")[2]
            if isinstance(callback, str)
            else getattr(callback, "__name__", "callback")
        )
        node = parts.draft.name_for(name, outputs[0] if outputs else "", word)
        if isinstance(output, str):
            outputs = outputs or (node,)
        code = (
            callback if isinstance(callback, str) else parts.draft.keep(callback, node, "callback")
        )
        fields: dict[str, Any] = {**self._windowing(node), "callback": code}
        fields.update(
            {"options": options} if options else {}, **({"where": where} if where else {})
        )
        if outputs:
            fields["output"] = outputs[0] if len(outputs) == 1 else list(outputs)
        parts.draft.add_computation(node, parts.inputs, {**fields, **given_dials(dials)})
        streams = tuple(parts.stream(each) for each in outputs)
        return streams[0] if isinstance(output, str) else streams

    def _windowing(self, name: str) -> dict[str, Any]:
        parts = self._parts
        parts.draft.idle_windows.discard(parts.line)
        fields = {"window": At(parts.line, self._window(name)), **parts.fields}
        if parts.trigger is not None:
            fields["trigger"] = At(parts.trigger_line or parts.line, self._trigger(name))
        return fields

    def _window(self, name: str) -> Any:
        window = self._parts.window
        if isinstance(window, (str, dict)) or not callable(getattr(window, "assign", None)):
            text = f"must be a window such as Tumbling('1m') or Sessions('30m'), not {window!r:.60}"
            self._parts.draft.problems.append(
                (self._parts.line, f"computations.{name}.window", text)
            )
            return "global"
        return window_tree(window, lambda thing, what: self._parts.draft.keep(thing, name, what))

    def _trigger(self, name: str) -> Any:
        trigger = self._parts.trigger
        if not isinstance(trigger, Trigger):
            line = self._parts.trigger_line or self._parts.line
            text = (
                "must be a trigger such as AfterWatermark() or Repeat(AfterCount(100)), not"
                f" {trigger!r:.60}"
            )
            self._parts.draft.problems.append((line, f"computations.{name}.trigger", text))
            return "default"
        return trigger_tree(trigger, lambda thing, what: self._parts.draft.keep(thing, name, what))


def aggregates_tree(
    draft: Draft, name: str, aggregates: Mapping[str, Aggregate | str]
) -> dict[str, Any]:
    """The aggregates of the computation ``name``, as YAML has them."""
    return {field: _aggregate(draft, name, field, each) for field, each in aggregates.items()}


def _aggregate(draft: Draft, name: str, field: str, aggregate: Aggregate | str) -> Any:
    if isinstance(aggregate, str):
        return aggregate
    if not isinstance(aggregate, Aggregate):
        path = f"computations.{name}.aggregate.{field}"
        draft.note(path, f"must be such as agg.count() or agg.sum('size'), not {aggregate!r:.60}")
        return "count"
    function = aggregate.function
    if not isinstance(function, str):
        return _own(draft, name, field, aggregate)
    options = {**aggregate.options, **({"where": aggregate.where} if aggregate.where else {})}
    return {function: aggregate.of or None, **options} if aggregate.of or options else function


def _own(draft: Draft, name: str, field: str, aggregate: Aggregate) -> Any:
    """An aggregator of the user's own."""
    code = draft.keep(aggregate.function, name, field)
    options = {**aggregate.options, **({"where": aggregate.where} if aggregate.where else {})}
    return CodeKey(code, {"of": aggregate.of or None, **options})


Keep = Callable[[Any, str], Code]
"""(an object of the user's, a word for it) -> the code under which the pipeline keeps it."""


def window_tree(window: Any, keep: Keep) -> Any:
    """The value of ``window:``. An object of the user's is kept, and named as a factory without
    options."""
    return kinds.window_tree(window) or {"custom": keep(lambda: window, "window")}


def join_tree(how: str, options: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    """The values of ``join:``, and of the options that stand beside it. None stands for an option
    that is not there."""
    present = {name: value for name, value in options.items() if value is not None}
    settings = {name: present.pop(name) for name in ("ttl", "within") if name in present}
    trees_of = {"window": window_tree, "trigger": trigger_tree}
    fields = {
        name: make(present.pop(name), keep) for name, make in trees_of.items() if name in present
    }
    return {**fields, **present, "join": {"kind": how, **settings} if settings else how}


def trigger_tree(trigger: Trigger, keep: Keep) -> Any:
    """The value of ``trigger:``."""
    return trees.trigger_tree(trigger, lambda own: {"class": keep(lambda: own, "trigger")})
