"""``on_error``: the consequences of failures in a source or a computation."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.model.failures import DEAD_LETTER, SHARE, STOP, OnError
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import Choice, Field, FilePart, Number, Own, Percent
from millwheel.language.spec.reading.reader import NodeReader

_WORDS = {"dead_letter": DEAD_LETTER, "stop": STOP}
_SHARE = FilePart(
    "{stop_above: 10%, of_at_least: 100}",
    {
        "stop_above": Field(
            "stop_above",
            Percent("to continue whatever fails, write on_error: dead_letter"),
            "the run stops when more than this share of the recent calls failed",
        ),
        "of_at_least": Field(
            "of_at_least", Number(1, 1_000_000_000), "how many calls there must be for that"
        ),
    },
    SHARE,
)


def _read(reader: NodeReader, node: YamlNode) -> OnError:
    if node.is_map:
        return replace(SHARE, **_SHARE.read(reader, node))
    if node.is_scalar and node.text in _WORDS:
        return _WORDS[node.text]
    text = f"must be dead_letter, stop, or for example {_SHARE.example}, not {node.kind()}"
    reader.bad(node, text)
    return SHARE


ON_ERROR = Field(
    "on_error",
    Own((Choice(tuple(_WORDS)), _SHARE), _read),
    "[when failures stop the run](pipeline.md#on_error)",
    default="more than 10% of at least 100",
)
