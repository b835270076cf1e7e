"""Specs without the places they were written in, which is all in which a YAML file and its Python
twin may differ."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.pipeline.spec import PipelineSpec


def without_lines(spec: PipelineSpec) -> PipelineSpec:
    """The same pipeline, wherever it was written."""
    return replace(
        spec,
        streams=tuple(replace(stream, where="") for stream in spec.streams),
        computations=tuple(replace(computation, where="") for computation in spec.computations),
        sinks=tuple(replace(sink, where="") for sink in spec.sinks),
        file="",
    )
