"""Decides whether values of one type can be read as another, by the JSON schemas that msgspec makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = frozenset({"title", "description", "default", "examples", "$defs"})
_DEEPEST = 20  # levels of a type that are compared
Schema = Mapping[str, Any]


def unreadable(old: Schema, new: Schema) -> str:
    """Why some value of ``old`` cannot be read as ``new``; "" if all can. A reason in case of doubt."""
    return _Reading(old, new).why(old, new, "the value", 0)


class _Reading:
    """One comparison, with the definitions to which references point."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old.get("$defs", {}), new.get("$defs", {})

    def why(self, old: Schema, new: Schema, what: str, depth: int) -> str:
        old, new = _bare(_followed(old, self._old)), _bare(_followed(new, self._new))
        if depth > _DEEPEST:
            return f"{what} is nested too deeply to be compared"
        if not new or (old == new and "$ref" not in str(old)):
            return ""
        alternatives = old.get("anyOf")
        if alternatives is not None:
            return next(filter(None, (self.why(each, new, what, depth + 1) for each in alternatives)), "")
        if "anyOf" in new:
            reasons = [self.why(old, each, what, depth + 1) for each in new["anyOf"]]
            return "" if "" in reasons else f"{what} was {_words(old)}, and none of {_words(new)} can read that"
        if "enum" in old and "enum" in new:
            gone = [each for each in old["enum"] if each not in new["enum"]]
            return f"{what} may hold {gone[0]!r}, which the new type does not accept" if gone else ""
        if old.get("type") == "integer" and new == {"type": "number"}:
            return ""
        if old.get("type") != new.get("type") or not old:
            return f"{what} was {_words(old)} and becomes {_words(new)}"
        if "properties" in old or "properties" in new:
            return self._object(old, new, what, depth)
        if old.get("type") == "object":
            return self._map(old, new, what, depth)
        if old.get("type") == "array":
            return self._array(old, new, what, depth)
        return "" if old == new else f"{what} was {_words(old)} and becomes {_words(new)}"

    def _object(self, old: Schema, new: Schema, what: str, depth: int) -> str:
        before, after = old.get("properties"), new.get("properties")
        if before is None or after is None:
            return f"{what} was {_words(old)} and becomes {_words(new)}"
        for name in new.get("required", ()):
            if name not in old.get("required", ()):
                return f"{what} gets the field {name!r}, which old values lack; give it a default"
        for name, schema in before.items():
            if name not in after:
                if new.get("additionalProperties") is False:
                    return f"{what} lost the field {name!r}, and the new type forbids unknown fields"
                continue
            reason = self.why(schema, after[name], f"its field {name!r}", depth + 1)
            if reason:
                return reason
        return ""

    def _map(self, old: Schema, new: Schema, what: str, depth: int) -> str:
        before, after = old.get("additionalProperties", {}), new.get("additionalProperties", {})
        if old.get("propertyNames") != new.get("propertyNames"):
            return f"the keys of {what} have another type"
        if not isinstance(before, Mapping) or not isinstance(after, Mapping):
            return "" if before == after else f"{what} was {_words(old)} and becomes {_words(new)}"
        return self.why(before, after, f"an entry of {what}", depth + 1)

    def _array(self, old: Schema, new: Schema, what: str, depth: int) -> str:
        before, after = old.get("prefixItems"), new.get("prefixItems")
        if (before is None) != (after is None):
            return f"{what} was {_words(old)} and becomes {_words(new)}"
        if before is None or after is None:
            return self.why(_item(old), _item(new), f"an item of {what}", depth + 1)
        if new.get("minItems", 0) > old.get("minItems", len(before)):
            return f"{what} has more items now, which old values lack; give the new fields defaults"
        if new.get("maxItems", len(before)) < len(before):
            return f"{what} has fewer items than old values have"
        pairs = enumerate(zip(before, after, strict=False))
        return next(filter(None, (self.why(a, b, f"item {n} of {what}", depth + 1) for n, (a, b) in pairs)), "")


def _item(schema: Schema) -> Schema:
    items = schema.get("items", {})
    return items if isinstance(items, Mapping) else {}


def _followed(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    reference = schema.get("$ref")
    return definitions[reference.rpartition("/")[2]] if isinstance(reference, str) else schema


def _bare(schema: Schema) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in _WORDS}


def _words(schema: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_words(each) for each in schema["anyOf"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "python" in schema:
        return str(schema["python"])
    if not schema:
        return "anything"
    more = {name: value for name, value in schema.items() if name not in ("type", "properties", "required", *_WORDS)}
    return f"{schema.get('type', 'anything')}{f' {more}' if more and len(str(more)) < 80 else ''}"
