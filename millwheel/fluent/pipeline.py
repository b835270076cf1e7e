"""The Pipeline of the fluent API, which a Python file assigns at its top level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

from millwheel.core.pipeline.spec import DEAD_LETTERS, PipelineSpec
from millwheel.fluent import live
from millwheel.fluent.code import CodeShelf
from millwheel.fluent.draft import Draft, Input, OnError
from millwheel.fluent.ends import DeclaredSource, Duration, kind_of
from millwheel.fluent.places import here
from millwheel.fluent.streams import Flow, KeyedStream, Stream, Unkeyed, merged
from millwheel.spec.pipelines import check_document
from millwheel.spec.python_files import Document

Fields = Mapping[str, type | Literal["int", "float", "str", "bool"]]


class Pipeline:
    """Streams and computations, under a name.

    >>> from millwheel import FileSource, Pipeline, StdoutSink, Tumbling, agg
    >>> visits = Pipeline("visits")
    >>> hits = visits.read("hits", FileSource("hits.jsonl", "jsonl"), timestamp="time", max_delay="10s")
    >>> by_page = hits.key_by("page").window(Tumbling("1m")).aggregate({"hits": agg.count()}, output="by_page")
    >>> _ = by_page.write(StdoutSink())

    Save this as ``visits.py`` and run it with ``millwheel run visits.py``. Checks happen when the pipeline is loaded;
    all errors are then reported together, with the lines of the calls. Pipelines in Python and in YAML can express the
    same; docs/pipeline.md describes it, docs/python-api.md the form in Python. ``limits`` are as in YAML, such as
    ``{"record": "1MB"}``; docs/limits.md has them all. ``ship`` names the data files of the folder that workers need,
    or globs of them.
    """

    def __init__(
        self, name: str, *, limits: Mapping[str, int | str] | None = None, ship: Sequence[str] | None = None
    ) -> None:
        self._draft = Draft(name, here(), limits=dict(limits or {}), ship=ship or ())
        self._live = ""

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
        """A named query: a formula such as ``"clicks.spend / clicks.n"`` over what computations keep, asked for
        ``window`` unless another is given. ``key`` and ``keys`` are for computations with different keys: see
        docs/queries.md."""
        given = {"window": window, "key": [*key], "keys": dict(keys or {})}
        self._draft.queries[name] = {"formula": formula, **{each: value for each, value in given.items() if value}}

    # --- streams -----------------------------------------------------------------------------------------

    def read(
        self,
        stream: str,
        source: DeclaredSource,
        *,
        timestamp: str | Callable[[Any], Any] | None = None,
        timestamp_unit: Literal["us", "ms", "s"] = "us",
        id: str = "",
        id_horizon: Duration | None = None,
        max_delay: Duration | None = None,
        idle_after: Duration | None = None,
        max_future: Duration | None = None,
        schema: type | str | None = None,
        fields: Fields | None = None,
        on_error: OnError | None = None,
    ) -> Stream:
        """A stream from outside.

        ``timestamp``: the field with the time at which a record happened (a number of ``timestamp_unit`` since 1970
        UTC, or ISO 8601), or a function of the value. ``id``: the field that identifies copies, which may be
        up to ``id_horizon`` apart (1h). ``max_delay``: how far a record may lie behind the newest of its file (0s).
        ``idle_after``: a silent partition no longer holds the watermark (5s; ``"never"``). ``max_future``: records
        further ahead of the clock are dead letters (1d; ``"never"``). ``schema``: the class that records are decoded
        into. ``fields``: types of some fields, ``{"cost": float}``, which makes reading and aggregating faster.
        ``on_error``: the treatment of unusable lines, as for computations.
        """
        found: dict[str, Any] = {}
        if isinstance(source, DeclaredSource):
            found["source"] = {kind_of(source): self._source_options(stream, source)}
        else:
            text = f"must be a source such as FileSource('hits.jsonl', 'jsonl'), not a {type(source).__name__}"
            self._draft.note(f"streams.{stream}.source", text)
        if timestamp is not None:
            kept = self._draft.keep(timestamp, stream, "timestamp") if callable(timestamp) else timestamp
            found["timestamp"] = kept if timestamp_unit == "us" else {"field": kept, "unit": timestamp_unit}
        if id:
            found["id"] = id if id_horizon is None else {"field": id, "horizon": id_horizon}
        watermark = {"max_delay": max_delay, "idle_after": idle_after, "max_future": max_future}
        if any(value is not None for value in watermark.values()):
            found["watermark"] = {name: value for name, value in watermark.items() if value is not None}
        if on_error is not None:
            found["on_error"] = on_error
        self._draft.add_stream(stream, {**found, **self._types(stream, schema, fields)})
        return self._stream(stream)

    def stream(self, name: str, *, schema: type | str | None = None, fields: Fields | None = None) -> Stream:
        """A stream by its name: one that is defined further down (for cycles), the late records of a window, an output
        whose types you declare by ``schema`` or ``fields``."""
        if schema is not None or fields is not None:
            self._draft.add_stream(name, self._types(name, schema, fields))
        return self._stream(name)

    @property
    def dead_letters(self) -> Stream:
        """The records that could not be used, with the reason. Without a sink they are stored below the root."""
        return self._stream(DEAD_LETTERS)

    @overload
    def flatten(self, first: Unkeyed, *others: Unkeyed) -> Unkeyed: ...
    @overload
    def flatten(self, first: KeyedStream, *others: Flow) -> KeyedStream: ...
    def flatten(self, first: Flow, *others: Flow) -> Flow:
        """Several streams as one input of the next computation. Keyed ones keep their keys."""
        inputs = merged(self._draft, (first, *others))
        keyed = any(isinstance(flow, KeyedStream) for flow in (first, *others))
        return KeyedStream(self._draft, inputs) if keyed else Unkeyed(self._draft, inputs)

    # --- the specification ------------------------------------------------------------------------------

    def spec(self, params: Mapping[str, str] | None = None) -> PipelineSpec:
        """The checked pipeline as a value, for tests and tools in this process; ``params`` are values of ``${name}``.

        Raises PipelineError with all errors.
        """
        self._live = self._live or live.hold(self)
        file = self._draft.place.file
        return check_document(self._draft.document(file, f"{self._live}.code", False), params)[0]

    def millwheel_document(self, file: str, prefix: str) -> Document:
        """The document that the loader of pipelines reads."""
        return self._draft.document(file, prefix)

    def _stream(self, name: str) -> Stream:
        return Stream(self._draft, (Input(name, here()),))

    def _source_options(self, stream: str, source: DeclaredSource) -> dict[str, Any]:
        return {
            name: self._draft.keep(value, stream, name) if callable(value) else value
            for name, value in source.options().items()
        }

    def _types(self, stream: str, schema: Any, fields: Fields | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if schema is not None:
            found["schema"] = schema if isinstance(schema, str) else self._draft.keep(schema, stream, "schema")
        if fields is not None:
            found["fields"] = {name: kind.__name__ if isinstance(kind, type) else kind for name, kind in fields.items()}
        return found
