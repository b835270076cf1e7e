"""``dictionary:``, a whole number for each different value of a field.

dictionary: {of: device_id, as: id, partitions: 4096, ttl: 30d}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millwheel.core.pipeline.dictionaries import MOST_PARTITIONS, TTL_PARTS
from millwheel.core.pipeline.spec import DictionarySpec, InputSpec, KeyKind, KeySpec
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

FIELDS = ("dictionary",)
OPTIONS = ("of", "as", "partitions", "ttl")
PARTITIONS = 4_096
"""The default: enough to spread over hundreds of cores, and a counter for each is still little."""
_EXAMPLE = "{of: device_id, as: id}"


def read_dictionary(reader: NodeReader, node: YamlNode | None) -> DictionarySpec | None:
    """None if there is none, or it cannot be read."""
    if node is None:
        return None
    fields = reader.fields(node, OPTIONS, _EXAMPLE)
    for name in ("of", "as"):
        if name not in fields and node.is_map:
            reader.missing(node, name, f"write for example dictionary: {_EXAMPLE}")
    of, name = reader.text(fields.get("of"), "device_id"), reader.text(fields.get("as"), "id")
    if name and not name.isidentifier():
        reader.bad(fields["as"], f"{name[:80]!r} cannot be the name of a field: write letters, digits and _")
    partitions = reader.number(fields.get("partitions"), PARTITIONS, 1, MOST_PARTITIONS) or PARTITIONS
    ttl_us = read_ttl(reader, fields.get("ttl"))
    return DictionarySpec(of, name, partitions, ttl_us=ttl_us) if of and name else None


def read_ttl(reader: NodeReader, node: YamlNode | None) -> int | None:
    """How long a value is known that no record has, in µs; None for ever."""
    return None if node is None else reader.duration(node, 0, TTL_PARTS)


def partitioned_inputs(inputs: tuple[InputSpec, ...], dictionary: DictionarySpec | None) -> tuple[InputSpec, ...]:
    """The inputs of a dictionary, whose keys are its partitions."""
    if dictionary is None:
        return inputs
    key = KeySpec(KeyKind.FIELD, (dictionary.of,), partitions=dictionary.partitions)
    return tuple(replace(given, key=key) for given in inputs)


def check_dictionary(
    reader: NodeReader,
    node: YamlNode,
    fields: Mapping[str, YamlNode],
    inputs: tuple[InputSpec, ...],
    others: Sequence[str],
) -> None:
    """Note fields that a dictionary cannot have."""
    for name in others:
        reader.bad(fields[name], f"a computation does one of dictionary and {name}; make two computations of it")
    if any(given.key.kind is not KeyKind.RECORD for given in inputs):
        reader.bad(fields["input"], "a dictionary has its own key, the partition of the value; leave key out")
    if "output" not in fields:
        reader.missing(node, "output", "nobody could see the numbers; write output: STREAM")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(
            fields["productions"],
            "weak productions leave before they are durable, and after a crash a value could get another number; "
            "leave it out",
        )
