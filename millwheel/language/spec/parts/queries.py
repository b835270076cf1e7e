"""``queries:``, named formulas over what computations keep: ``cpc: {formula: clicks.spend /
clicks.n, window: 1h}``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from millwheel.core.expressions.formulas import formula_of
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Duration,
    Entries,
    ExpressionText,
    Field,
    FilePart,
    Items,
    Text,
)
from millwheel.language.spec.reading.reader import NodeReader

QUERY = FilePart(
    "{formula: clicks.spend / clicks.n, window: 1h}",
    {
        "formula": Field(
            "formula",
            ExpressionText("clicks.spend / clicks.n"),
            "over COMPUTATION.VALUE of several computations",
            "write for example {formula: clicks.spend / clicks.n, window: 1h}",
        ),
        "window": Field("window_us", Duration(1), "the window that is asked for"),
        "key": Field("key", Items(Text("ad")), "the names of the parts of its key"),
        "keys": Field(
            "keys",
            Entries(Items(Text("ad")), "{clicks: ad}"),
            "the parts that are the key of a computation, if not all of them",
        ),
    },
    QuerySpec("", ""),
)


def read_queries(reader: NodeReader, node: YamlNode | None) -> tuple[QuerySpec, ...]:
    """All named queries that can be read."""
    return tuple(_queries(reader, node))


def _queries(reader: NodeReader, node: YamlNode | None) -> Iterator[QuerySpec]:
    for name, child in reader.entries(node, f"{{cpc: {QUERY.example}}}").items():
        reader.check_name(child, name, "query")
        values = QUERY.read(reader, child)
        formula = values.get("formula")
        if formula is None:
            continue
        if (
            reader.attempt(
                child.value["formula"], partial(formula_of, formula, reader.language.compile)
            )
            is not None
        ):
            yield QuerySpec(name=name, where=reader.where(child), **values)
