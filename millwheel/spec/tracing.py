"""The ``tracing:`` part: which records are traced, and what spans show of them."""

from __future__ import annotations

from millwheel.core.tracing.settings import TracingSpec
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

FIELDS = ("sample", "keys")
_EXAMPLE = "{sample: 0.001}"


def read_tracing(reader: NodeReader, node: YamlNode | None) -> TracingSpec | None:
    """The part of the file; None: no record is traced."""
    if node is None:
        return None
    fields = reader.fields(node, FIELDS, _EXAMPLE)
    return TracingSpec(_share(reader, fields.get("sample")), reader.flag(fields.get("keys")))


def _share(reader: NodeReader, node: YamlNode | None) -> float:
    if node is None:
        return 0.0
    share = node.value
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        reader.bad(node, f"must be a share from 0 to 1, such as 0.001 for one of a thousand, not {node.kind()}")
        return 0.0
    return float(share)
