"""``dictionary:``, a whole number for each different value of a field; and ``uv:``, which counts
such numbers: the unique visitors of the day so far, exactly, every minute.

dictionary: {of: device_id, as: id, partitions: 4096, ttl: 30d}
uv: {of: device_id, every: 1m, per: 1d, time_zone: Asia/Shanghai, as: visitors, ttl: 2d}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.pipeline.dictionaries import MOST_PARTITIONS, TTL_PARTS
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import AggregateSpec, DictionarySpec, NumberingSpec, WindowSpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    Choice,
    Duration,
    Field,
    FilePart,
    Flag,
    Number,
    Text,
)
from millwheel.language.spec.reading.reader import NodeReader

_PARTITIONS = 4_096
"""The default: enough to spread over hundreds of cores, and a counter for each is still little."""
PARTITIONS = Field(
    "partitions", Number(1, MOST_PARTITIONS), "into how many parts the values are divided"
)
TTL = Field("ttl_us", Duration(TTL_PARTS), "a value that no record had for so long is forgotten")
_NEEDED = "write for example dictionary: {of: device_id, as: id}"
DICTIONARY = FilePart(
    "{of: device_id, as: id}",
    {
        "of": Field("of", Text("device_id"), "the field whose values get numbers", _NEEDED),
        "as": Field("name", Text("id"), "the field that holds the number", _NEEDED),
        "partitions": PARTITIONS,
        "ttl": TTL,
    },
    DictionarySpec("", "", _PARTITIONS),
)


def read_dictionary(reader: NodeReader, node: YamlNode | None) -> DictionarySpec | None:
    """None if there is none, or it cannot be read."""
    values = DICTIONARY.read(reader, node)
    name = values.get("name", "id")
    if not name.isidentifier():
        assert node is not None
        reader.bad(
            node.value["as"],
            f"{name[:80]!r} cannot be the name of a field: write letters, digits and _",
        )
    return replace(DICTIONARY.defaults, **values) if {"of", "name"} <= values.keys() else None


def partitioned_inputs(
    inputs: tuple[InputSpec, ...], dictionary: DictionarySpec | None
) -> tuple[InputSpec, ...]:
    """The inputs of a dictionary, whose keys are its partitions."""
    if dictionary is None:
        return inputs
    key = KeySpec(KeyKind.FIELD, (dictionary.of,), partitions=dictionary.partitions)
    return tuple(replace(each, key=key) for each in inputs)


def check_dictionary(
    reader: NodeReader,
    node: YamlNode,
    fields: Mapping[str, YamlNode],
    inputs: tuple[InputSpec, ...],
    others: Sequence[str],
) -> None:
    """Note fields that a dictionary cannot have."""
    for name in others:
        reader.bad(
            fields[name],
            f"a computation does one of dictionary and {name}; make two computations of it",
        )
    if any(each.key.kind is not KeyKind.RECORD for each in inputs):
        reader.bad(
            fields["input"],
            "a dictionary has its own key, the partition of the value; leave key out",
        )
    if "output" not in fields:
        reader.missing(node, "output", "nothing could read the numbers; write output: STREAM")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(
            fields["productions"],
            "weak productions leave before they are durable, and after a crash a value could get"
            " another number; leave it out",
        )


_NAME = "visitors"
_UV_NEEDED = "write for example uv: {of: device_id, every: 1m}"
UV = FilePart(
    "{of: device_id, every: 1m}",
    {
        "of": Field("of", Text("device_id"), "the field that identifies a visitor", _UV_NEEDED),
        "every": Field("every_us", Duration(1), "the time between two counts", _UV_NEEDED),
        "per": Field("size_us", Duration(1), "the time after which counting begins anew"),
        "time_zone": Field("time_zone", Text("Europe/Paris"), "the clock that days follow"),
        "as": Field("name", Text("visitors"), "the field that holds the count"),
        "emit": Field(
            "changes",
            Choice(("all", "changes"), lambda word: word == "changes"),
            "whether a count that has not changed is emitted",
        ),
        "partitions": PARTITIONS,
        "ttl": TTL,
        "approximate": Field("near", Flag(), "whether counts may be a few percent off"),
    },
)
_DAY_US = 86_400_000_000  # Fixed: µs
_REASONS = {
    "allowed_lateness": (
        "a late visitor would change every count of its day that was emitted since, one for each "
        "`every`; to wait longer for records, raise max_delay of the stream"
    ),
    "trigger": "a count is emitted as the watermark passes each `every`, not before",
    "skew": (
        "the dictionary in front divides its work by visitor, and counts are bitmaps, which are"
        " cheap for hot keys"
    ),
}
_TAKEN = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class UniqueVisitors:
    """A count of visitors: a window and an aggregate. ``numbered``: by the dictionary in front;
    None for approximate counts."""

    window: WindowSpec
    aggregate: AggregateSpec
    numbered: NumberingSpec | None


def read_visitors(
    reader: NodeReader, node: YamlNode | None, inputs: tuple[InputSpec, ...]
) -> UniqueVisitors | None:
    """None if there is none, or it cannot be read."""
    if node is None:
        return None
    fields = UV.nodes(reader, node)
    values = UV.values(reader, fields)
    of, name = values.get("of", ""), values.get("name", _NAME)
    if of and not of.isidentifier():
        reader.bad(
            fields["of"], f"{of[:80]!r} is not a field; make one in a computation before (map: …)"
        )
    if not name.isidentifier() or name in (
        *_TAKEN,
        *(part for each in inputs for part in each.key.names),
    ):
        reader.bad(
            fields.get("as", node),
            f"{name[:80]!r} cannot be the name of the count: every row has this field, or none can",
        )
    window = _window(values)
    reader.attempt(node, lambda: window_from_spec(window))
    near, ttl_us = values.get("near", False), values.get("ttl_us")
    if ttl_us is not None:
        _check_ttl(reader, fields, ttl_us, window.options, near)
    if not of:
        return None
    aggregate = AggregateSpec(name, "approx_count_distinct" if near else "count_distinct", of)
    partitions = values.get("partitions", DICTIONARY.defaults.partitions)
    return UniqueVisitors(window, aggregate, None if near else NumberingSpec(partitions, ttl_us))


def _window(values: Mapping[str, Any]) -> WindowSpec:
    options = {"size_us": _DAY_US, "every_us": _DAY_US, "changes": False}
    names = ("size_us", "every_us", "time_zone", "changes")
    options |= {name: values[name] for name in names if name in values}
    return WindowSpec("cumulative", options)


def _check_ttl(
    reader: NodeReader,
    fields: Mapping[str, YamlNode],
    ttl_us: int,
    window: Mapping[str, Any],
    near: bool,
) -> None:
    """Note a time to live in which a visitor could be forgotten and counted again within one
    scope."""
    per_us, zone = window["size_us"], window.get("time_zone")
    if near:
        reader.bad(
            fields["ttl"], "an approximate count has no dictionary that could forget; leave ttl out"
        )
    elif ttl_us < per_us:
        reader.bad(
            fields["ttl"],
            "is shorter than `per`: a visitor would be forgotten, get another number and be counted"
            " twice; write at least `per`",
        )
    elif zone and ttl_us < per_us + _DAY_US:
        reader.bad(
            fields["ttl"],
            "must be a day longer than `per` where there is a time_zone: a day in which clocks are"
            " set back has more than 24 hours, and a visitor could be counted twice in it",
        )


def check_visitors(
    reader: NodeReader,
    fields: Mapping[str, YamlNode],
    inputs: tuple[InputSpec, ...],
    others: Sequence[str],
) -> None:
    """Note fields that unique visitors cannot have."""
    for name in others:
        reason = _REASONS.get(name, "uv has its own window and aggregate")
        reader.bad(fields[name], f"{name} is not for uv: {reason}; leave it out")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(
            fields["productions"],
            "visitors are numbered by a dictionary, which needs strong ones; leave it out",
        )
    if len(inputs) != 1 or inputs[0].key.kind is KeyKind.RECORD:
        reader.bad(
            fields.get("input", fields["uv"]),
            "uv counts by the fields of one input; write for example input: {hits: {key: country}}",
        )
