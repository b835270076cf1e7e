"""The stored form of the type of a state's values: the form of their bytes, as plain data beside
the state.

JSON schemas do not show it: they have no order of fields, no types of keys, and call several things
a string that are stored differently. A form is a list whose first part names its kind; a class that
contains itself is a reference to a definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from types import FunctionType
from typing import Any

from msgspec import NODEFAULT, inspect

Form = list[Any]


class _Forms:
    """Makes the form of one type, with the definitions of the classes in it."""

    def __init__(self) -> None:
        self.definitions: dict[str, Form] = {}
        self._named: dict[type, str] = {}

    def of(self, kind: inspect.Type) -> Form:
        """The form of a type that msgspec supports."""
        name = type(kind).__name__
        make = _MADE.get(name)
        if make is not None:
            return make(self, kind)
        return [_SCALARS[name], _limits(kind)] if name in _SCALARS else ["python", repr(kind)]

    def defined(self, kind: Any, make: Callable[[], Form]) -> Form:
        """A reference to the form of a class."""
        name = self._named.get(kind.cls)
        if name is None:
            name = self._named[kind.cls] = f"{kind.cls.__qualname__}{len(self._named)}"
            self.definitions[name] = make()
        return ["ref", name]


def stored_form(of: Any) -> dict[str, Any]:
    """The form of a type, with definitions, or its Python name if msgspec does not support it."""
    forms = _Forms()
    try:
        form = forms.of(inspect.type_info(of))
    # names that cannot be resolved, types that msgspec does not support; TypeError for most
    except Exception:
        form = ["python", repr(of)]
    return {"form": form, "definitions": forms.definitions}


_SCALARS = {
    "AnyType": "anything",
    "RawType": "raw bytes",
    "NoneType": "null",
    "BoolType": "boolean",
    "IntType": "integer",
    "FloatType": "number",
    "StrType": "text",
    "BytesType": "bytes",
    "ByteArrayType": "bytes",
    "MemoryViewType": "bytes",
    "DateTimeType": "datetime",
    "TimeType": "time",
    "DateType": "date",
    "TimeDeltaType": "duration",
    "UUIDType": "UUID",
    "DecimalType": "decimal",
    "ExtType": "extension",
}
_LIMITS = frozenset(
    ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
)


def _limits(kind: inspect.Type) -> dict[str, Any]:
    limits = {name: getattr(kind, name) for name in kind.__struct_fields__ if name in _LIMITS}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _collection(name: str) -> Callable[[_Forms, Any], Form]:
    return lambda forms, kind: [name, _limits(kind), forms.of(kind.item_type)]


def _fields(forms: _Forms, kind: Any) -> list[list[Any]]:
    """Name, stored name, form, and whether it must be there; of each field, in order."""
    return [
        [each.name, each.encode_name, forms.of(each.type), bool(each.required)]
        for each in kind.fields
    ]


def _record(forms: _Forms, kind: Any) -> Form:
    """A class whose fields are stored by name, or one whose fields are stored by position."""
    if isinstance(kind, inspect.StructType):
        omits = kind.cls.__struct_config__.omit_defaults and not kind.array_like
        more = {
            "tag": [kind.tag_field, kind.tag],
            "closed": kind.forbid_unknown_fields,
            "omits": omits,
        }
        more["defaults"] = {
            each.encode_name: _default(each) for each in kind.fields if not each.required
        }
        return forms.defined(
            kind, lambda: ["positions" if kind.array_like else "fields", _fields(forms, kind), more]
        )
    if isinstance(kind, inspect.NamedTupleType):
        return forms.defined(kind, lambda: ["positions", _fields(forms, kind), {"closed": True}])
    return forms.defined(kind, lambda: ["fields", _fields(forms, kind), {}])


def _default(field: inspect.Field) -> str:
    """In words that are the same in every process."""
    default = field.default if field.default is not NODEFAULT else field.default_factory
    return (
        default.__qualname__
        if isinstance(default, (type, FunctionType))
        else re.sub(" at 0x[0-9a-f]+", "", repr(default))
    )


def _enum(forms: _Forms, kind: Any) -> Form:
    members: type[Enum] = kind.cls
    return ["enum", [[repr(each.value), each.name] for each in members]]


_MADE: dict[str, Callable[[_Forms, Any], Form]] = {
    "ListType": _collection("list"),
    "VarTupleType": _collection("tuple"),
    "SetType": _collection("set"),
    "FrozenSetType": _collection("set"),
    "CollectionType": _collection("list"),
    "TupleType": lambda forms, kind: ["items", [forms.of(each) for each in kind.item_types]],
    "DictType": lambda forms, kind: [
        "map",
        _limits(kind),
        forms.of(kind.key_type),
        forms.of(kind.value_type),
    ],
    "FrozenDictType": lambda forms, kind: [
        "map",
        _limits(kind),
        forms.of(kind.key_type),
        forms.of(kind.value_type),
    ],
    "StructType": _record,
    "DataclassType": _record,
    "TypedDictType": _record,
    "NamedTupleType": _record,
    "EnumType": _enum,
    "LiteralType": lambda forms, kind: ["literal", sorted(map(repr, kind.values))],
    "UnionType": lambda forms, kind: ["union", [forms.of(each) for each in kind.types]],
    "Metadata": lambda forms, kind: forms.of(kind.type),
}


def unreadable_form(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why some value of a stored form cannot be read in another, or would mean something else; ""
    if all can. A reason in case of doubt. See
    :func:`millwheel.control.savepoints.stored_forms.stored_form`."""
    return _Reading(old["definitions"], new["definitions"]).why(
        old["form"], new["form"], "the value"
    )


