"""``uv:``, the exact number of unique visitors of the day so far, every minute.

uv: {of: device_id, every: 1m, per: 1d, time_zone: Asia/Shanghai, as: visitors, ttl: 2d}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.pipeline.dictionaries import MOST_PARTITIONS
from millwheel.core.pipeline.spec import AggregateSpec, InputSpec, KeyKind, WindowSpec
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader
from millwheel.spec.visitors.dictionaries import PARTITIONS, read_ttl

FIELDS = ("uv",)
OPTIONS = ("of", "every", "per", "time_zone", "as", "emit", "partitions", "ttl", "approximate")
DEFAULT_NAME = "visitors"
_EXAMPLE = "{of: device_id, every: 1m}"
_DAY_US = 86_400_000_000  # Fixed: µs
_REASONS = {
    "allowed_lateness": "a late visitor would change every count of its day that was emitted since, one for each "
    "`every`; to wait longer for records, raise max_delay of the stream",
    "trigger": "a count is emitted as the watermark passes each `every`, not before",
    "skew": "the dictionary in front divides its work by visitor, and counts are bitmaps, which are cheap for hot keys",
}
_TAKEN = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class UniqueVisitors:
    """What is counted: a window and an aggregate. ``partitions`` and ``ttl_us``: of the dictionary; 0 partitions for
    approximate counts."""

    window: WindowSpec
    aggregate: AggregateSpec
    partitions: int
    ttl_us: int | None


def read_visitors(reader: NodeReader, node: YamlNode | None, inputs: tuple[InputSpec, ...]) -> UniqueVisitors | None:
    """None if there is none, or it cannot be read."""
    if node is None:
        return None
    fields = reader.fields(node, OPTIONS, _EXAMPLE)
    for name in ("of", "every"):
        if name not in fields and node.is_map:
            reader.missing(node, name, f"write for example uv: {_EXAMPLE}")
    of, name = reader.text(fields.get("of"), "device_id"), reader.text(fields.get("as"), "visitors") or DEFAULT_NAME
    if of and not of.isidentifier():
        reader.bad(fields["of"], f"{of[:80]!r} is no field; make one in a computation before (map: …)")
    if not name.isidentifier() or name in (*_TAKEN, *(part for given in inputs for part in given.key.names)):
        reader.bad(
            fields.get("as", node),
            f"{name[:80]!r} cannot be the name of the count: every row has this field, or none can",
        )
    every_us = reader.duration(fields.get("every"), _DAY_US, 1)
    options = {"size_us": reader.duration(fields.get("per"), _DAY_US, 1), "every_us": every_us}
    zone = reader.text(fields.get("time_zone"), "Europe/Paris")
    changes = reader.choice(fields.get("emit"), ("all", "changes"), "all") == "changes"
    window = WindowSpec("cumulative", {**options, **({"time_zone": zone} if zone else {}), "changes": changes})
    reader.attempt(node, lambda: window_from_spec(window))
    partitions = reader.number(fields.get("partitions"), PARTITIONS, 1, MOST_PARTITIONS) or PARTITIONS
    near = "approximate" in fields and reader.flag(fields["approximate"], False)
    ttl_us = read_ttl(reader, fields.get("ttl"))
    if ttl_us is not None:
        _check_ttl(reader, fields, ttl_us, options["size_us"], zone, near)
    aggregate = AggregateSpec(name, "approx_count_distinct" if near else "count_distinct", of)
    return UniqueVisitors(window, aggregate, 0 if near else partitions, ttl_us) if of else None


def _check_ttl(
    reader: NodeReader, fields: Mapping[str, YamlNode], ttl_us: int, per_us: int, zone: str, near: bool
) -> None:
    """Note a time to live in which a visitor could be forgotten and counted again within one scope."""
    if near:
        reader.bad(fields["ttl"], "an approximate count has no dictionary that could forget; leave ttl out")
    elif ttl_us < per_us:
        reader.bad(
            fields["ttl"],
            "is shorter than `per`: a visitor would be forgotten, get another number and be counted twice; write at "
            "least `per`",
        )
    elif zone and ttl_us < per_us + _DAY_US:
        reader.bad(
            fields["ttl"],
            "must be a day longer than `per` where there is a time_zone: a day in which clocks are set back has more "
            "than 24 hours, and a visitor could be counted twice in it",
        )


def check_visitors(
    reader: NodeReader, fields: Mapping[str, YamlNode], inputs: tuple[InputSpec, ...], others: Sequence[str]
) -> None:
    """Note fields that unique visitors cannot have."""
    for name in others:
        reason = _REASONS.get(name, "uv has its own window and aggregate")
        reader.bad(fields[name], f"{name} is not for uv: {reason}; leave it out")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(
            fields["productions"], "visitors are numbered by a dictionary, which needs strong ones; leave it out"
        )
    if len(inputs) != 1 or inputs[0].key.kind is KeyKind.RECORD:
        reader.bad(
            fields.get("input", fields["uv"]),
            "uv counts by the fields of one input; write for example input: {hits: {key: country}}",
        )
