"""Declared types of state: a value is accepted if the store gives it back as it was.

A value that stays in the cache is the caller's own object, and after a crash it is decoded from its
bytes. Both must be the same in type and value, or a callback works until the first crash. So a
value is compared with the one that its bytes become, unless its type shows at a glance that nothing
is lost, which is the case for nearly all of them. Types of this project guarantee this for all of
their values (:class:`Certain`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, time
from enum import Enum, Flag
from functools import lru_cache
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec import inspect

from millwheel.core.aggregates.plain_data import PLAIN, is_plain
from millwheel.core.formats.codec import MOST_NESTING, nests_too_deeply
from millwheel.core.model.limits import over
from millwheel.errors import RecordError

_SCALARS: dict[type[inspect.Type], type] = {
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
    inspect.BoolType: bool,
    inspect.NoneType: type(None),
}
_NO_LIMITS = (inspect.IntType(), inspect.FloatType(), inspect.StrType(), inspect.BytesType())
"""Types without a constraint, such as ``ge``."""
_FEW_LEVELS = 8
"""The depth to which a type is examined; parts of the engine's own types are bytes below that."""
_SHOWN = 80  # characters of a value in an error
_encode = msgspec.msgpack.Encoder().encode
Exact = Callable[[Any], bool]


class Certain(msgspec.Struct):
    """Base of types of which every value comes back as it was: they are not checked one by one."""


