"""``join:`` and ``enrich:`` of a computation.

join: left
enrich: {with: prices, missing: drop}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.core.spec import EnrichSpec, InputSpec, JoinKind, Missing
from millwheel.spec.nodes import Node
from millwheel.spec.problems import unknown
from millwheel.spec.reader import Reader

FIELDS = ("join", "enrich")
_TWO = "input: {orders: {key: product}, prices: {key: product}}"
_ENRICH = "{with: prices}"
_NOT_FOR_JOIN = ("aggregate", "where", "trigger", "accumulation", "allowed_lateness", "output_time")


def read_join(reader: Reader, node: Node, fields: Mapping[str, Node], inputs: Sequence[InputSpec]) -> JoinKind | None:
    """How two streams are joined in windows; None when they are not."""
    given = fields.get("join")
    if given is None:
        return None
    _check_two(reader, given, inputs)
    if "window" not in fields:
        reader.missing(node, "window", "a join pairs the records of a window; write for example window: {tumbling: 1m}")
    for name in _NOT_FOR_JOIN:
        if name in fields:
            reader.bad(
                fields[name],
                f"a join says its pairs once, when the window closes: leave out {name}, and filter or aggregate in a "
                "computation before or behind it",
            )
    return JoinKind(reader.choice(given, [kind.value for kind in JoinKind], "inner"))


def read_enrich(reader: Reader, fields: Mapping[str, Node], inputs: Sequence[InputSpec]) -> EnrichSpec | None:
    """What a stream is enriched with; None when it is not, or it cannot be read."""
    given = fields.get("enrich")
    if given is None:
        return None
    if "window" in fields:
        reader.bad(fields["window"], "enrich looks at one record at a time and has no windows; leave out window")
    parts = reader.fields(given, ("with", "as", "missing", "as_of"), _ENRICH)
    if "with" not in parts:
        if given.is_map:
            reader.missing(given, "with", f"which input holds what is added; write for example {_ENRICH}")
        return None
    _check_two(reader, given, inputs)
    stream = reader.text(parts["with"], "prices")
    streams = [each.stream for each in inputs]
    if stream and stream not in streams:
        reader.bad(parts["with"], unknown("input", stream, streams, "Inputs"))
        return None
    return EnrichSpec(
        stream,
        reader.text(parts.get("as"), "price", stream),
        Missing(reader.choice(parts.get("missing"), [kind.value for kind in Missing], "keep")),
        reader.choice(parts.get("as_of"), ["timestamp", "arrival"], "timestamp") == "timestamp",
    )


def _check_two(reader: Reader, node: Node, inputs: Sequence[InputSpec]) -> None:
    if len(inputs) != 2:
        reader.bad(
            node, f"takes two inputs, and there {'is' if len(inputs) == 1 else 'are'} {len(inputs)}; write {_TWO}"
        )
