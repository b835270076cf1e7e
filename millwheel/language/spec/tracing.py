"""The ``tracing:`` part: which records are traced, and what spans show of them."""

from __future__ import annotations

from millwheel.core.tracing.settings import TracingSpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import Field, FilePart, Flag, Share
from millwheel.language.spec.reading.reader import NodeReader

TRACING = FilePart(
    "{sample: 0.001}",
    {
        "sample": Field(
            "sample", Share(), "the share of records that are traced without being asked to"
        ),
        "keys": Field("keys", Flag(), "whether spans show the keys of records"),
    },
    TracingSpec(),
)


def read_tracing(reader: NodeReader, node: YamlNode | None) -> TracingSpec | None:
    """The part of the file; None: no record is traced."""
    return None if node is None else TracingSpec(**TRACING.read(reader, node))