class StoredType:
    """One declared type: the bytes of its values, and whether the same values come back. ``name``
    is that of the state, ``most`` the largest number of bytes of a value."""

    __slots__ = (
        "_declared",
        "_decode",
        "_few",
        "_most",
        "_name",
        "_part",
        "exact",
        "flat",
        "items",
        "plain",
    )

    def __init__(self, declared: Any, name: str, part: str, most: int) -> None:
        self._declared = declared
        self._name = name
        self._part = part
        self._most = most
        judged = _judged(declared)
        # with so few bytes a value is neither too large nor too deep
        self._few = most if judged.shallow else min(most, MOST_NESTING)
        self._decode = judged.decode
        self.plain = judged.plain
        """The types of scalars that come back as they are."""
        self.exact = judged.exact
        """True only for values that come back as they are, if they can be encoded at all."""
        self.items = judged.items
        """The scalars of which a list certainly comes back."""
        self.flat = judged.flat
        """Its values have no parts that can be changed in place."""

    def check_plain(self, value: Any) -> None:
        """Raise RecordError for a scalar in ``plain`` that cannot be encoded: of the wrong size, or
        no Unicode text."""
        if type(value) is int:
            if not -(2**63) <= value < 2**64:
                raise self._refused(f"the whole number {value:.3e} does not fit into 64 bits")
        elif type(value) is str or type(value) is bytes:
            if type(value) is bytes or not value.isascii() or len(value) > self._most // 4:
                self.encode(value)

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. RecordError for one that has none, is too large, or nests too
        deeply."""
        try:
            data = _encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as ex:
            hint = ": " + str(ex) if str(ex) else ""
            raise self._refused(f"{shown(value)} cannot be stored{hint}; {_fix(value)}") from ex
        if len(data) > self._few:
            if len(data) > self._most:
                raise RecordError(
                    over("state", f"state {self._name!r}: {self._part}", len(data), self._most)
                )
            if nests_too_deeply(data):
                raise self._refused(
                    f"a {type(value).__name__} nests more than {MOST_NESTING} levels deep"
                )
        return data

    def form(self, value: Any) -> tuple[Any, bytes]:
        """The value as it will come back, and its bytes. A whole number becomes a float where a
        float is declared, and a time with an offset the same instant in UTC. RecordError for
        everything else that would not come back."""
        data = self.encode(value)
        if self.exact(value):
            return value, data
        try:
            back = self._decode(data)
        except (msgspec.ValidationError, RecursionError) as ex:
            raise self._refused(f"{shown(value)} does not fit: {ex}") from ex
        if (lost := difference(value, back)) is None:
            return back, _encode(back)
        path, was, becomes = lost
        where = f"at {path} " if path else ""
        raise self._refused(
            f"{where}{shown(was)} would come back as {shown(becomes)} after a crash;"
            f" {self._cure(value)}"
        )

    def decode(self, data: bytes) -> Any:
        """The value that :meth:`form` made bytes of. Raises msgspec.ValidationError for those of
        another type."""
        return self._decode(data)

    def _cure(self, value: Any) -> str:
        text = _declarable(value)
        return f"declare the type, {text}" if text else _fix(value)

    def _refused(self, why: str) -> RecordError:
        declaration = (
            "has no declared type"
            if self._declared is Any
            else f"is declared as {_named(self._declared)}"
        )
        return RecordError(f"state {self._name!r} {declaration}: {why}")


class _Judged(NamedTuple):
    """The properties that a declared type gives all of its values."""

    decode: Callable[[bytes], Any]
    plain: frozenset[type]
    exact: Exact
    items: frozenset[type]
    flat: bool
    shallow: bool


def _judged(declared: Any) -> _Judged:
    """The same for each shard of a computation, of which there may be thousands."""
    try:
        return _remembered(declared)
    except TypeError:  # it cannot be a key
        return _judge(declared)


def _judge(declared: Any) -> _Judged:
    info = _info(declared)
    return _Judged(
        msgspec.msgpack.Decoder(declared).decode,
        frozenset() if info is None else _plain_of(info),
        _exact_of(declared, info),
        _items_of(info),
        info is not None and _is_flat(info),
        _certain(declared) and info is not None and _is_shallow(info, _FEW_LEVELS),
    )


def _certain(declared: Any) -> bool:
    """Whether a type guarantees this for all of its values, or is a list of such."""
    listed = get_args(declared) if get_origin(declared) is list else ()
    kind = listed[0] if listed else declared
    return isinstance(kind, type) and issubclass(kind, Certain)


def _exact_of(declared: Any, info: inspect.Type | None) -> Exact:
    if _certain(declared):
        return _always
    return _never if info is None else _exact(info, ())


_remembered = lru_cache(typed=True)(_judge)


def difference(value: Any, back: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The first difference between a value and the one that came back: (path, value there, the
    other one there); None where there is none."""
    kind = type(value)
    if kind is not type(back):
        same = kind is int and type(back) is float and value == back
        return None if same else (path, value, back)
    if isinstance(value, dict):
        return _of_maps(value, back, path)
    if isinstance(value, (list, tuple)):
        pairs = zip(value, back, strict=False)
        parts = (difference(each, other, f"{path}[{at}]") for at, (each, other) in enumerate(pairs))
        return next(filter(None, parts), None) if len(value) == len(back) else (path, value, back)
    if isinstance(value, (set, frozenset)):
        return _of_sets(value, back, path)
    if (names := _field_names(value)) is not None:
        parts = (
            difference(getattr(value, each), getattr(back, each, _NONE), f"{path}.{each}")
            for each in names
        )
        return next(filter(None, parts), None)
    if isinstance(value, (datetime, time)):
        return (
            None
            if value == back and (value.tzinfo is None) == (back.tzinfo is None)
            else (path, value, back)
        )
    return None if value == back or (value != value and back != back) else (path, value, back)


_NONE: Any = object()


def _of_maps(
    value: Mapping[Any, Any], back: Mapping[Any, Any], path: str
) -> tuple[str, Any, Any] | None:
    if len(value) != len(back):
        return path, value, back
    for (key, each), (other_key, other) in zip(value.items(), back.items(), strict=True):
        mismatch = difference(key, other_key, f"{path} key {shown(key)}") or difference(
            each, other, f"{path}[{key!r:.80}]"
        )
        if mismatch:
            return mismatch
    return None


def _of_sets(value: Any, back: Any, path: str) -> tuple[str, Any, Any] | None:
    theirs = {each: each for each in back}
    for each in value:
        if each not in theirs:
            if each == each:
                return path, value, back
        elif mismatch := difference(each, theirs[each], f"{path} element {shown(each)}"):
            return mismatch
    return None if len(value) == len(back) else (path, value, back)


