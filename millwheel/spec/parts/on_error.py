"""``on_error``: the consequences of failures in a source or a computation."""

from __future__ import annotations

from millwheel.core.model.failures import DEAD_LETTER, SHARE, STOP, OnError
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

_WORDS = {"dead_letter": DEAD_LETTER, "stop": STOP}
_EXAMPLE = "{stop_above: 10%, of_at_least: 100}"


def read_on_error(reader: NodeReader, node: YamlNode | None) -> OnError:
    """The policy of a node, or the default."""
    default = SHARE
    if node is None:
        return default
    if not node.is_map:
        if node.is_scalar and node.text in _WORDS:
            return _WORDS[node.text]
        reader.bad(node, f"must be dead_letter, stop, or for example {_EXAMPLE}, not {node.kind()}")
        return default
    fields = reader.fields(node, ("stop_above", "of_at_least"), _EXAMPLE)
    return OnError(
        _share(reader, fields.get("stop_above"), default.stop_above),
        reader.number(fields.get("of_at_least"), default.of_at_least, 1, 1_000_000_000) or default.of_at_least,
    )


def _share(reader: NodeReader, node: YamlNode | None, default: float) -> float:
    if node is None:
        return default
    digits = node.text[:-1].strip() if node.is_scalar and node.text.endswith("%") else ""
    try:
        share = float(digits) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        fix = "to continue whatever fails, write on_error: dead_letter"
        reader.bad(node, f"must be a share from 0% to below 100%, such as 10%, not {node.kind()}; {fix}")
        return default
    return share
