"""The ``sinks:`` part: the streams that leave the pipeline, and where they go."""

from __future__ import annotations

import re
from dataclasses import replace

from millwheel.connect.built_in import SINKS
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import PipelineSpec, SinkSpec
from millwheel.language.spec.reading.kinds import Kind, Kinds, read_kind
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

_IN_BRACES = re.compile(r"\{([^{}]*)\}")


def read_sink(
    reader: NodeReader, stream: str, node: YamlNode, origin: str
) -> tuple[SinkSpec, Kind] | None:
    """A sink and its kind; None, and a problem, if it cannot be read."""
    from millwheel.connect.kinds import known_sinks

    reader.check_name(node, stream, "stream")
    kind = read_kind(reader, node, Kinds("sink", SINKS, known_sinks), origin)
    if kind is None:
        return None
    return SinkSpec(stream, kind.name, kind.options, reader.where(node), key=_key(kind)), kind


def _key(kind: Kind) -> KeySpec:
    """The fields that identify a row (``by``, or those in the name of its key). They make the key,
    so that all versions of a row go to the same shard, in order."""
    by = _in_texts(kind) if kind.name == "redis" else kind.options.get("by")
    names = tuple(by if isinstance(by, list) else [by] if by else [])
    if not names or not all(isinstance(name, str) for name in names):
        return KeySpec(KeyKind.RECORD)
    return KeySpec(KeyKind.FIELDS if len(names) > 1 else KeyKind.FIELD, names)


def _in_texts(kind: Kind) -> list[str]:
    """The fields in the options that name a row; none if the options contain other expressions."""
    texts = [
        text
        for text in (kind.options.get("key"), kind.options.get("member"))
        if isinstance(text, str)
    ]
    names = [
        name.strip()
        for text in texts
        for name in _IN_BRACES.findall(text.replace("{{", "").replace("}}", ""))
    ]
    return list(dict.fromkeys(names)) if all(map(str.isidentifier, names)) else []


_BY = ("postgres", "delta", "iceberg")
"""Sinks that require ``by``. Sinks of files use the key of a record without it."""


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
