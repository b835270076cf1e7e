"""``slices:``, aggregates per slice of time that are kept for queries, and ``queries:``, named
formulas over values that computations keep.

slices: {every: 5m, keep: 30d, levels: [5m, 1h, 1d], time_zone: Europe/Paris, ttl: 7d}
queries: {cpc: {formula: clicks.spend / clicks.n, window: 1h}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from millwheel.core.expressions.language import formula_of
from millwheel.core.model.times import duration_text
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.core.slices.levels import MOST_SLICES, default_levels, slice_levels
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

ANSWER_FIELDS = ("covered_start", "covered_end", "watermark", "complete")
"""The fields of every answer beside the aggregates."""
_NEEDED = "write for example slices: {every: 5m, keep: 30d}"
SLICES = FilePart(
    "{every: 5m, keep: 30d}",
    {
        "every": Field("every_us", Duration(1), "the size of the finest slices", _NEEDED),
        "keep": Field(
            "keep_us", Duration(1), "how far behind the watermark a slice is kept", _NEEDED
        ),
        "levels": Field("levels_us", Items(Duration(1)), "the sizes of slices, finest first"),
        "time_zone": Field("time_zone", Text("Europe/Paris"), "the clock that days follow"),
        "ttl": Field("ttl_us", Duration(1), "a key without a record for so long loses its slices"),
    },
)
_NOT_WITH = (
    "window",
    "trigger",
    "accumulation",
    "allowed_lateness",
    "output_time",
    "output",
    "order_by",
    "queryable",
)
_SECOND_US = 1_000_000  # Fixed: µs


def read_slices(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode]
) -> SlicesSpec | None:
    """The slices of a computation, as far as they can be read; None where it has none."""
    slices_node = fields.get("slices")
    if slices_node is None:
        return None
    if "aggregate" not in fields:
        reader.missing(
            node, "aggregate", "slices keep aggregates; write for example aggregate: {n: count}"
        )
    nodes = SLICES.nodes(reader, slices_node)
    values = SLICES.values(reader, nodes)
    every_us = values.pop("every_us", 60 * _SECOND_US)
    keep_us = values.get("keep_us", every_us)
    sizes = values.get("levels_us", default_levels(every_us, keep_us))
    if sizes[:1] != (every_us,):
        text = f"the first level is every: write levels: [{duration_text(every_us)}, …]"
        reader.bad(nodes.get("levels", slices_node), text)
    _check(reader, slices_node, nodes, values.get("ttl_us"), every_us, keep_us)
    zone = values.get("time_zone", "")
    reader.attempt(
        nodes.get("levels", slices_node), lambda: slice_levels(sizes or (every_us,), zone)
    )
    return SlicesSpec(**{**values, "keep_us": keep_us, "levels_us": sizes or (every_us,)})


def _check(
    reader: NodeReader,
    node: YamlNode,
    fields: Mapping[str, YamlNode],
    ttl_us: int | None,
    every_us: int,
    keep_us: int,
) -> None:
    if keep_us < every_us:
        reader.bad(
            fields.get("keep", node), "is shorter than one slice; keep at least as long as every"
        )
    if keep_us // every_us > MOST_SLICES:
        reader.bad(
            fields.get("every", node),
            f"makes {keep_us // every_us} slices for a key, more than {MOST_SLICES}; write longer"
            " slices, or keep them for a shorter time",
        )
    if ttl_us is not None and ttl_us < every_us:
        reader.bad(fields["ttl"], "is shorter than one slice; write at least every")


def check_slices(reader: NodeReader, fields: Mapping[str, YamlNode], others: Sequence[str]) -> None:
    """Note fields that a computation with slices cannot have."""
    for name in [*others, *_NOT_WITH]:
        if name in fields and name != "slices":
            why = (
                "slices emit nothing: they are asked"
                if name == "output"
                else "make two computations of it"
            )
            reader.bad(fields[name], f"{name} is not for computations with slices; {why}")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(fields["productions"], "slices emit nothing that could be weak; leave it out")
    if "late" in fields and fields["late"].value == "refire":
        reader.bad(
            fields["late"],
            "slices emit nothing again; write drop, or side:STREAM for records older than keep",
        )


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
