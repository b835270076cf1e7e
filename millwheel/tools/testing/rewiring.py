"""Prepares a pipeline for the harness: replaces sources by pushed ones, and adds a tap to every
stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from millwheel.core.pipeline.keys import Divided
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.tables import untabled
from millwheel.errors import PipelineError
from millwheel.language.spec.parameters import stand_ins
from millwheel.language.spec.pipelines import load_read, read_document
from millwheel.language.spec.python_files import Documented, PipelineFile
from millwheel.tools.testing import pushes, taps

_UNSET = "not-set-in-this-test"


def spec_of(pipeline: Any, params: Mapping[str, Any] | None) -> PipelineSpec:
    """The pipeline of a file, of a spec, or of the fluent API. Raises PipelineError when it cannot
    run."""
    if isinstance(pipeline, PipelineSpec):
        return pipeline
    if isinstance(pipeline, str | os.PathLike):
        return _loaded(
            os.fspath(pipeline), {name: str(value) for name, value in (params or {}).items()}
        )
    if not isinstance(pipeline, Documented):
        raise PipelineError(
            f"{type(pipeline).__name__} is not a pipeline; give the path of a YAML or Python"
            " file, a Pipeline or a PipelineSpec"
        )
    document, values = (
        pipeline.millwheel_document(__file__, ""),
        {k: str(v) for k, v in (params or {}).items()},
    )
    return pipeline.spec({**stand_ins(document.top, _unset), **values})


def _loaded(path: str, params: Mapping[str, str]) -> PipelineSpec:
    file = PipelineFile.of(path).file
    if not Path(file).is_file():
        raise PipelineError(
            f"there is no pipeline file {file}; give the path of a YAML or Python file"
        )
    document = read_document(path)
    return load_read(document, {**stand_ins(document.top, _unset), **params})


def _unset(name: str) -> str:
    return _UNSET


def rewired(spec: PipelineSpec, *, run_sources: bool, check_future: bool) -> PipelineSpec:
    """The pipeline with pushed sources (unless they are to run) and a tap on every stream. The
    stream of a running source has a tap only if it has a sink: a tap needs single records, and
    would prevent reading in columns. Behind pushed sources there are no tables: rows, and
    retractions of rows, are pushed to a stream of change events."""
    if not run_sources:
        spec = untabled(spec)
    streams = (
        spec.streams
        if check_future
        else tuple(replace(stream, max_future_us=None) for stream in spec.streams)
    )
    streams = streams if run_sources else tuple(_pushed(stream) for stream in streams)
    sink_streams = {sink.stream for sink in spec.sinks}
    sinks = tuple(
        SinkSpec(
            name,
            taps.KIND,
            takes_late=name not in sink_streams and spec.stream(name).source is not None,
        )
        for name in streams_of(spec)
        if name in sink_streams or not run_sources or spec.stream(name).source is None
    )
    computations = (
        spec.computations if run_sources else tuple(map(_by_ids(spec), spec.computations))
    )
    return replace(spec, streams=streams, sinks=sinks, computations=computations)


def _by_ids(spec: PipelineSpec) -> Callable[[ComputationSpec], ComputationSpec]:
    """Divided keys of injected records with ids, by the ids. A client's copies are dropped before
    keys are divided, but copies that a test pushes are not, and must reach the instance that has
    the id. Results are those of every grouping."""
    identified = {stream.name for stream in spec.streams if stream.id}

    def rewire(computation: ComputationSpec) -> ComputationSpec:
        if not any(
            each.stream in identified and each.key.divided.by_tables for each in computation.inputs
        ):
            return computation
        (node_input,) = computation.inputs
        key = replace(node_input.key, divided=Divided.ALL)
        return replace(computation, inputs=(InputSpec(node_input.stream, key),))

    return rewire


def _pushed(stream: StreamSpec) -> StreamSpec:
    if stream.source is None:
        return stream
    return replace(
        stream, source=SourceSpec(pushes.KIND, {"stream": stream.name}), idle_after_us=None
    )


def streams_of(spec: PipelineSpec) -> list[str]:
    """Every stream that has a source or a producer, the dead letters last."""
    names = [stream.name for stream in spec.streams if stream.source is not None]
    for computation in spec.computations:
        names += computation.outputs
        names += [computation.late_side] if computation.late_side else []
    return list(dict.fromkeys([*(name for name in names if name != DEAD_LETTERS), DEAD_LETTERS]))
