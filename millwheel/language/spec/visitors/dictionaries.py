"""``dictionary:``, a whole number for each different value of a field.

dictionary: {of: device_id, as: id, partitions: 4096, ttl: 30d}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from millwheel.core.pipeline.dictionaries import MOST_PARTITIONS, TTL_PARTS
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import Duration, Field, FilePart, Number, Text
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
        reader.missing(node, "output", "nobody could see the numbers; write output: STREAM")
    if "productions" in fields and fields["productions"].value == "weak":
        reader.bad(
            fields["productions"],
            "weak productions leave before they are durable, and after a crash a value could get"
            " another number; leave it out",
        )
