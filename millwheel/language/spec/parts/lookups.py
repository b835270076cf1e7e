"""``enrich: {lookup: …}`` of a computation.

enrich: {lookup: {redis: {url: …, key: "item:{item}"}}, as: item_info, cache: {size: 10000, ttl:
5m}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.connect.built_in import LOOKUPS
from millwheel.connect.kinds import known_lookups
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import LookupSpec
from millwheel.language.spec.parts.joins import MISSING, is_lookup, key_fields
from millwheel.language.spec.reading.kinds import Kinds, read_kind
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    MERGED,
    Duration,
    Entries,
    ExpressionText,
    Field,
    FilePart,
    Flag,
    Items,
    Number,
    Own,
    Text,
)
from millwheel.language.spec.reading.reader import NodeReader

_BOTH = "a cache needs both a size and a ttl; write for example cache: {size: 10000, ttl: 5m}"
CACHE = FilePart(
    "{size: 10000, ttl: 5m}",
    {
        "size": Field("cache_size", Number(1, 100_000_000), "how many answers are kept", _BOTH),
        "ttl": Field("cache_ttl_us", Duration(1), "for how long", _BOTH),
        "absent": Field("cache_absent", Flag(), "whether absent entries are kept as well"),
    },
    LookupSpec(""),
)


def _added(reader: NodeReader, node: YamlNode) -> dict[str, str]:
    """``[price, title]`` or ``{cents: price}``: new name to name in the answer."""
    if isinstance(node.value, dict):
        return {name: reader.text(child, "price") for name, child in node.value.items()}
    names = [reader.text(item, "price") for item in reader.items(node)]
    return {name: name for name in names if name}


LOOKUP = FilePart(
    '{lookup: {redis: {url: "redis://127.0.0.1:6379/0", key: "item:{item}"}}, as: info}',
    {
        "lookup": Field("", Own(("lookup",)), "the system that is asked"),
        "by": Field(
            "by",
            Items(ExpressionText("item")),
            "expressions that make the key; without them those that the lookup names",
        ),
        "as": Field("name", Text("info"), "the field that gets the whole answer"),
        "fields": Field(
            "fields",
            Own((Items(Text("price")), Entries(Text("price"), "{cents: price}")), _added),
            "fields of the answer that become fields of the record",
        ),
        "missing": MISSING,
        "batch": Field("batch", Number(1, 1_000_000), "how many keys one request has at most"),
        "cache": Field(MERGED, CACHE, "answers that are kept"),
    },
    LookupSpec(""),
)


def read_lookup(
    reader: NodeReader, fields: Mapping[str, YamlNode], inputs: Sequence[InputSpec]
) -> LookupSpec | None:
    """The lookup of a computation; None if there is none, or it cannot be read."""
    enrich_node = fields.get("enrich")
    if enrich_node is None or not is_lookup(enrich_node):
        return None
    for name in ("window", "order_by"):
        if name in fields:
            reader.bad(
                fields[name],
                f"a lookup handles one record at a time; write {name} in another computation",
            )
    parts = LOOKUP.nodes(reader, enrich_node)
    kind = read_kind(reader, parts["lookup"], Kinds("lookup", LOOKUPS, known_lookups), "")
    if kind is None:
        return None
    values = LOOKUP.values(reader, parts)
    name, added = values.get("name", ""), values.get("fields", {})
    if bool(name) == bool(added):
        reader.bad(
            enrich_node,
            "write either as: NAME, the field that gets the answer, or fields: [a, b], fields of"
            " the answer",
        )
    keys = [field for each in inputs if each.key.plain for field in key_fields(each)]
    for key_name in {name, *added} & set(keys):
        where = parts.get("as") or parts.get("fields") or enrich_node
        reader.bad(where, f"{key_name!r} would replace the key of the records; choose another name")
    return LookupSpec(kind.name, kind.options, **values)