def _field_names(value: Any) -> list[str] | None:
    """The attributes that a structured value has; None for other values."""
    if isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    elif is_dataclass(value):
        names = [each.name for each in fields(value)]
    else:
        return None
    try:
        more = vars(value)
    except TypeError:  # it has slots
        return names
    return names + [name for name in more if name not in names and not hasattr(type(value), name)]


# --- what a type shows at a glance ----------------------------------------------------------------


def _info(declared: Any) -> inspect.Type | None:
    try:
        return inspect.type_info(declared)
    except (TypeError, NameError, ValueError):
        return None


def _is_shallow(info: inspect.Type, levels: int) -> bool:
    """Whether no value has more levels of lists and maps than that."""
    if type(info) in _SCALARS:
        return True
    if levels == 0:
        return False
    match info:
        case inspect.StructType(fields=parts):
            return all(_is_shallow(each.type, levels - 1) for each in parts)
        case inspect.ListType(item_type=item):
            return _is_shallow(item, levels - 1)
        case inspect.DictType(key_type=key, value_type=value):
            return _is_shallow(key, levels - 1) and _is_shallow(value, levels - 1)
        case inspect.UnionType(types=types):
            return all(_is_shallow(each, levels) for each in types)
    return False


def _never(value: Any) -> bool:
    return False


def _always(value: Any) -> bool:
    return True


def _plain_of(info: inspect.Type) -> frozenset[type]:
    """The scalars that a type takes and gives back as they are."""
    if isinstance(info, inspect.AnyType):
        return PLAIN
    if isinstance(info, inspect.UnionType):
        kinds: set[type] = set()
        for each in info.types:
            kinds |= _plain_of(each)
        return frozenset(kinds)
    kind = _SCALARS.get(type(info))
    constrained = (
        not isinstance(info, (inspect.BoolType, inspect.NoneType)) and info not in _NO_LIMITS
    )
    return frozenset[type]() if kind is None or constrained else frozenset[type]((kind,))


def _exact(info: inspect.Type, around: tuple[inspect.Type, ...]) -> Exact:
    """Whether a value is certainly one that comes back. ``around``: the types that this one is a
    part of."""
    if any(info is each for each in around):
        return _never
    around = (*around, info)
    if isinstance(info, inspect.AnyType):
        return is_plain
    if plain := _plain_of(info):
        return lambda value: type(value) in plain
    if isinstance(info, inspect.ListType):
        return _collection(list, info.item_type, around)
    if isinstance(info, inspect.SetType):
        return _collection(set, info.item_type, around) if _plain_of(info.item_type) else _never
    if isinstance(info, inspect.DictType):
        return _dict(info, around)
    if isinstance(info, inspect.StructType):
        return _struct(info, around)
    if isinstance(info, inspect.EnumType) and not issubclass(info.cls, Flag):
        kind = info.cls
        return lambda value: type(value) is kind
    return _never


def _all(info: inspect.Type, around: tuple[inspect.Type, ...]) -> Exact:
    """Whether all of some values come back: by their types alone, where these decide."""
    if isinstance(info, inspect.AnyType):
        return lambda values: PLAIN.issuperset(map(type, values)) or all(map(is_plain, values))
    if plain := _plain_of(info):
        return lambda values: plain.issuperset(map(type, values))
    exact = _exact(info, around)
    return _never if exact is _never else lambda values: all(map(exact, values))


def _collection(kind: type, item: inspect.Type, around: tuple[inspect.Type, ...]) -> Exact:
    every = _all(item, around)
    if kind is set and isinstance(item, inspect.AnyType):
        return lambda value: type(value) is set and PLAIN.issuperset(map(type, value))
    return _never if every is _never else lambda value: type(value) is kind and every(value)


def _dict(info: inspect.DictType, around: tuple[inspect.Type, ...]) -> Exact:
    keys, every = _plain_of(info.key_type), _all(info.value_type, around)
    if not keys or every is _never:
        return _never
    return lambda value: (
        type(value) is dict and keys.issuperset(map(type, value)) and every(value.values())
    )