class _Reading:
    """One comparison, with the definitions to which references point."""

    def __init__(self, old: Mapping[str, Form], new: Mapping[str, Form]) -> None:
        self._old, self._new = old, new
        self._met: dict[tuple[str, str], str] = {}

    def why(self, old: Form, new: Form, what: str) -> str:
        if old[0] == "union":
            return next(filter(None, (self.why(each, new, what) for each in old[1])), "")
        if new[0] == "union":
            return self._into_union(old, new, what)
        if old[0] == new[0] == "ref":
            pair = str(old[1]), str(new[1])
            if pair not in self._met:
                self._met[pair] = ""  # while it is compared: it may be a part of itself
                self._met[pair] = self._why(self._old[pair[0]], self._new[pair[1]], what)
            return self._met[pair]
        return self._why(self._followed(old, self._old), self._followed(new, self._new), what)

    def _why(self, old: Form, new: Form, what: str) -> str:
        if new[0] == "anything":
            return "" if self._is_plain(old, ()) else self._became(old, new, what)
        if old[0] == "literal" and new[0] in ("text", "integer") and not new[1]:
            same = all((each[0] in "'\"") == (new[0] == "text") for each in old[1])
            return "" if same else self._became(old, new, what)
        if (old[0], new[0]) in _WIDER and (old[0] != "integer" or not new[1]):
            return self._parts(old, new, what)
        return self._parts(old, new, what) if old[0] == new[0] else self._became(old, new, what)

    def _parts(self, old: Form, new: Form, what: str) -> str:
        parts: dict[str, Callable[[Form, Form, str], str]] = {
            "list": self._collection,
            "tuple": self._collection,
            "set": self._collection,
            "items": self._items,
            "map": self._map,
            "fields": self._fields,
            "positions": self._positions,
            "enum": self._enum,
            "literal": self._literal,
        }
        return parts.get(new[0], self._scalar)(old, new, what)

    def _scalar(self, old: Form, new: Form, what: str) -> str:
        return (
            _limits_differ(old, new, what)
            if new[0] != "python"
            else ""
            if old == new
            else self._became(old, new, what)
        )

    def _collection(self, old: Form, new: Form, what: str) -> str:
        if old[0] == "items":
            return next(
                filter(None, (self.why(each, new[2], f"an item of {what}") for each in old[1])), ""
            )
        return _limits_differ(old, new, what) or self.why(old[2], new[2], f"an item of {what}")

    def _items(self, old: Form, new: Form, what: str) -> str:
        if len(old[1]) != len(new[1]):
            return f"{what} had {len(old[1])} items and has {len(new[1])}"
        pairs = enumerate(zip(old[1], new[1], strict=True))
        return next(
            filter(None, (self.why(a, b, f"item {at} of {what}") for at, (a, b) in pairs)), ""
        )

    def _map(self, old: Form, new: Form, what: str) -> str:
        reason = _limits_differ(old, new, what) or self.why(old[2], new[2], f"a key of {what}")
        return reason or self.why(old[3], new[3], f"an entry of {what}")

    def _literal(self, old: Form, new: Form, what: str) -> str:
        gone = [each for each in old[1] if each not in new[1]]
        return f"{what} may hold {gone[0]}, which the new type does not accept" if gone else ""

    def _enum(self, old: Form, new: Form, what: str) -> str:
        before, after = dict(old[1]), dict(new[1])
        names = set(before.values())
        for value, name in before.items():
            if value not in after:
                return f"{what} may hold {name} ({value}), which the new type does not accept"
            if after[value] != name and after[value] in names:
                return f"{value} in {what} was {name} and is {after[value]}"
        return ""

    def _fields(self, old: Form, new: Form, what: str) -> str:
        before = {stored: (form, required) for _, stored, form, required in old[1]}
        after = {stored: (form, required) for _, stored, form, required in new[1]}
        reason = _frame_differs(old[2], new[2], what)
        for stored, (form, required) in after.items():
            if stored not in before or not before[stored][1]:
                if required:
                    lack = "old values lack" if stored not in before else "old values may lack"
                    reason = (
                        reason
                        or f"{what} gets the field {stored!r}, which {lack}; give it a default"
                    )
            if stored in before:
                reason = reason or self.why(before[stored][0], form, f"its field {stored!r}")
        gone = [stored for stored in before if stored not in after]
        if gone and new[2].get("closed"):
            reason = (
                reason
                or f"{what} lost the field {gone[0]!r}, and the new type forbids unknown fields"
            )
        return reason

    def _positions(self, old: Form, new: Form, what: str) -> str:
        """Values go into fields by their place, so a field must not get the value of another."""
        before, after = old[1], new[1]
        names, later = {each[0] for each in before}, {each[0] for each in after}
        reason = _frame_differs(old[2], new[2], what)
        for at, (was, becomes) in enumerate(zip(before, after, strict=False)):
            if was[0] != becomes[0] and (was[0] in later or becomes[0] in names):
                text = (
                    f"place {at} of {what} was the field {was[0]!r} and is {becomes[0]!r}, and"
                    " values go by place"
                )
                reason = (
                    reason or f"{text}; add fields at the end, and leave the others in their order"
                )
            if becomes[3] and not was[3]:
                reason = (
                    reason or f"{what} gets the field {becomes[0]!r}, which old values may lack"
                )
            reason = reason or self.why(was[2], becomes[2], f"its field {becomes[0]!r}")
        if len(after) > len(before) and any(each[3] for each in after[len(before) :]):
            reason = (
                reason
                or f"{what} has more items now, which old values lack; give the new fields defaults"
            )
        if len(after) < len(before) and new[2].get("closed"):
            reason = reason or f"{what} has fewer items than old values have"
        return reason

    def _into_union(self, old: Form, new: Form, what: str) -> str:
        reasons = [self.why(old, each, what) for each in new[1]]
        if "" in reasons:
            return ""
        kind = self._followed(old, self._old)[0]
        pairs = zip(new[1], reasons, strict=True)
        same = [reason for each, reason in pairs if self._followed(each, self._new)[0] == kind]
        return same[0] if same else self._became(old, new, what)

    def _is_plain(self, form: Form, around: tuple[str, ...]) -> bool:
        """Whether values of a form are the same when no type is declared."""
        if form[0] == "ref":
            return False
        if form[0] in ("union", "literal"):
            return form[0] == "literal" or all(self._is_plain(each, around) for each in form[1])
        if form[0] == "map":
            return self._is_plain(form[2], around) and self._is_plain(form[3], around)
        return self._is_plain(form[2], around) if form[0] == "list" else form[0] in _PLAIN

    def _became(self, old: Form, new: Form, what: str) -> str:
        return f"{what} was {_form_words(old)} and becomes {_form_words(new)}"

    def _followed(self, form: Form, definitions: Mapping[str, Form]) -> Form:
        return definitions[form[1]] if form[0] == "ref" else form


