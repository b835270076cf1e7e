"""Rows of a key in order: ``top:``, ``deduplicate:`` with ``keep`` and without a time, and
``over:``, each record with aggregates of itself and of those before it.

top: {by: [price desc, at], k: 10, rank: place}
deduplicate: {keep: last}
over: {rows: 10}
over: {range: 10m}
over: {rows: all, ttl: 7d}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from millwheel.core.aggregates.families.rows import order_of
from millwheel.core.pipeline.work import DeduplicateSpec, OverSpec, TopSpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Choice,
    Duration,
    Field,
    FilePart,
    Items,
    Kind,
    Number,
    Own,
    Text,
)
from millwheel.language.spec.reading.reader import NodeReader

_MOST = 1_000_000
"""The most rows of a key: they are written together at each change."""
_WORDS_LEFT = re.compile(r"\s(asc|desc|nulls)(\s+\w+)?\s*$")
_EXAMPLE = "{by: [price desc, at], k: 10}"


def _rank(reader: NodeReader, node: YamlNode) -> str:
    text = reader.text(node, "place")
    if text and not text.isidentifier():
        reader.bad(node, f"is the name of a field, not {text[:40]!r}; write rank: place")
        return ""
    return text


_TOP = FilePart(
    _EXAMPLE,
    {
        "by": Field(
            "by",
            Items(Text("price desc")),
            "fields or expressions, each with `asc` (the default) or `desc`; among equals the"
            " earliest comes first",
            "what the order is; write for example by: [price desc, at]",
        ),
        "k": Field(
            "k",
            Number(1, _MOST),
            "how many records of each key",
            "how many records of each key; write for example k: 10",
        ),
        "rank": Field(
            "rank",
            Own((Text("place"),), _rank),
            "a field for the place of each record, from 1",
            default="none",
        ),
    },
    TopSpec(),
)
_DEDUPLICATE = FilePart(
    "{by: [client, path], within: 10m}",
    {
        "by": Field(
            "fields", Items(Text("client")), "the fields that copies share; without it, the value"
        ),
        "within": Field(
            "within_us",
            Duration(1),
            "for how long copies are expected, in event time; without it, `keep` decides which"
            " record of each key stays",
        ),
        "keep": Field(
            "",
            Choice(("first", "last")),
            "`last` or, without `within`, `first`: of all records of a key the one with the latest"
            " or the earliest time, [as it changes](pipeline.md#keep)",
            default="`first`",
        ),
    },
    DeduplicateSpec(0),
)
RANKED = {
    "deduplicate": Field("", _DEDUPLICATE, "[which records are copies](pipeline.md#deduplicate)"),
    "top": Field("", _TOP, "[the first records of each key by an order](pipeline.md#top)"),
}
"""The fields of a computation that chooses among the records of a key."""


def check_ranked(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    """Note weak productions: after a crash the changes would differ, and some have counted."""
    copies = fields.get("deduplicate")
    kept = copies is not None and copies.is_map and "within" not in copies.value
    if ("top" in fields or kept) and "productions" in fields:
        if fields["productions"].value == "weak":
            reader.bad(
                fields["productions"],
                "weak productions leave before they are durable, and after a crash other rows could"
                " be taken back than those that have left; leave it out",
            )


def read_deduplicate(reader: NodeReader, node: YamlNode | None) -> DeduplicateSpec | TopSpec | None:
    """None if there is none, or it cannot be read."""
    values = _DEDUPLICATE.read(reader, node)
    if node is None or not node.is_map:
        return None
    keep = _DEDUPLICATE.fields["keep"].value(reader, node.value.get("keep"), "")
    if keep == "last" and "within_us" in values:
        reader.bad(
            node.value["within"],
            "keep: last is the last record of a key for ever; leave within out",
        )
    elif keep and "within_us" not in values and "fields" in values:
        reader.bad(
            node.value["by"],
            f"keep: {keep} is one record of each key; leave by out, and name its fields in the key"
            " as well",
        )
    elif keep and "within_us" not in values:
        return TopSpec(latest=keep == "last")
    elif "within_us" in values:
        return DeduplicateSpec(**values)
    elif "within" not in node.value and "keep" not in node.value:
        reader.missing(
            node,
            "within",
            "for how long copies are expected; write for example within: 10m, or keep: first for"
            " one record of each key",
        )
    return None


def read_top(reader: NodeReader, node: YamlNode | None) -> TopSpec | None:
    """None if there is none, or it cannot be read."""
    values: dict[str, Any] = _TOP.read(reader, node)
    if node is None or not {"by", "k"} <= values.keys():
        return None
    compiled = [
        reader.attempt(node.value["by"], partial(_compiled, reader, text)) for text in values["by"]
    ]
    return TopSpec(**values) if compiled and None not in compiled else None


def _compiled(reader: NodeReader, text: str) -> Any:
    """The expression of an order. Raises ValueError where it is none."""
    order = order_of(text)
    try:
        return reader.language.compile(order.text)
    except ValueError as ex:
        if not _WORDS_LEFT.search(order.text):
            raise
        raise ValueError(
            f"{text!r} is not an order: behind its expression stand asc or desc, and nulls first or"
            " nulls last, such as 'price desc nulls last'"
        ) from ex


_MOST_BEFORE = 10_000_000
"""The most records of a look-back: its results merge a part for each few hundred of them."""
_LOOK_BACK = "{rows: 10}"
_ALL = Choice(("all",), lambda word: None)


def _or_all(kind: Number | Duration) -> Own:
    """All records, which is None, or a number of them, or a time."""

    def read(reader: NodeReader, node: YamlNode) -> Any:
        chosen: Kind = _ALL if node.is_scalar and node.text == "all" else kind
        return chosen.read(reader, node)

    return Own((kind, _ALL), read)


OVER = FilePart(
    _LOOK_BACK,
    {
        "rows": Field(
            "rows",
            _or_all(Number(1, _MOST_BEFORE)),
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
    """Note forbidden and missing options of a computation with ``over``. ``others``: the other
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
                else "nothing could read the results; write output: STREAM",
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
