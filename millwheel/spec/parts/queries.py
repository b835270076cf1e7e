"""``queries:``, named formulas over what computations keep: ``cpc: {formula: clicks.spend / clicks.n, window: 1h}``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from millwheel.core.pipeline.spec import QuerySpec
from millwheel.queries.formulas import formula_of
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

FIELDS = ("formula", "window", "key", "keys")
_EXAMPLE = "{formula: clicks.spend / clicks.n, window: 1h}"


def read_queries(reader: NodeReader, node: YamlNode | None) -> tuple[QuerySpec, ...]:
    """All named queries that can be read."""
    return tuple(_queries(reader, node))


def _queries(reader: NodeReader, node: YamlNode | None) -> Iterator[QuerySpec]:
    for name, child in reader.entries(node, f"{{cpc: {_EXAMPLE}}}").items():
        reader.check_name(child, name, "query")
        fields = reader.fields(child, FIELDS, _EXAMPLE)
        if "formula" not in fields:
            if child.is_map:
                reader.missing(child, "formula", f"write for example {_EXAMPLE}")
            continue
        formula = reader.expression(fields["formula"], "clicks.spend / clicks.n")
        spec = QuerySpec(
            name,
            formula,
            reader.duration(fields["window"], 1, 1) if "window" in fields else None,
            _names(reader, fields.get("key")),
            {each: _names(reader, one) for each, one in reader.entries(fields.get("keys"), "{clicks: ad}").items()},
            reader.where(child),
        )
        if formula and reader.attempt(fields["formula"], partial(formula_of, spec)) is not None:
            yield spec


def _names(reader: NodeReader, node: YamlNode | None) -> tuple[str, ...]:
    return () if node is None else tuple(reader.text(item, "ad") for item in reader.items(node))