_PLAIN = frozenset({"anything", "null", "boolean", "integer", "number", "text", "bytes"})
_SEQUENCES = ("list", "tuple")
_WIDER = frozenset(
    {
        ("integer", "number"),
        *((of, into) for of in (*_SEQUENCES, "set", "items") for into in _SEQUENCES),
    }
)
"""Forms of which each value of the first is one of the second. The bytes are the same, or mean the
same."""


def _limits_differ(old: Form, new: Form, what: str) -> str:
    changed = [name for name, limit in new[1].items() if old[1].get(name) != limit]
    return (
        f"{what} must have {changed[0]} {new[1][changed[0]]} now, which old values may not have"
        if changed
        else ""
    )


def _frame_differs(old: Mapping[str, Any], new: Mapping[str, Any], what: str) -> str:
    nothing = [None, None]
    if (old.get("tag") or nothing) != (new.get("tag") or nothing):
        return f"the tag of {what} has changed"
    for field, default in old["defaults"].items() if old.get("omits") else ():
        if new.get("defaults", {}).get(field, default) != default:
            return (
                f"the default of {field!r} of {what} has changed, and old values that had the"
                " former one lack it"
            )
    return ""


def _form_words(form: Form) -> str:
    if form[0] == "union":
        return " or ".join(_form_words(each) for each in form[1])
    if form[0] in ("list", "tuple", "set"):
        return f"a {form[0]} of {_form_words(form[2])}"
    if form[0] == "map":
        return f"a map of {_form_words(form[2])} to {_form_words(form[3])}"
    if form[0] == "ref":
        return str(form[1]).rstrip("0123456789")
    if form[0] in ("fields", "positions"):
        return f"an object stored by {'name' if form[0] == 'fields' else 'place'}"
    return str(form[1]) if form[0] == "python" else str(form[0])
