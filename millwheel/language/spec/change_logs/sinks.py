"""A sink that keeps the newest version of each group or row knows it by the key of the group or
table."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.pipeline.spec import KeyKind, KeySpec, PipelineSpec, SinkSpec

_BY = ("postgres", "delta", "iceberg")
"""Sinks that must know by which fields. Those of files go by the key of a record without it."""


def keyed(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline in which sinks of change logs and tables have ``by`` where it is left out."""
    return replace(spec, sinks=tuple(_keyed(sink, spec) for sink in spec.sinks))


def _keyed(sink: SinkSpec, spec: PipelineSpec) -> SinkSpec:
    options = sink.options
    if sink.kind not in _BY or options.get("mode") != "upsert" or "by" in options:
        return sink
    makers = [each for each in spec.computations if sink.stream in each.outputs]
    keys = {each.inputs[0].key.fields for each in makers if each.is_change_log and each.inputs}
    if (table := spec.stream(sink.stream).table) is not None:
        keys.add(table.key.names)
    if len(makers) != int(table is None) or len(keys) != 1:
        return sink
    (names,) = keys
    if not names:
        return sink
    kind = KeyKind.FIELDS if len(names) > 1 else KeyKind.FIELD
    return replace(sink, options={**options, "by": list(names)}, key=KeySpec(kind, names))
