"""A sink that keeps the newest version of each group knows its rows by the key of the group."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.pipeline.spec import KeyKind, KeySpec, PipelineSpec, SinkSpec

_BY = ("postgres", "delta", "iceberg")
"""Sinks that must know by which fields. Those of files go by the key of a record without it."""


def keyed(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline in which sinks of change logs have the option ``by`` that is left out."""
    return replace(spec, sinks=tuple(_keyed(sink, spec) for sink in spec.sinks))


def _keyed(sink: SinkSpec, spec: PipelineSpec) -> SinkSpec:
    options = sink.options
    if sink.kind not in _BY or options.get("mode") != "upsert" or "by" in options:
        return sink
    makers = [each for each in spec.computations if sink.stream in each.outputs]
    keys = {each.inputs[0].key.fields for each in makers if each.is_change_log and each.inputs}
    if len(makers) != 1 or len(keys) != 1:
        return sink
    (names,) = keys
    if not names:
        return sink
    kind = KeyKind.FIELDS if len(names) > 1 else KeyKind.FIELD
    return replace(sink, options={**options, "by": list(names)}, key=KeySpec(kind, names))
