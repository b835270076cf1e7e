"""``over:``, each record with aggregates of itself and of those before it.

over: {rows: 10}
over: {range: 10m}
over: {rows: all, ttl: 7d}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millwheel.core.pipeline.work import OverSpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Choice,
    Duration,
    Field,
    FilePart,
    Kind,
    Number,
    Own,
)
from millwheel.language.spec.reading.reader import NodeReader

_MOST = 10_000_000
"""The most records of a look-back: its results merge a part for each few hundred of them."""
_EXAMPLE = "{rows: 10}"
_ALL = Choice(("all",), lambda word: None)


def _or_all(kind: Number | Duration) -> Own:
    """All records, which is None, or a number of them, or a time."""

    def read(reader: NodeReader, node: YamlNode) -> Any:
        chosen: Kind = _ALL if node.is_scalar and node.text == "all" else kind
        return chosen.read(reader, node)

    return Own((kind, _ALL), read)


OVER = FilePart(
    _EXAMPLE,
    {
        "rows": Field(
            "rows",
            _or_all(Number(1, _MOST)),
            "so many records of the key: this one and those before it, in the order of their times;"
            " `all`: each one before it",
        ),
        "range": Field(
            "range",
            _or_all(Duration()),
            "the records of the key that lie at most so far before this one, those of its own time"
            " included; `all`: each one before it, and those of its time",
        ),
        "ttl": Field(
            "ttl_us",
            Duration(1),
            "with `rows` or `all`: a key without a record for so long (event time) begins anew, and"
            " its state is removed",
            default="never",
        ),
    },
)
_NOT_WITH = {
    "window": "its look-back is that of each record",
    "trigger": "each record has one result",
    "accumulation": "each record has one result",
    "allowed_lateness": "a late record comes behind those that were there",
    "output_time": "a result has the time of its record",
    "late": "a late record comes behind those that were there",
    "queryable": "nothing is kept to be asked",
    "order_by": "its records come in order anyway",
    "then": "its results are records; make fields of them with map in a computation behind this",
    "having": "its results are records; choose among them with filter in a computation behind this",
}


def check_over(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], others: Sequence[str]
) -> None:
    """Notes what a computation with ``over`` cannot have, and what it lacks. ``others``: the other
    forms that it has."""
    for name in others:
        reader.bad(
            fields[name],
            f"a computation does one of over and {name}; make two computations of it, one that"
            " consumes the output of the other",
        )
    for name, why in _NOT_WITH.items():
        if name in fields:
            reader.bad(fields[name], f"{name} does not go with over: {why}; leave it out")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(
            fields["productions"],
            "weak productions leave before they are durable, and after a crash the records of a key"
            " could come due in other parts, under other names; leave it out",
        )
    for name, example in (("aggregate", "aggregate: {mean: {mean: price}}"), ("output", "")):
        if name not in fields:
            reader.missing(
                node,
                name,
                f"over adds aggregates to each record; write for example {example}"
                if example
                else "nobody could see the results; write output: STREAM",
            )


def read_over(reader: NodeReader, node: YamlNode | None) -> OverSpec | None:
    """The look-back; None if there is none, or it cannot be read."""
    values = OVER.read(reader, node)
    if node is None or not node.is_map:
        return None
    units = [name for name in ("rows", "range") if name in node.value]
    if len(units) == 2:
        reader.bad(
            node.value["range"],
            "a look-back has either so many rows or a range of time; leave out rows or range",
        )
    elif not units:
        reader.missing(
            node,
            "rows",
            "which records before it count; write for example rows: 10, or range: 10m",
        )
    elif units[0] in values:
        size, by_rows = values[units[0]], units == ["rows"]
        ttl_us = values.get("ttl_us")
        if ttl_us is None or by_rows or size is None:
            return OverSpec(by_rows=by_rows, size=size, ttl_us=ttl_us)
        reader.bad(
            node.value["ttl"],
            "records leave the range by themselves, and then the state of their key goes; leave"
            " ttl out",
        )
    return None
