"""Checks that need Python: whether the named classes, functions, sources and sinks exist and
fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from millwheel.adapters.secret_values import unrevealed
from millwheel.api import Computation, sets_timers, takes_batches
from millwheel.connect.own_functions import expressions_in
from millwheel.connect.python_objects import OBJECT_NAME, load_object
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.machines.specs import machine_from_spec
from millwheel.core.machines.triggers import TriggeredMachine
from millwheel.core.pipeline.graph import retracting_streams, takes_retractions
from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    CallbackSpec,
    DeduplicateSpec,
    DictionarySpec,
    IntervalJoinSpec,
    LookupSpec,
    OverSpec,
    SlicesSpec,
    TopSpec,
    Work,
)
from millwheel.core.windows.contract import Machine
from millwheel.errors import MillwheelError, PipelineError
from millwheel.language.spec.checks.callback_classes import (
    cannot_be_made,
    makes_retractions,
    wrong_methods,
    wrong_states,
)
from millwheel.language.spec.checks.dividing import why_not_divided
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.parts.joins import keyless
from millwheel.language.spec.parts.steps import step_nodes
from millwheel.language.spec.reading.kinds import Kind, blame
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import did_you_mean
from millwheel.language.spec.reading.reader import NodeReader

_CANNOT_RETRACT = (
    "records that take back earlier ones. This sink would keep both as results; write mode:"
    " changelog (every change, marked) or mode: upsert (the current rows), or choose another"
    " accumulation than retracting in the computation before it"
)


_CANNOT_UNDO: Mapping[type[Work], str] = {
    DeduplicateSpec: "deduplicate",
    DictionarySpec: "dictionary",
    IntervalJoinSpec: "join",  # a row may be taken back after it has been dropped
    LookupSpec: "enrich",
    OverSpec: "over",  # results that have left would be others
}
"""Work that could not undo the effect of a record that is taken back, as it is called in a file."""


class CodeChecks:
    """Loads the objects that the pipeline names, and notes those that do not fit."""

    def __init__(self, reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
        self._reader = reader
        self._spec = spec
        self._top = top
        self.classes: dict[str, list[str]] = {}
        """The fields of the classes that streams are decoded into, by stream; filled by
        :meth:`stream`."""
        self.replacing: dict[str, str] = {}
        """The streams with a sink that replaces rows, and the kind of that sink; filled by
        :meth:`sink`."""

    # --- streams and sinks ------------------------------------------------------------------------

    def stream(self, stream: StreamSpec, kind: Kind | None) -> None:
        """Timestamp function, schema, and the options of the source."""
        from millwheel.connect.kinds import build_source

        if ":" in stream.timestamp:
            self._function(stream.timestamp, "streams", stream.name, "timestamp")
        schema = self._schema(stream)
        if kind is None or stream.source is None or kind.name == "injection":
            return
        source = replace(stream.source, options=unrevealed(stream.source.options))
        if kind.name == "generator" and isinstance(kind.options.get("factory"), str):
            self._function(
                kind.options["factory"], "streams", stream.name, "source", "generator", "factory"
            )
        self._build(kind, lambda: build_source(source, self._spec.folder, schema, stream.fields))

    def sink(self, sink: SinkSpec, kind: Kind) -> None:
        """The options of a sink."""
        from millwheel.connect.kinds import build_sink

        plain = replace(sink, options=unrevealed(sink.options))
        with expressions_in(self._reader.language):
            built_sink = self._build(kind, lambda: build_sink(plain, self._spec.folder))
        if built_sink is not None and built_sink.replaces_rows:
            self.replacing[sink.stream] = kind.name
        if built_sink is not None and sink.stream in retracting_streams(self._spec):
            if not built_sink.takes_retractions:
                self._reader.bad(
                    kind.node, f"the stream {sink.stream!r} carries retractions, {_CANNOT_RETRACT}"
                )

    def _build(self, kind: Kind, make: Callable[[], Any]) -> Any:
        if self._reader.problems.concerns(kind.node.path):
            return None
        try:
            return make()
        except (ValueError, MillwheelError) as ex:
            blame(self._reader, kind, ex)
        except Exception as ex:  # a third party's factory may raise anything
            self._reader.bad(
                kind.node,
                f"{kind.name} cannot be built with these options: {type(ex).__name__}: {ex}",
            )
        return None

    def _schema(self, stream: StreamSpec) -> Any:
        if not stream.schema:
            return None
        path = ("streams", stream.name, "schema")
        schema = self._load(stream.schema, *path)
        if schema is None:
            return None
        try:
            msgspec.json.Decoder(schema)
        except Exception as ex:  # msgspec raises several kinds for types it cannot decode into
            self._bad(
                f"msgspec cannot decode records into {stream.schema}: {ex}; use a msgspec.Struct",
                *path,
            )
            return None
        if isinstance(schema, type) and issubclass(schema, msgspec.Struct):
            self.classes[stream.name] = [field.name for field in msgspec.structs.fields(schema)]
            self._check_struct(stream, self.classes[stream.name])
        return schema

    def _check_struct(self, stream: StreamSpec, field_names: list[str]) -> None:
        for what, name in (("timestamp", stream.timestamp), ("id", stream.id)):
            if name and ":" not in name and name not in field_names:
                text = (
                    f"{stream.schema} has no field {name!r}{did_you_mean(name, field_names)}; it"
                    f" has {', '.join(field_names)}"
                )
                self._bad(text, "streams", stream.name, what)

    # --- computations -----------------------------------------------------------------------------

    def computation(self, computation: ComputationSpec) -> None:
        """Key functions, and the callback or the machine of the window."""
        path = ("computations", computation.name)
        for node_input in computation.inputs:
            if node_input.key.kind is KeyKind.FUNCTION:
                self._function(node_input.key.names[0], *path, "input", node_input.stream, "key")
        for step in step_nodes(find(self._top, *path)):
            if OBJECT_NAME.fullmatch(step.text):
                self._function_at(step)
        if computation.called is not None:
            self._callback(computation, computation.called)
        if isinstance(computation.work, LookupSpec):
            self._lookup(computation, computation.work)
        self._no_retractions(computation)
        stream = keyless(computation, self._spec)
        if stream:
            text = (
                f"records of {stream} are matched by key, but the input has no key, so it would be"
                f" the partition (the file); write {{{stream}: {{key: FIELD}}}}"
            )
            self._bad(text, *path, "input")
        if isinstance(computation.work, SlicesSpec):
            self._slices(computation)
        if computation.windowed is not None and not self._reader.problems.concerns(".".join(path)):
            self._machine(computation)

    def _lookup(self, computation: ComputationSpec, lookup: LookupSpec) -> None:
        """The options of a lookup, and whether records have the fields that make its key."""
        from millwheel.connect.kinds import build_lookup

        path = ("computations", computation.name, "enrich", "lookup")
        plain = replace(lookup, options=unrevealed(lookup.options))
        node = find(self._top, *path, lookup.kind)
        kind = Kind(lookup.kind, lookup.options, node)
        with expressions_in(self._reader.language):
            built_lookup = self._build(kind, lambda: build_lookup(plain, self._spec.folder))
        if built_lookup is None:
            return
        if lookup.by and len(lookup.by) != len(built_lookup.by):
            count = f"{len(built_lookup.by)} values ({', '.join(built_lookup.by)})"
            self._bad(
                f"{lookup.kind} needs {count}, but by gives {len(lookup.by)}", *path[:-1], "by"
            )
        for text in () if lookup.by else built_lookup.by:
            try:
                self._reader.language.compile(text)
            except ValueError as ex:
                self._bad(f"{text!r} is not a field of a record: {ex}; name one in by", *path)

    def _no_retractions(self, computation: ComputationSpec) -> None:
        """Refuses retractions for computations that could not undo the effect of the retracted
        record."""
        work = computation.work
        word = _CANNOT_UNDO.get(type(work))
        by_time = isinstance(work, TopSpec) and not work.by
        if by_time and takes_retractions(computation, self._spec):
            self._bad(
                "its input carries retractions, whose rows have the times of their changes, so that"
                " none is the first or the last; write top with an order of its own, such as"
                " {by: [version desc], k: 1}",
                *("computations", computation.name, "deduplicate"),
            )
        if word is not None and any(map(self._of_table, computation.inputs)):
            self._bad(
                f"its input is a table, whose rows are taken back, which {word}"
                f" cannot undo; leave out table if every record counts",
                *("computations", computation.name, word),
            )
        elif word is not None and takes_retractions(computation, self._spec):
            self._bad(
                f"its input carries retractions (accumulation: retracting), which {word} cannot"
                f" undo; {word} before the retracting window, or make the window accumulating",
                *("computations", computation.name, word),
            )

    def _of_table(self, table_input: InputSpec) -> bool:
        return self._spec.stream(table_input.stream).table is not None

    def _slices(self, computation: ComputationSpec) -> None:
        """Aggregators can be made. Slices keep no records: each must be able to remove a record
        that is taken back."""
        back = takes_retractions(computation, self._spec)
        for each in computation.aggregates:
            path = ("computations", computation.name, "aggregate", each.name)
            try:
                aggregator = make_aggregator(
                    each.function, each.options, lambda name: load_object(name, self._spec.folder)
                )
            except Exception as ex:  # the constructor of one of the user's own may raise anything
                self._bad(f"this cannot be made: {type(ex).__name__}: {ex}", *path)
                continue
            if back and not aggregator.subtracts:
                self._bad(
                    f"its input takes records back, and {each.function} cannot take a record out of"
                    " a slice again; use aggregates that can (count, sum, …), or a window",
                    *path,
                )

    def has_timer(self, name: str) -> bool:
        """True if the computation's class defines ``process_timer``, or could not be loaded
        (already a problem)."""
        computation = next(each for each in self._spec.computations if each.name == name)
        if computation.called is None:
            return False
        try:
            kind = load_object(computation.called.callback, self._spec.folder)
        except PipelineError:
            return True
        return sets_timers(kind)

    def _callback(self, computation: ComputationSpec, called: CallbackSpec) -> None:
        path = ("computations", computation.name, "callback")
        windowed = computation.windowed is not None
        kind = self._load(called.callback, *path)
        if kind is None:
            return
        if not (isinstance(kind, type) and issubclass(kind, Computation)):
            self._bad(
                f"{called.callback} is not a class derived from millwheel.Computation; derive it"
                " from there",
                *path,
            )
            return
        records, windows = kind.process_record, kind.process_window
        if windowed and windows is Computation.process_window:
            text = (
                "computations with a window call process_window(self, ctx, key, window, records);"
                " add that method"
            )
            self._bad(f"{kind.__name__} has none: {text}", *path)
        elif not windowed and records is Computation.process_record and not takes_batches(kind):
            fix = (
                "add one"
                if windows is Computation.process_window
                else "add one, or give the computation a window"
            )
            self._bad(
                f"{kind.__name__} has no process_record(self, ctx, record) method; {fix}", *path
            )
        if (
            not windowed
            and takes_retractions(computation, self._spec)
            and not kind.takes_retractions
        ):
            text = (
                "its input carries retractions, records that take back earlier ones, and a"
                f" callback must undo them itself: set takes_retractions = True in {kind.__name__}"
                " and look at millwheel.as_retraction(record.value), or give the computation a"
                " window"
            )
            self._bad(text, "computations", computation.name, "input")
        if wrong := [*wrong_methods(kind, windowed), *wrong_states(kind)]:
            self._bad("; ".join(wrong), *path)
        if why := makes_retractions(kind):
            self._bad(why, *path)
        if self._options(computation.name, called.options, kind):
            if text := cannot_be_made(kind, called.options):
                self._bad(
                    text,
                    "computations",
                    computation.name,
                    "options" if called.options else "callback",
                )

    def _options(self, name: str, options: Mapping[str, Any], kind: type[Computation]) -> bool:
        try:
            signature = inspect.signature(kind)
        except (TypeError, ValueError):  # a constructor that Python cannot describe
            return True
        try:
            signature.bind(**options)
        except TypeError as ex:
            takes = ", ".join(signature.parameters) or "none"
            unknown = (each for each in options if each not in signature.parameters)
            close = [did_you_mean(each, signature.parameters) for each in unknown]
            text = (
                f"{kind.__name__} cannot be built with these options: {ex}{(close or [''])[0]}; it"
                f" takes {takes}"
            )
            self._bad(text, "computations", name, "options")
            return False
        return True

    def _machine(self, computation: ComputationSpec) -> None:
        path = ("computations", computation.name, "window")
        try:
            machine = machine_from_spec(
                computation,
                self._reader.language.compile,
                lambda name: load_object(name, self._spec.folder),
                takes_retractions(computation, self._spec),
            )
        except (ValueError, MillwheelError) as ex:
            self._bad(str(ex), *path)
        except Exception as ex:  # the constructor of a custom window, trigger or aggregator
            self._bad(f"this cannot be built: {type(ex).__name__}: {ex}", *path)
        else:
            self._divided(computation, machine)

    def _divided(self, computation: ComputationSpec, machine: Machine) -> None:
        """Whether keys can be divided, as far as classes and other computations decide it."""
        path = ("computations", computation.name, "skew")
        if computation.scatter == 1:
            return
        if reason := why_not_divided(computation, self._spec):
            self._bad(reason, *path)
        elif isinstance(machine, TriggeredMachine) and machine.aggregation.ordered:
            self._bad(
                "an aggregate of your own may depend on the order of a key's records, which divided"
                " keys do not keep; if it does not, set ordered = False in its class",
                *path,
            )

    # --- loading ----------------------------------------------------------------------------------

    def _function(self, name: str, *path: str) -> None:
        self._function_at(find(self._top, *path), name)

    def _function_at(self, node: YamlNode, name: str = "") -> None:
        loaded = self._load_at(node, name or node.text)
        if loaded is not None and not callable(loaded):
            text = (
                f"{name or node.text} is a {type(loaded).__name__}, not a function of a record's"
                " value"
            )
            self._reader.bad(node, text)

    def _load(self, name: str, *path: str) -> Any:
        return self._load_at(find(self._top, *path), name)

    def _load_at(self, node: YamlNode, name: str) -> Any:
        try:
            return load_object(name, self._spec.folder)
        except PipelineError as ex:
            self._reader.bad(node, str(ex))
            return None

    def _bad(self, text: str, *path: str) -> None:
        self._reader.bad(find(self._top, *path), text)
