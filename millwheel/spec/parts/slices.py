"""``slices:``, aggregates per slice of time that are kept to be asked.

slices: {every: 5m, keep: 30d, levels: [5m, 1h, 1d], time_zone: Europe/Paris, ttl: 7d}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.core.model.times import duration_text
from millwheel.core.pipeline.spec import SlicesSpec
from millwheel.core.slices.levels import MOST_SLICES, default_levels, slice_levels
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

ANSWER_FIELDS = ("covered_start", "covered_end", "watermark", "complete")
"""The fields of every answer beside the aggregates."""
FIELDS = ("every", "keep", "levels", "time_zone", "ttl")
_EXAMPLE = "{every: 5m, keep: 30d}"
_NOT_WITH = ("window", "trigger", "accumulation", "allowed_lateness", "output_time", "output", "order_by", "queryable")
_SECOND_US = 1_000_000  # Fixed: µs


def read_slices(reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode]) -> SlicesSpec | None:
    """The slices of a computation, as far as they can be read; None where it has none."""
    given = fields.get("slices")
    if given is None:
        return None
    if "aggregate" not in fields:
        reader.missing(node, "aggregate", "slices keep aggregates; write for example aggregate: {n: count}")
    found = reader.fields(given, FIELDS, _EXAMPLE)
    for name in ("every", "keep"):
        if name not in found and given.is_map:
            reader.missing(given, name, f"write for example slices: {_EXAMPLE}")
    every_us = reader.duration(found.get("every"), 60 * _SECOND_US, 1)
    keep_us = reader.duration(found.get("keep"), every_us, 1)
    sizes = _levels(reader, found.get("levels"), every_us, keep_us)
    zone = reader.text(found.get("time_zone"), "Europe/Paris")
    ttl_us = reader.duration(found["ttl"], keep_us, 1) if "ttl" in found else None
    _check(reader, given, found, every_us, keep_us)
    reader.attempt(found.get("levels", given), lambda: slice_levels(sizes, zone))
    return SlicesSpec(sizes, keep_us, zone, ttl_us)


def _levels(reader: NodeReader, node: YamlNode | None, every_us: int, keep_us: int) -> tuple[int, ...]:
    if node is None:
        return default_levels(every_us, keep_us)
    sizes = tuple(reader.duration(item, every_us, 1) for item in reader.items(node))
    if not sizes or sizes[0] != every_us:
        reader.bad(node, f"the first level is every: write levels: [{duration_text(every_us)}, …]")
    return sizes or (every_us,)


def _check(reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], every_us: int, keep_us: int) -> None:
    if keep_us < every_us:
        reader.bad(fields.get("keep", node), "is shorter than one slice; keep at least as long as every")
    if keep_us // every_us > MOST_SLICES:
        reader.bad(
            fields.get("every", node),
            f"makes {keep_us // every_us} slices for a key, more than {MOST_SLICES}; write longer slices, or keep them "
            "for a shorter time",
        )
    if "ttl" in fields and reader.duration(fields["ttl"], every_us, 1) < every_us:
        reader.bad(fields["ttl"], "is shorter than one slice; write at least every")


def check_slices(reader: NodeReader, fields: Mapping[str, YamlNode], others: Sequence[str]) -> None:
    """Note fields that a computation with slices cannot have."""
    for name in [*others, *_NOT_WITH]:
        if name in fields and name != "slices":
            why = "slices emit nothing: they are asked" if name == "output" else "make two computations of it"
            reader.bad(fields[name], f"{name} is not for computations with slices; {why}")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(fields["productions"], "slices emit nothing that could be weak; leave it out")
    if "late" in fields and fields["late"].value == "refire":
        reader.bad(fields["late"], "slices emit nothing again; write drop, or side:STREAM for records older than keep")