def _struct(info: inspect.StructType, around: tuple[inspect.Type, ...]) -> Exact:
    kind, parts = info.cls, [(each.name, _exact(each.type, around)) for each in info.fields]
    if any(part is _never for _, part in parts) or _has_hooks(kind):
        return _never
    plain = [_plain_of(each.type) for each in info.fields]
    if all(len(each) == 1 for each in plain) and plain:
        return _flat_struct(kind, tuple(next(iter(each)) for each in plain))
    return lambda value: (
        type(value) is kind and all(part(getattr(value, name)) for name, part in parts)
    )


def _flat_struct(kind: type, kinds: tuple[type, ...]) -> Exact:
    """Written out for few fields: it is asked for each record, and to compare tuples takes twice as
    long."""
    read: Callable[[Any], tuple[Any, ...]] = msgspec.structs.astuple
    match kinds:
        case (first, second):

            def of_two(value: Any) -> bool:
                if type(value) is not kind:
                    return False
                one, two = read(value)
                return type(one) is first and type(two) is second

            return of_two
        case (first, second, third):

            def of_three(value: Any) -> bool:
                if type(value) is not kind:
                    return False
                one, two, three = read(value)
                return type(one) is first and type(two) is second and type(three) is third

            return of_three
    return lambda value: type(value) is kind and tuple(map(type, read(value))) == kinds


def _items_of(info: inspect.Type | None) -> frozenset[type]:
    if isinstance(info, inspect.AnyType):
        return PLAIN
    return (
        _plain_of(info.item_type)
        if isinstance(info, inspect.ListType) and info == inspect.ListType(info.item_type)
        else frozenset()
    )


def _is_flat(info: inspect.Type) -> bool:
    if isinstance(info, inspect.StructType):
        parts = [each.type for each in info.fields]
    elif isinstance(info, (inspect.ListType, inspect.SetType)):
        parts = [info.item_type]
    else:
        parts = [info.value_type] if isinstance(info, inspect.DictType) else [inspect.AnyType()]
    return all(_plain_of(each) and not isinstance(each, inspect.AnyType) for each in parts)


def _has_hooks(kind: type) -> bool:
    """Whether objects of a class may have more in them than its fields."""
    return any("__post_init__" in vars(base) or "__dict__" in vars(base) for base in kind.__mro__)


# --- words ----------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A value and its type, in an error."""
    try:
        text = repr(value)
    except Exception:  # from a user's class
        text = ""
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return f"{type(value).__name__} {cut}".strip()


def _declarable(value: Any) -> str:
    """The type to declare for a value, as it is written; "" if none would do."""
    kind = type(value)
    if kind in PLAIN or kind in (set, frozenset, tuple):
        return kind.__name__ if kind is not type(None) else "None"
    if kind is list:
        names = sorted({_declarable(each) for each in value})
        return "" if "" in names else f"list[{' | '.join(names) or 'int'}]"
    if kind is dict:
        keys, names = (
            sorted({_declarable(each) for each in value}),
            sorted(map(_declarable, value.values())),
        )
        return (
            ""
            if "" in [*keys, *names]
            else f"dict[{' | '.join(keys)}, {' | '.join(dict.fromkeys(names))}]"
        )
    if isinstance(value, (dict, list, set)) or (
        isinstance(value, (int, str, float)) and not isinstance(value, Enum)
    ):
        return ""
    return (
        kind.__name__
        if _info(kind) is not None and not isinstance(_info(kind), inspect.CustomType)
        else ""
    )


def _fix(value: Any) -> str:
    for base in (bool, int, float, str, bytes, dict, list, set):
        if isinstance(value, base) and type(value) is not base:
            return f"store {base.__name__}(value)"
    return (
        "store numbers, text, bytes, lists and dicts, or declare a type that msgspec knows, such as"
        " a msgspec.Struct"
    )


def _named(declared: Any) -> str:
    return (
        declared.__name__
        if isinstance(declared, type) and get_origin(declared) is None
        else str(declared)
    )
