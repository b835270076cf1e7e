"""Streams of a fluent pipeline: each method adds a computation to the pipeline and returns the
stream of its results.

Options of every computation:

- ``name``: its name in ``millwheel status``, in errors and in the root. Default: the name of its
  output.
- ``output``: the stream of its results. Default: the name of the computation. Several may have the
  same output.
- ``delivery``, ``productions``, ``max_attempts``: the guarantee, see docs/pipeline.md.
- ``on_error``: the effect of failures: ``"dead_letter"``, ``"stop"``, or ``{"stop_above": "10%",
  "of_at_least": 100}``.
- ``shards``: the number of pieces of the key space. Default: two per worker.
- ``standby``: 1 for a second worker that follows each shard and takes over without replay. Default:
  0.

Functions may be named, lambdas or nested. They must be pure: the same value gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from millwheel.api import Computation
from millwheel.core.windows.triggers import Trigger
from millwheel.core.windows.windows import WindowFunction
from millwheel.python.fluent.agg import Aggregate
from millwheel.python.fluent.code_lines import here
from millwheel.python.fluent.draft import DialOptions, Draft, Input, NullKey, given_dials
from millwheel.python.fluent.ends import DeclaredLookup, DeclaredSink, Duration, kind_of
from millwheel.python.fluent.windowed_streams import (
    Accumulation,
    GroupedStreams,
    Late,
    Opened,
    RankedStreams,
    WindowedStream,
    aggregates_tree,
    join_tree,
)

if TYPE_CHECKING:  # a type parameter with a default: ``Stream`` alone is a stream of anything
    from typing_extensions import TypeVar, Unpack

    T = TypeVar("T", default=Any)
    U = TypeVar("U", default=Any)
else:
    from typing import TypeVar

    T, U = TypeVar("T"), TypeVar("U")

Row = dict[str, Any]
"""A value that is a map of fields."""
Texts = Mapping[str, str] | str


class Flow(GroupedStreams, RankedStreams[T], Generic[T]):
    """The operations on one stream or several, keyed or not."""

    def __init__(self, draft: Draft, inputs: Sequence[Input]) -> None:
        self._draft = draft
        self._inputs = tuple(inputs)

    @overload
    def map(
        self,
        function: Callable[[T], U],
        *,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[U]: ...
    @overload
    def map(
        self,
        function: Mapping[str, str],
        *,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[Row]: ...
    @overload
    def map(
        self, function: str, *, name: str = "", output: str = "", **dials: Unpack[DialOptions]
    ) -> Stream: ...
    def map(
        self,
        function: Callable[[T], Any] | Mapping[str, str] | str,
        *,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream:
        """Replace each record's value by the result of ``function(value)``.

        A dict gives the fields of the new value, each as an expression: ``{"user": "user", "kb":
        "size / 1000"}``.
        """
        return self._step("map", function, name, output, dials)

    @overload
    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        *,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[U]: ...
    @overload
    def flat_map(
        self, function: Texts, *, name: str = "", output: str = "", **dials: Unpack[DialOptions]
    ) -> Stream: ...
    def flat_map(
        self,
        function: Callable[[T], Iterable[Any]] | Texts,
        *,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream:
        """Replace each record by any number of values: ``function(value)`` returns an iterable of
        them. ``{"word": "split(text, ' ')"}`` adds a field, with each entry of a list in turn."""
        return self._step("flat_map", function, name, output, dials)

    def filter(
        self,
        function: Callable[[T], object] | str,
        *,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[T]:
        """Keep only the records for which ``function(value)``, or an expression such as ``"status <
        500"``, is true."""
        return self._step("filter", function, name, output, dials)

    @overload
    def process(
        self,
        callback: type[Computation] | str,
        *,
        output: str = "",
        options: Mapping[str, Any] | None = None,
        order_by: Literal["timestamp"] | None = None,
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
        order_by: Literal["timestamp"] | None = None,
        name: str = "",
        **dials: Unpack[DialOptions],
    ) -> tuple[Stream, ...]: ...
    def process(
        self,
        callback: type[Computation] | str,
        *,
        output: str | list[str] | tuple[str, ...] = "",
        options: Mapping[str, Any] | None = None,
        order_by: Literal["timestamp"] | None = None,
        name: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream | tuple[Stream, ...]:
        """Runs a class derived from :class:`millwheel.Computation`, with state and timers per key.

        ``options`` (plain data) are passed to its constructor by name. ``output`` is the stream
        that it produces to, or a list of them, which gives a tuple of streams in the same order; an
        empty list for none. With ``order_by="timestamp"`` the records of a key come in the order of
        their timestamps, once the watermark has passed them.
        """
        outputs = (
            (output,)
            if isinstance(output, str) and output
            else ()
            if isinstance(output, str)
            else tuple(output)
        )
        word = (
            callback.rpartition(":")[2]
            if isinstance(callback, str)
            else getattr(callback, "__name__", "callback")
        )
        node = self._draft.name_for(name, outputs[0] if outputs else "", word)
        if isinstance(output, str):
            outputs = outputs or (node,)
        code = (
            callback if isinstance(callback, str) else self._draft.keep(callback, node, "callback")
        )
        fields: dict[str, Any] = {"callback": code}
        if options:
            fields["options"] = options
        if order_by is not None:
            fields["order_by"] = order_by
        if outputs:
            fields["output"] = outputs[0] if len(outputs) == 1 else list(outputs)
        self._draft.add_computation(node, self._inputs, {**fields, **given_dials(dials)})
        streams = tuple(self._stream(each) for each in outputs)
        return streams[0] if isinstance(output, str) else streams

    def branch(
        self,
        conditions: Mapping[str, str],
        *,
        match: Literal["first", "all"] = "first",
        name: str = "",
        **dials: Unpack[DialOptions],
    ) -> tuple[Stream[T], ...]:
        """A stream for each entry: ``errors, rest = hits.branch({"errors": "status >= 500", "rest":
        "otherwise"})``.

        A record goes to the first stream whose condition holds (``match="all"``: to every such
        stream). If none holds, it goes to the stream with ``"otherwise"``; without one it is
        dropped and counted.
        """
        node = self._draft.name_for(name, "", f"{self._inputs[0].stream}_branch")
        fields: dict[str, Any] = {"branch": dict(conditions)}
        if match != "first":
            fields["match"] = match
        self._draft.add_computation(node, self._inputs, {**fields, **given_dials(dials)})
        return tuple(self._stream(stream) for stream in conditions)

    def join(
        self,
        other: Flow | Sequence[Flow],
        window: WindowFunction | None = None,
        *,
        how: Literal["inner", "left", "right", "outer", "semi", "anti"] = "inner",
        ttl: str | Mapping[str, str] | None = None,
        within: Mapping[str, str | Sequence[str]] | None = None,
        trigger: Trigger | None = None,
        allowed_lateness: Duration | None = None,
        late: str = "drop",
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream[Row]:
        """Pair the records with the same key: those of a ``window`` when it closes, or when a
        ``trigger`` fires, and with late records for ``allowed_lateness`` longer; without a window
        all, whenever they come within ``ttl`` (a duration, or one for each stream by name), or
        those whose times are near each other: ``within={"before": "10s", "after": "2s"}``, up to a
        time that a record names with ``within={"until": "orders.expires"}``. Without ``within``,
        ``other`` may be several: their combinations, for ``how`` inner, left or outer.

        A result has the fields of the key, ``window_start``, ``window_end`` (µs, with a window),
        and the two records, each under the name of its stream, None for one without a partner; of
        ``"semi"`` and ``"anti"`` it is the record of this stream with (without) one. A window that
        fires again emits what has changed. Later records are dropped and counted, or go to
        ``late="side:STREAM"``.
        """
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_join")
        own: dict[str, Any] = {"window": window, "trigger": trigger, "ttl": ttl, "within": within}
        own |= {"allowed_lateness": allowed_lateness, "late": None if late == "drop" else late}
        options = join_tree(how, own, lambda it, what: self._draft.keep(it, node, what))
        fields = {**options, "output": output or node, **given_dials(dials)}
        others = [other] if isinstance(other, Flow) else other
        inputs = [*self._inputs, *(one for each in others for one in each._inputs)]
        self._draft.add_computation(node, inputs, fields)
        return self._stream(output or node)

    def enrich(
        self,
        other: Flow,
        *,
        field: str = "",
        missing: Literal["keep", "drop", "dead_letter"] = "keep",
        as_of: Literal["timestamp", "arrival"] = "timestamp",
        broadcast: bool | Mapping[str, str | int] = False,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream:
        """Add the latest value of ``other`` for the record's key, as ``field`` (default: the name
        of ``other``).

        ``as_of="timestamp"``: as of the record's own time; it waits until the watermark has passed
        it. ``"arrival"``: as of now, without waiting. ``missing`` decides about a record without
        such a value: the field is None, or the record is dropped and counted, or it becomes a dead
        letter. ``broadcast=True`` or ``{"limit": "128MB"}``: each worker holds all of ``other``, a
        table without times. Of one that goes on there are ``{"copies": 8}``.
        """
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_enrich")
        options: dict[str, Any] = {"with": other._inputs[0].stream}
        options.update(
            {"as": field} if field else {}, **({"missing": missing} if missing != "keep" else {})
        )
        options.update({"as_of": as_of} if as_of != "timestamp" else {})
        options.update({"broadcast": broadcast} if broadcast else {})
        fields = {"enrich": options, "output": output or node, **given_dials(dials)}
        self._draft.add_computation(node, (*self._inputs, *other._inputs), fields)
        return self._stream(output or node)

    def look_up(
        self,
        lookup: DeclaredLookup | Mapping[str, Mapping[str, Any]],
        *,
        field: str = "",
        fields: Sequence[str] | Mapping[str, str] | None = None,
        by: str | Sequence[str] | None = None,
        missing: Literal["keep", "drop", "dead_letter"] = "keep",
        cache: Mapping[str, Any] | None = None,
        batch: int | None = None,
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream:
        """Look each record up in another system: ``RedisLookup(url, "item:{item}")``, or the same
        as a map, ``{"redis": {"url": …, "key": "item:{item}"}}``.

        The answer becomes ``field``, or its ``fields`` become fields of the record. ``by`` replaces
        the lookup's own expressions for the key. ``cache={"size": 10_000, "ttl": "5m"}`` keeps
        answers; ``missing`` decides about a record without an answer. See docs/lookups.md.
        """
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_lookup")
        chosen = {"as": field or None, "fields": fields, "by": by, "cache": cache, "batch": batch}
        where = (
            {kind_of(lookup): lookup.options()} if isinstance(lookup, DeclaredLookup) else lookup
        )
        options: dict[str, Any] = {
            "lookup": where,
            **{key: value for key, value in chosen.items() if value is not None},
        }
        options.update({"missing": missing} if missing != "keep" else {})
        self._draft.add_computation(
            node, self._inputs, {"enrich": options, "output": output or node, **given_dials(dials)}
        )
        return self._stream(output or node)

    def window(
        self,
        window: WindowFunction,
        *,
        allowed_lateness: Duration | None = None,
        late: Late = "drop",
        output_time: Literal["end_of_window", "earliest", "latest"] | None = None,
        accumulation: Accumulation | None = None,
        queryable: Literal["latest"] | None = None,
    ) -> WindowedStream[T]:
        """Group the records of each key: ``Tumbling("1m")``, ``Sessions("30m")``, your own object
        with ``assign(timestamp)``, ….

        A window takes late records for ``allowed_lateness`` longer. After that they are dropped and
        counted, unless ``late`` is ``"refire"``, or ``"side:STREAM"`` for a stream of them
        (``pipeline.stream("STREAM")``). ``accumulation`` decides what a window emits when it fires
        again: only new records (``discarding``, the default), all records so far
        (``accumulating``), or all so far after taking back its previous result (``retracting``).
        With ``queryable="latest"``, the newest result of each key is kept to be asked.
        """
        options = {
            "allowed_lateness": allowed_lateness,
            "late": None if late == "drop" else late,
            "output_time": output_time,
            "accumulation": accumulation,
            "queryable": queryable,
        }
        fields = {name: value for name, value in options.items() if value is not None}
        line = here()
        self._draft.idle_windows.add(line)
        return WindowedStream(Opened(self._draft, self._inputs, window, line, self._stream, fields))

    def slices(
        self,
        aggregates: Mapping[str, Aggregate | str],
        *,
        every: Duration,
        keep: Duration,
        levels: Sequence[Duration] = (),
        time_zone: str = "",
        ttl: Duration | None = None,
        where: str = "",
        late: Late = "drop",
        name: str,
        **dials: Unpack[DialOptions],
    ) -> None:
        """Keep aggregates for each key and slice of time, to be asked for any window while the
        pipeline runs: see docs/queries.md. Nothing is emitted.

        ``levels`` are lengths of slices, each a multiple of the one before; the first is ``every``.
        Slices go ``keep`` behind the watermark, and all of a key without a record for ``ttl``.
        """
        options = {"levels": [*levels], "time_zone": time_zone, "ttl": ttl}
        slices = {
            "every": every,
            "keep": keep,
            **{name: value for name, value in options.items() if value},
        }
        fields = {
            "slices": slices,
            "aggregate": aggregates_tree(self._draft, name, aggregates),
            **({"where": where} if where else {}),
            **({} if late == "drop" else {"late": late}),
        }
        self._draft.add_computation(name, self._inputs, {**fields, **given_dials(dials)})

    def unique_visitors(
        self,
        of: str,
        *,
        every: Duration,
        per: Duration = "1d",
        time_zone: str = "",
        field: str = "",
        changes: bool = False,
        approximate: bool = False,
        partitions: int | None = None,
        ttl: Duration = "",
        where: str = "",
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream:
        """Count the different values of a field so far in the day, for each key, ``every`` so
        often: see docs/unique-visitors.md. The count is ``field`` (default: visitors). With a
        ``ttl`` of at least ``per`` the dictionary forgets values that no record has."""
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_visitors")
        options = {
            "time_zone": time_zone,
            "as": field,
            "partitions": partitions,
            "approximate": approximate,
            "ttl": ttl,
        }
        uv = {
            "of": of,
            "every": every,
            "per": per,
            **{option: value for option, value in options.items() if value},
        }
        uv.update({"emit": "changes"} if changes else {})
        fields = {
            "uv": uv,
            **({"where": where} if where else {}),
            "output": output or node,
            **given_dials(dials),
        }
        self._draft.add_computation(node, self._inputs, fields)
        return self._stream(output or node)

    def _step(self, kind: str, function: Any, name: str, output: str, dials: DialOptions) -> Stream:
        node = self._draft.name_for(name, output, f"{self._inputs[0].stream}_{kind}")
        if callable(function):
            function = self._draft.keep(function, node, kind)
        fields = {kind: function, "output": output or node, **given_dials(dials)}
        self._draft.add_computation(node, self._inputs, fields)
        return self._stream(output or node)

    def _stream(self, name: str) -> Stream:
        return Stream(self._draft, (Input(name, here()),))


class Unkeyed(Flow[T]):
    """Streams whose records have the keys that their producers gave."""

    @overload
    def key_by(
        self, key: str = "", *more: str, null_key: NullKey = "dead_letter", **expressions: str
    ) -> KeyedStream[T]: ...
    @overload
    def key_by(self, key: Callable[[T], Any]) -> KeyedStream[T]: ...
    def key_by(
        self, key: Any = "", *more: str, null_key: NullKey = "dead_letter", **expressions: str
    ) -> KeyedStream[T]:
        """The same records by another key for the next computation: a field, several fields, named
        expressions (``day="trunc(ts, '1d')"``, perhaps behind fields), a function of the value, or
        ``"all"``, one group of everything. A key is text, an integer, bytes, or a tuple of them. A
        null in it makes a dead letter, or with ``null_key="group"`` one of a group of its own."""
        line, new_key = here(), [key, *more] if more else key
        if expressions:
            new_key = {name: name for name in (key, *more) if name} | expressions
        inputs = [Input(each.stream, line, new_key, null_key) for each in self._inputs]
        return KeyedStream(self._draft, inputs)

    def dictionary(
        self,
        of: str,
        field: str,
        *,
        partitions: int | None = None,
        ttl: Duration = "",
        name: str = "",
        output: str = "",
        **dials: Unpack[DialOptions],
    ) -> Stream:
        """Add a whole number as ``field``, the same for equal values of the field ``of``, once and
        for ever: see docs/pipeline.md. The number of ``partitions`` can never be changed. A value
        that no record has for ``ttl`` is forgotten; its number is not given again."""
        options = {"partitions": partitions, "ttl": ttl}
        arguments = {
            "of": of,
            "as": field,
            **{option: value for option, value in options.items() if value},
        }
        return self._step("dictionary", arguments, name, output, dials)

    def flatten(self, *others: Unkeyed[U]) -> Unkeyed[T | U]:
        """This stream and others as one input of the next computation."""
        return Unkeyed(self._draft, merged(self._draft, (self, *others)))


class KeyedStream(Flow[T]):
    """Streams with the key by which the next computation processes their records."""

    def flatten(self, *others: Flow[U]) -> KeyedStream[T | U]:
        """These records and others, each stream by its own key, as one input of the next
        computation."""
        return KeyedStream(self._draft, merged(self._draft, (self, *others)))


class Stream(Unkeyed[T]):
    """One named stream."""

    @property
    def name(self) -> str:
        """Its name in errors, in ``millwheel status`` and for ``ctx.produce``."""
        return self._inputs[0].stream

    def write(self, sink: DeclaredSink) -> Stream[T]:
        """Write the stream to a sink; a stream has at most one. Returns the same stream."""
        if isinstance(sink, DeclaredSink):
            self._draft.add_sink(self.name, kind_of(sink), sink.options())
        else:
            kind = type(sink).__name__
            self._draft.note(
                f"sinks.{self.name}",
                f"must be a sink such as FileSink('out') or StdoutSink(), not a {kind}",
            )
        return self


def merged(draft: Draft, flows: Sequence[Flow]) -> list[Input]:
    """The inputs of several flows of one pipeline."""
    for flow in flows:
        if flow._draft is not draft:
            draft.note(
                "",
                f"the stream {flow._inputs[0].stream!r} belongs to another pipeline; read it in"
                " this one",
            )
    return [each for flow in flows for each in flow._inputs]
