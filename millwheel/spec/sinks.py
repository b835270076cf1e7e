"""The ``sinks:`` part: which streams leave the pipeline, and where to."""

from __future__ import annotations

from millwheel.core.spec import SinkSpec
from millwheel.spec.kinds import Kind, read_kind
from millwheel.spec.nodes import Node
from millwheel.spec.reader import Reader


def read_sink(reader: Reader, stream: str, node: Node, origin: str) -> tuple[SinkSpec, Kind] | None:
    """A sink and its kind; None, and a problem, when it cannot be read."""
    from millwheel.sinks import known_sinks

    reader.check_name(node, stream, "stream")
    kind = read_kind(reader, node, "sink", known_sinks(), origin)
    if kind is None:
        return None
    return SinkSpec(stream, kind.name, kind.options, reader.where(node)), kind
