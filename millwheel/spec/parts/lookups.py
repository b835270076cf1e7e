"""``enrich: {lookup: …}`` of a computation.

enrich: {lookup: {redis: {url: …, key: "item:{item}"}}, as: item_info, cache: {size: 10000, ttl: 5m}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.connectors.lookups import BUILT_IN, known_lookups
from millwheel.core.pipeline.spec import InputSpec, LookupSpec, Missing
from millwheel.spec.parts.joins import is_lookup, key_fields
from millwheel.spec.reading.kinds import Kinds, read_kind
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader

FIELDS = ("lookup", "by", "as", "fields", "missing", "cache", "batch")
_LOOKUP = '{lookup: {redis: {url: "redis://127.0.0.1:6379/0", key: "item:{item}"}}, as: info}'
_MOST_CACHED, _MOST_AT_ONCE = 100_000_000, 1_000_000
_MOST_AT_ONCE_DEFAULT = 10_000  # keys per request: in practice the most that a bundle has
_CACHE = "{size: 10000, ttl: 5m}"


def read_lookup(reader: NodeReader, fields: Mapping[str, YamlNode], inputs: Sequence[InputSpec]) -> LookupSpec | None:
    """The lookup of a computation; None if there is none, or it cannot be read."""
    given = fields.get("enrich")
    if given is None or not is_lookup(given):
        return None
    for name in ("window", "order_by"):
        if name in fields:
            reader.bad(fields[name], f"a lookup handles one record at a time; write {name} in another computation")
    parts = reader.fields(given, FIELDS, _LOOKUP)
    kind = read_kind(reader, parts["lookup"], Kinds("lookup", BUILT_IN, known_lookups), "")
    if kind is None:
        return None
    name, added = reader.text(parts.get("as"), "info"), _added(reader, parts.get("fields"))
    if bool(name) == bool(added):
        reader.bad(
            given, "write either as: NAME, the field that gets the answer, or fields: [a, b], fields of the answer"
        )
    keys = [field for each in inputs for field in key_fields(each)]
    for taken in {name, *added} & set(keys):
        where = parts.get("as") or parts.get("fields") or given
        reader.bad(where, f"{taken!r} would replace the key of the records; choose another name")
    size, ttl_us, absent = _cache(reader, parts.get("cache"))
    return LookupSpec(
        kind.name,
        kind.options,
        _texts(reader, parts.get("by")),
        name,
        added,
        Missing(reader.choice(parts.get("missing"), [each.value for each in Missing], "keep")),
        size,
        ttl_us,
        absent,
        reader.number(parts.get("batch"), _MOST_AT_ONCE_DEFAULT, 1, _MOST_AT_ONCE) or _MOST_AT_ONCE_DEFAULT,
    )


def _texts(reader: NodeReader, node: YamlNode | None) -> tuple[str, ...]:
    if node is None:
        return ()
    return tuple(text for item in reader.items(node) if (text := reader.expression(item, "item")))


def _added(reader: NodeReader, node: YamlNode | None) -> dict[str, str]:
    """``[price, title]`` or ``{cents: price}``: new name to name in the answer."""
    if node is None:
        return {}
    if isinstance(node.value, dict):
        return {name: reader.text(child, "price") for name, child in node.value.items()}
    names = [reader.text(item, "price") for item in reader.items(node)]
    return {name: name for name in names if name}


def _cache(reader: NodeReader, node: YamlNode | None) -> tuple[int, int, bool]:
    """Size, time to live in µs, and whether absence is cached."""
    if node is None:
        return 0, 0, True
    parts = reader.fields(node, ("size", "ttl", "absent"), _CACHE)
    for name in ("size", "ttl"):
        if name not in parts and node.is_map:
            reader.missing(node, name, f"a cache needs both a size and a ttl; write for example cache: {_CACHE}")
    size = reader.number(parts.get("size"), 0, 1, _MOST_CACHED) or 0
    return size, reader.duration(parts.get("ttl"), 0, 1), reader.flag(parts.get("absent"), True)
