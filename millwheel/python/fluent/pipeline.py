"""The Pipeline of the fluent API, which a Python file assigns at its top level."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from millwheel.core.instants.time_forms import KIND
from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.language.spec.pipelines import check_document
from millwheel.language.spec.python_files import Document
from millwheel.python.fluent.code import CodeShelf, hold
from millwheel.python.fluent.code_lines import here
from millwheel.python.fluent.draft import Draft, Input, OnError
from millwheel.python.fluent.ends import DeclaredSource, Duration, kind_of
from millwheel.python.fluent.streams import Flow, KeyedStream, Row, Stream, T, U, Unkeyed, merged

if TYPE_CHECKING:
    from millwheel.python.handles.handle import RunHandle
    from millwheel.tools.explain.explanation import Explanation

Fields = Mapping[str, type | str | Mapping[str, str]]
"""Names and types: also ``datetime``, ``"decimal(12, 2)"``, and the form of timestamps, ``{"type":
"timestamp", "unit": "ms"}``."""

Table = str | Sequence[str] | Mapping[str, Any]
"""The key of a table, or its key and the condition that deletes its rows."""


class Pipeline:
    """Streams and computations, under a name.

    >>> from millwheel import FileSource, Pipeline, StdoutSink, Tumbling, agg
    >>> visits = Pipeline("visits")
    >>> hits = visits.read("hits", FileSource("hits.jsonl", "jsonl"), timestamp="time")
    >>> minutes = hits.key_by("page").window(Tumbling("1m"))
    >>> by_page = minutes.aggregate({"hits": agg.count()}, output="by_page")
    >>> _ = by_page.write(StdoutSink())

    Save this as ``visits.py`` and run it with ``millwheel run visits.py``. Checks happen when the
    pipeline is loaded; all errors are then reported together, with the lines of the calls.
    Pipelines in Python and in YAML can express the same; docs/pipeline.md describes it,
    docs/python-api.md the form in Python. ``limits`` are as in YAML, such as ``{"record": "1MB"}``;
    docs/limits.md has them all. ``ship`` names the data files of the folder that workers need, or
    globs of them. ``tracing`` is as in YAML, such as ``{"sample": 0.001}``, or ``{}``:
    docs/tracing.md. ``functions`` are those of yours that expressions may call, by name; one that
    takes arrays is ``{"callable": function, "vectorized": True, "returns": "int"}``.
    ``latency`` is ``"greedy"``, ``"balanced"`` or a duration such as ``"2ms"``:
    docs/pipeline.md. ``nulls`` is ``"error"`` or ``"sql"``: docs/expressions.md.
    """

    def __init__(
        self,
        name: str,
        *,
        limits: Mapping[str, int | str] | None = None,
        ship: Sequence[str] | None = None,
        tracing: Mapping[str, float | bool] | None = None,
        latency: str = "",
        functions: Mapping[str, str | Callable[..., Any] | Mapping[str, Any]] | None = None,
        nulls: Literal["error", "sql"] | None = None,
    ) -> None:
        self._draft = Draft(
            name,
            here(),
            limits=dict(limits or {}),
            ship=ship or (),
            tracing=tracing,
            latency=latency,
            nulls=nulls,
        )
        self._draft.functions = {
            called: self._function(called, function)
            for called, function in (functions or {}).items()
        }
        self._live = ""

    def _function(self, called: str, function: Any) -> Any:
        if isinstance(function, Mapping):
            return {
                word: self._function(called, each) if word == "callable" else each
                for word, each in function.items()
            }
        return self._draft.keep(function, "function", called) if callable(function) else function

    def __repr__(self) -> str:
        return f"<Pipeline {self._draft.name}>"

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self._draft.name

    @property
    def code(self) -> CodeShelf:
        """The pipeline's functions and objects, under the names by which workers find them."""
        return self._draft.code

    def query(
        self,
        name: str,
        formula: str,
        *,
        window: Duration | None = None,
        key: Sequence[str] = (),
        keys: Mapping[str, str | Sequence[str]] | None = None,
    ) -> None:
        """A named query: a formula such as ``"clicks.spend / clicks.n"`` over values that
        computations keep, asked for ``window`` unless another is given. ``key`` and ``keys`` are
        for computations with different keys: see docs/queries.md."""
        options = {"window": window, "key": [*key], "keys": dict(keys or {})}
        self._draft.queries[name] = {
            "formula": formula,
            **{each: value for each, value in options.items() if value},
        }

    # --- streams ----------------------------------------------------------------------------------

    @overload
    def read(
        self,
        stream: str,
        source: DeclaredSource,
        *,
        timestamp: str | Callable[[Any], Any] | None = None,
        timestamp_unit: Literal["us", "ms", "s"] | None = None,
        id: str = "",
        id_horizon: Duration | None = None,
        max_delay: Duration | None = None,
        idle_after: Duration | None = None,
        max_future: Duration | None = None,
        schema: type[T],
        fields: Fields | None = None,
        on_error: OnError | None = None,
        table: Table | None = None,
    ) -> Stream[T]: ...
    @overload
    def read(
        self,
        stream: str,
        source: DeclaredSource,
        *,
        timestamp: str | Callable[[Any], Any] | None = None,
        timestamp_unit: Literal["us", "ms", "s"] | None = None,
        id: str = "",
        id_horizon: Duration | None = None,
        max_delay: Duration | None = None,
        idle_after: Duration | None = None,
        max_future: Duration | None = None,
        schema: str | None = None,
        fields: Fields | None = None,
        on_error: OnError | None = None,
        table: Table | None = None,
    ) -> Stream: ...
    def read(
        self,
        stream: str,
        source: DeclaredSource,
        *,
        timestamp: str | Callable[[Any], Any] | None = None,
        timestamp_unit: Literal["us", "ms", "s"] | None = None,
        id: str = "",
        id_horizon: Duration | None = None,
        max_delay: Duration | None = None,
        idle_after: Duration | None = None,
        max_future: Duration | None = None,
        schema: type | str | None = None,
        fields: Fields | None = None,
        on_error: OnError | None = None,
        table: Table | None = None,
    ) -> Stream:
        """A stream from outside.

        ``timestamp``: the field with the time at which a record happened (a number of
        ``timestamp_unit`` since 1970 UTC, or ISO 8601), a function of the value, or ``"arrival"``:
        the time at which it is read. Without a unit numbers are µs, and numbers that are very
        likely of another unit are refused. ``id``: the field that identifies copies, which may be
        up to ``id_horizon`` apart (1h). ``max_delay``: how far a record may lie behind the newest
        of its file (0s). ``idle_after``: a silent partition no longer holds the watermark (5s;
        ``"never"``). ``max_future``: records further ahead of the clock are dead letters (1d;
        ``"never"``). ``schema``: the class that records are decoded into. ``fields``: types of some
        fields, ``{"cost": float}``, which makes reading and aggregating faster; ``datetime`` and
        ``{"type": "timestamp", "unit": "ms"}`` are times. ``on_error``: the treatment of unusable
        lines, as for computations. ``table``: the records are rows, each in place of the one with
        its key: ``"id"``, or ``{"key": ["country", "id"], "delete": "op == 'd'"}``. One that ends
        needs no timestamp.
        """
        entry: dict[str, Any] = {}
        if isinstance(source, DeclaredSource):
            entry["source"] = {kind_of(source): self._source_options(stream, source)}
        else:
            text = (
                "must be a source such as FileSource('hits.jsonl', 'jsonl'), not a"
                f" {type(source).__name__}"
            )
            self._draft.note(f"streams.{stream}.source", text)
        if timestamp is not None:
            kept = (
                self._draft.keep(timestamp, stream, "timestamp")
                if callable(timestamp)
                else timestamp
            )
            entry["timestamp"] = (
                kept if timestamp_unit is None else {"field": kept, "unit": timestamp_unit}
            )
        if id:
            entry["id"] = id if id_horizon is None else {"field": id, "horizon": id_horizon}
        watermark = {"max_delay": max_delay, "idle_after": idle_after, "max_future": max_future}
        if any(value is not None for value in watermark.values()):
            entry["watermark"] = {
                name: value for name, value in watermark.items() if value is not None
            }
        if on_error is not None:
            entry["on_error"] = on_error
        if table is not None:
            entry["table"] = table
        self._draft.add_stream(stream, {**entry, **self._types(stream, schema, fields)})
        return self._stream(stream)

    @overload
    def stream(self, name: str, *, schema: type[T], fields: Fields | None = None) -> Stream[T]: ...
    @overload
    def stream(
        self, name: str, *, schema: str | None = None, fields: Fields | None = None
    ) -> Stream: ...
    def stream(
        self, name: str, *, schema: type | str | None = None, fields: Fields | None = None
    ) -> Stream:
        """A stream by its name: one that is defined further down (for cycles), the late records of
        a window, an output whose types you declare by ``schema`` or ``fields``."""
        if schema is not None or fields is not None:
            self._draft.add_stream(name, self._types(name, schema, fields))
        return self._stream(name)

    @property
    def dead_letters(self) -> Stream[Row]:
        """The records that could not be used, with the reason. Without a sink they are stored below
        the root."""
        return self._stream(DEAD_LETTERS)

    @overload
    def flatten(self, first: Unkeyed[T], *others: Unkeyed[U]) -> Unkeyed[T | U]: ...
    @overload
    def flatten(self, first: KeyedStream[T], *others: Flow[U]) -> KeyedStream[T | U]: ...
    def flatten(self, first: Flow, *others: Flow) -> Flow:
        """Several streams as one input of the next computation. Keyed ones keep their keys."""
        inputs = merged(self._draft, (first, *others))
        keyed = any(isinstance(flow, KeyedStream) for flow in (first, *others))
        flattened: Flow = (
            KeyedStream(self._draft, inputs) if keyed else Unkeyed(self._draft, inputs)
        )
        return flattened

    # --- running it -------------------------------------------------------------------------------

    def run(
        self, params: Mapping[str, Any] | None = None, *, background: bool = False, **options: Any
    ) -> Any:
        """Run it, and return its :class:`~millwheel.python.handles.tables.RunResult` once all input
        is processed. With ``background`` True return a
        :class:`~millwheel.python.handles.handle.RunHandle` at once, as :meth:`start` does; its
        arguments are ours. Ctrl-C stops the run in order; the same call continues it.

        Raises the error with its reason: PipelineError, SetupError, or BrokenError when too many
        calls fail.
        """
        from millwheel.python.handles.start import in_foreground, started

        if background:
            return started(self, params, **options)
        return in_foreground(started(self, params, shows=True, **options))

    def start(
        self,
        params: Mapping[str, Any] | None = None,
        *,
        root: str | os.PathLike[str] = "",
        workers: int = 2,
        keep: Sequence[str] | None = None,
        **settings: Any,
    ) -> RunHandle:
        """Run it in the background. ``params`` are the values of its parameters, ``root`` where it
        remembers (default: ``.millwheel/NAME``). ``keep`` names streams without a sink whose rows
        are kept in the root for the result; by default all that nothing consumes, if the input is
        bounded. ``settings`` are those of :class:`~millwheel.launch.settings.RunSettings`, such as
        ``launcher="spark"`` or ``query_port=6380``."""
        from millwheel.python.handles.start import started

        return started(self, params, root=os.fspath(root), workers=workers, keep=keep, **settings)

    def explain(self, params: Mapping[str, Any] | None = None) -> Explanation:
        """A drawing of it: a tree as text, an SVG in a notebook. Parameters of
        sources and sinks need no value."""
        from millwheel.language.spec.parameters import stand_ins
        from millwheel.tools.explain.explanation import Explanation

        document = self._draft.document(self._file(), "")
        unset = stand_ins(document.top, lambda name: f"${{{name}}}")
        return Explanation(self.spec({**unset, **(params or {})}))

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    # --- the specification ------------------------------------------------------------------------

    def spec(self, params: Mapping[str, Any] | None = None) -> PipelineSpec:
        """The checked pipeline as a value, for tests and tools in this process; ``params`` are
        values of ``${name}``.

        Raises PipelineError with all errors.
        """
        self._live = self._live or hold(self)
        document = self._draft.document(self._file(), f"{self._live}.code", False)
        return check_document(
            document, {name: str(value) for name, value in (params or {}).items()}
        )[0]

    def millwheel_document(self, file: str, prefix: str) -> Document:
        """The document that the loader of pipelines reads."""
        return self._draft.document(file, prefix)

    def millwheel_prepare(
        self, origin: str, collected: Mapping[str, Mapping[str, Any]], pickle: str
    ) -> None:
        """Turn this copy into the one that workers get: its rows of ``collected`` streams go into
        files, with the options that are given, and it needs the file ``pickle``."""
        self._live, self._draft.origin = "", origin
        self._draft.ship = [*self._draft.ship, pickle]
        for stream, options in collected.items():
            self._draft.add_sink(stream, "files", options)

    def _file(self) -> str:
        """The file that defines it. A cell of a notebook has none: then a name in the current
        folder."""
        file = self._draft.line.file
        return file if os.path.isfile(file) else os.path.join(os.getcwd(), "notebook.py")

    def _stream(self, name: str) -> Stream:
        return Stream(self._draft, (Input(name, here()),))

    def _source_options(self, stream: str, source: DeclaredSource) -> dict[str, Any]:
        return {
            name: self._draft.keep(value, stream, name) if callable(value) else value
            for name, value in source.options().items()
        }

    def _types(self, stream: str, schema: Any, fields: Fields | None) -> dict[str, Any]:
        types: dict[str, Any] = {}
        if schema is not None:
            types["schema"] = (
                schema if isinstance(schema, str) else self._draft.keep(schema, stream, "schema")
            )
        if fields is not None:
            types["fields"] = {
                name: _type_word(kind) if isinstance(kind, type) else kind
                for name, kind in fields.items()
            }
        return types


def _type_word(kind: type) -> str:
    return KIND if kind is datetime else kind.__name__
