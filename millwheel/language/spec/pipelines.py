"""Makes a pipeline, or the named queries of one, from a YAML or Python file, or reports everything
that is wrong with the file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from millwheel.connect.own_functions import named_alone
from millwheel.connect.python_objects import load_object
from millwheel.core.pipeline.dictionaries import numbered
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    PipelineSpec,
    QuerySpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.tables import tabled, with_copies
from millwheel.core.windows.triggers import Default
from millwheel.language.spec.change_logs import decided
from millwheel.language.spec.checks.change_logs import check_change_logs, check_kept_versions
from millwheel.language.spec.checks.code import CodeChecks
from millwheel.language.spec.checks.field_names import check_field_names
from millwheel.language.spec.checks.field_types import check_field_types
from millwheel.language.spec.checks.firing_again import check_firing_again, check_lateness
from millwheel.language.spec.checks.plain_secrets import check_plain_secrets
from millwheel.language.spec.checks.queries import check_queries
from millwheel.language.spec.checks.topology import (
    check_cycles,
    check_endless,
    check_streams,
    check_windows_of_input,
    find,
    never_ends,
    uncertain_names,
)
from millwheel.language.spec.functions import FUNCTIONS, NULLS, read_functions, read_nulls
from millwheel.language.spec.limits import (
    BALANCED,
    GREEDY,
    LIMITS,
    TRACING,
    read_latency,
    read_limits,
    read_tracing,
)
from millwheel.language.spec.parameters import Parameters
from millwheel.language.spec.parts.computation_fields import COMPUTATION
from millwheel.language.spec.parts.computations import read_computation
from millwheel.language.spec.parts.sinks import keyed, read_sink
from millwheel.language.spec.parts.slices import QUERY, read_queries
from millwheel.language.spec.parts.streams import STREAM, read_stream
from millwheel.language.spec.parts.tables import check_tables
from millwheel.language.spec.python_files import Document, PipelineFile, load_document
from millwheel.language.spec.reading.document import parse, read_text
from millwheel.language.spec.reading.kinds import Kind
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Choice,
    Duration,
    Entries,
    Field,
    FilePart,
    Items,
    NameText,
    Own,
    Text,
)
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.ship import check_ship, read_ship
from millwheel.language.spec.typed.decimals import Fields
from millwheel.language.spec.typed.streams import with_decimals
from millwheel.language.spec.typed.times import with_times

_log = logging.getLogger(__name__)
PIPELINE = FilePart(
    "pipeline: NAME, streams: …, computations: …, sinks: …",
    {
        "pipeline": Field(
            "",
            NameText("pipeline"),
            "the pipeline's name, which its root is kept under",
            "name the pipeline: write pipeline: NAME",
        ),
        "streams": Field(
            "",
            Entries(STREAM, "{hits: {source: …, timestamp: ts}}", named=True),
            "flows of records; those with a source come from outside",
            "write streams: {NAME: {source: {files: {path: …}}, timestamp: FIELD}}",
        ),
        "computations": Field(
            "",
            Entries(
                COMPUTATION,
                "{traffic: {input: …, window: …, aggregate: …, output: …}}",
                named=True,
            ),
            "what is made of the streams",
        ),
        "sinks": Field(
            "",
            Entries(Own(("sink",)), "{alerts: {files: {path: …}}}", named=True),
            "where streams go",
        ),
        "queries": Field(
            "",
            Entries(QUERY, f"{{cpc: {QUERY.example}}}", named=True),
            "formulas over what computations keep",
        ),
        "functions": FUNCTIONS,
        "nulls": NULLS,
        "limits": Field("", LIMITS, "limits of records, keys, state and calls of your code"),
        "ship": Field(
            "",
            Own((Items(Text("model.json")),)),
            "data files that workers need, or globs of them",
        ),
        "tracing": Field("", TRACING, "records whose way through the pipeline is a trace"),
        "latency": Field(
            "",
            Own((Choice((GREEDY, BALANCED)), Duration())),
            "how long records may wait at each worker for others: greedy, balanced or a duration",
        ),
    },
)


def load_pipeline(
    path: str | os.PathLike[str],
    params: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    origin: str | None = None,
    check_code: bool = True,
    secured: bool = False,
) -> PipelineSpec:
    """Read and check the pipeline of ``p.yaml``, ``p.py`` or ``p.py:name``, and replace its
    parameters. Warnings are logged.

    ``params`` are values of ``${name}`` and take precedence over ``environ`` (default: the
    process's). Relative paths of files are relative to ``origin`` (default: the file's folder).
    With ``check_code`` False no user code but a Python pipeline itself is imported, and no source
    or sink is built: for a copy that was checked before. ``secured`` refuses options that are
    secrets in plain text; otherwise they are warned of. Raises PipelineError with one sentence for
    each problem: file, line, field, the problem and a correction.
    """
    spec, warnings = check_pipeline(
        path, params, environ, origin=origin, check_code=check_code, secured=secured
    )
    return _with_warnings(spec, warnings)


def load_read(document: Document, params: Mapping[str, str] | None = None) -> PipelineSpec:
    """Like :func:`load_pipeline`, of a file that :func:`read_document` has read."""
    return _with_warnings(*check_document(document, params))


def _with_warnings(spec: PipelineSpec, warnings: list[str]) -> PipelineSpec:
    for warning in warnings:
        _log.warning("%s", warning)
    return spec


def check_pipeline(
    path: str | os.PathLike[str],
    params: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    origin: str | None = None,
    check_code: bool = True,
    secured: bool = False,
) -> tuple[PipelineSpec, list[str]]:
    """Like :func:`load_pipeline`, but also returns the warnings."""
    document = read_document(os.fspath(path))
    return check_document(
        document, params, environ, origin=origin, check_code=check_code, secured=secured
    )


def read_document(path: str) -> Document:
    """The tree of a YAML or Python file, before parameters and checks. Raises PipelineError if the
    file has none."""
    pipeline_file = PipelineFile.of(path)
    if pipeline_file.is_python:
        return load_document(pipeline_file)
    problems = Problems(pipeline_file.file)
    top = parse(read_text(pipeline_file.file), problems)
    if top is None:
        raise problems.error()
    return Document(top, problems)


def check_document(
    document: Document,
    params: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    origin: str | None = None,
    check_code: bool = True,
    secured: bool = False,
) -> tuple[PipelineSpec, list[str]]:
    """The part of :func:`check_pipeline` after reading. Changes the document."""
    reader, top = NodeReader(document.problems), document.top
    parameters = Parameters(
        params or {}, os.environ if environ is None else environ, reader.problems
    )
    parameters.replace(top)
    folder = str(Path(document.problems.file).resolve().parent)
    nulls = read_nulls(reader, top)
    functions = read_functions(reader, top, folder, check_code, nulls)
    reader = replace(reader, language=functions.language)
    parts = _read(reader, top, folder, document.origin or origin or folder, check_code)
    parts.spec = keyed(
        decided(
            replace(
                parts.spec,
                functions=functions.targets,
                vectorized=functions.vectorized,
                nulls=nulls,
            )
        )
    )
    parts.spec = with_times(parts.spec, reader.language.compile)
    parts.spec, kinds = with_decimals(reader, parts.spec, partial(find, top))
    _check(reader, top, parts, kinds, check_code)
    if check_code and origin is None:  # not for the copies that workers read when they start
        check_ship(reader, parts.spec, top)
        check_plain_secrets(reader, top, secured)
    if reader.problems.found:
        raise reader.problems.error()
    for name in parameters.unused():
        reader.problems.warn(
            1, "", f"--set {name}=… was given, but the pipeline has no ${{{name}}}"
        )
    return _as_it_runs(parts.spec), reader.problems.warnings


def _as_it_runs(spec: PipelineSpec) -> PipelineSpec:
    """With the computations that the planner adds."""
    language = named_alone(spec.functions, spec.nulls, spec.vectorized)
    return numbered(planned(with_copies(tabled(spec))), lambda text: language.compile(text).fields)


@dataclass(slots=True)
class _Parts:
    """A pipeline as read, with the kinds of its sources and sinks by stream."""

    spec: PipelineSpec
    sources: dict[str, Kind | None] = field(default_factory=dict)
    sinks: dict[str, Kind] = field(default_factory=dict)


def _read(reader: NodeReader, top: YamlNode, folder: str, origin: str, check_code: bool) -> _Parts:
    fields = PIPELINE.nodes(reader, top)
    name = PIPELINE.fields["pipeline"].value(reader, fields.get("pipeline"), "")
    streams = dict(_streams(reader, fields.get("streams"), origin))
    sinks = dict(_sinks(reader, fields.get("sinks"), origin))
    spec = PipelineSpec(
        name=name,
        streams=tuple(spec for spec, _ in streams.values()),
        computations=tuple(_computations(reader, fields.get("computations"), folder, check_code)),
        sinks=tuple(spec for spec, _ in sinks.values()),
        folder=folder,
        file=reader.problems.file,
        limits=read_limits(reader, fields.get("limits")),
        ship=read_ship(reader, fields.get("ship")),
        queries=read_queries(reader, fields.get("queries")),
        tracing=read_tracing(reader, fields.get("tracing")),
        latency_us=read_latency(reader, fields.get("latency")),
    )
    return _Parts(
        spec,
        {stream: kind for stream, (_, kind) in streams.items()},
        {stream: kind for stream, (_, kind) in sinks.items()},
    )


def _streams(
    reader: NodeReader, node: YamlNode | None, origin: str
) -> Iterator[tuple[str, tuple[StreamSpec, Kind | None]]]:
    for name, child in reader.entries(node, "{hits: {source: …, timestamp: ts}}").items():
        yield name, read_stream(reader, name, child, origin)


def _sinks(
    reader: NodeReader, node: YamlNode | None, origin: str
) -> Iterator[tuple[str, tuple[SinkSpec, Kind]]]:
    for name, child in reader.entries(node, "{alerts: {files: {path: …}}}").items():
        sink = read_sink(reader, name, child, origin)
        if sink is not None:
            yield name, sink


def _computations(
    reader: NodeReader, node: YamlNode | None, folder: str, check_code: bool
) -> Iterator[ComputationSpec]:
    def load(name: str) -> Any:
        return load_object(name, folder) if check_code else _unloaded

    for name, child in reader.entries(
        node, "{traffic: {input: …, window: …, aggregate: …, output: …}}"
    ).items():
        yield read_computation(reader, name, child, load)


def _unloaded(**options: Any) -> Default:
    """Stands for a custom trigger whose code must not be imported."""
    return Default()


def _check(
    reader: NodeReader, top: YamlNode, parts: _Parts, kinds: Mapping[str, Fields], check_code: bool
) -> None:
    spec = parts.spec
    check_streams(reader, spec, top, uncertain_names(reader, top))
    check_endless(reader, spec, top)
    check_change_logs(reader, spec, top)
    check_tables(reader, spec, partial(find, top), never_ends)
    check_windows_of_input(reader, spec, top)
    check_field_types(reader, spec, top, kinds)
    check_queries(reader, spec, top)
    if not check_code:
        return
    checks = CodeChecks(reader, spec, top)
    for stream in spec.streams:
        checks.stream(stream, parts.sources.get(stream.name))
    for computation in spec.computations:
        checks.computation(computation)
    for sink in spec.sinks:
        checks.sink(sink, parts.sinks[sink.stream])
    check_field_names(reader, spec, top, checks.classes, kinds)
    load = partial(load_object, folder=spec.folder)
    check_firing_again(reader, spec, top, checks.replacing, load)
    check_lateness(reader, spec, top, load)
    check_kept_versions(reader, spec, top, checks.replacing)
    check_cycles(reader, spec, top, checks.has_timer)


_EXAMPLE = "queries: {cpc: {formula: clicks.spend / clicks.n, window: 1h}}"


def load_queries(path: str, spec: PipelineSpec) -> tuple[QuerySpec, ...]:
    """The named queries of a YAML file, which may be a whole pipeline's, for the computations of
    ``spec``. Raises PipelineError with a sentence for each problem."""
    return _read_queries(read_text(path), path, spec)


def one_query(name: str, formula: str, window: str, spec: PipelineSpec) -> tuple[QuerySpec, ...]:
    """One query by its parts. Raises PipelineError."""
    query = {"formula": formula, **({"window": window} if window else {})}
    return _read_queries(
        msgspec.json.encode({"queries": {name: query}}).decode(), "the query", spec
    )


def _read_queries(text: str, file: str, spec: PipelineSpec) -> tuple[QuerySpec, ...]:
    problems = Problems(file)
    top = parse(text, problems)
    if top is None:
        raise problems.error()
    reader = NodeReader(problems, language=named_alone(spec.functions))
    fields = reader.fields(top, [*PIPELINE.fields], _EXAMPLE)
    if "queries" not in fields and top.is_map:
        reader.missing(top, "queries", f"write for example {_EXAMPLE}")
    queries = read_queries(reader, fields.get("queries"))
    check_queries(reader, replace(spec, queries=queries), top)
    if problems.found:
        raise problems.error()
    return queries
