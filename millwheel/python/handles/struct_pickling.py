"""Pickles msgspec's classes by value: those of a script or notebook, as types of state and of
streams.

``cloudpickle`` makes an empty class and fills it in afterwards. A Struct has its fields from the
moment it is made, or never. And msgspec leaves a cache in classes of other kinds that it has looked
at, which cannot be pickled.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping
from typing import Any

import msgspec

_CACHE = "__msgspec_cache__"
_CONFIG = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults",
    "forbid_unknown_fields",
    "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_MADE_ANEW = frozenset(
    (
        "__module__",
        "__qualname__",
        "__doc__",
        "__slots__",
        "__annotations__",
        "__weakref__",
        "__dict__",
    )
)
_AT_ONCE = ("__post_init__",)
"""Methods that msgspec looks for when a class is made."""


def dumps(thing: Any) -> bytes:
    """The bytes of cloudpickle, with msgspec's classes by value."""
    cloudpickle = importlib.import_module("cloudpickle")
    by_reference = importlib.import_module("cloudpickle.cloudpickle")._should_pickle_by_reference

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc, name-defined]
        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, type) and not by_reference(thing):
                if _CACHE in vars(thing):
                    delattr(thing, _CACHE)
                if issubclass(thing, msgspec.Struct):
                    return _reduced(thing)
            return super().reducer_override(thing)

    with io.BytesIO() as file:
        Pickler(file).dump(thing)
        return file.getvalue()


def _reduced(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """A class as its making, and the parts that are put into it afterwards: methods may name the
    class."""
    inherited = {
        each.name
        for base in kind.__bases__
        if issubclass(base, msgspec.Struct)
        for each in _fields(base)
    }
    own = [
        each
        for each in _fields(kind)
        if each.name not in inherited or each.name in kind.__annotations__
    ]
    fields = [
        (each.name, each.type, each.default, each.default_factory, each.encode_name) for each in own
    ]
    config = {name: getattr(kind.__struct_config__, name) for name in _CONFIG}
    positional = set(kind.__match_args__)
    config["kw_only"] = bool(own) and not any(each.name in positional for each in own)
    names = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    names.update({name: vars(kind)[name] for name in _AT_ONCE if name in vars(kind)})
    left_out = {each.name for each in own} | _MADE_ANEW | names.keys()
    rest = {name: value for name, value in vars(kind).items() if name not in left_out}
    return _made, (kind.__name__, kind.__bases__, fields, config, names), rest, None, None, _fill


def _fields(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    return msgspec.structs.fields(kind) if kind is not msgspec.Struct else ()


def _made(
    name: str, bases: Any, fields: Any, config: Mapping[str, Any], names: dict[str, Any]
) -> type[msgspec.Struct]:
    parts: list[Any] = []
    for field, kind, default, factory, _ in fields:
        defaults: dict[str, Any] = {"default": default, "default_factory": factory}
        optional = default is not msgspec.NODEFAULT or factory is not msgspec.NODEFAULT
        parts.append((field, kind, msgspec.field(**defaults)) if optional else (field, kind))
    rename = {field: encoded for field, _, _, _, encoded in fields if field != encoded}
    settings: dict[str, Any] = {**config, "rename": rename or None}
    return msgspec.defstruct(name, parts, bases=bases, namespace=names, **settings)


def _fill(kind: type[msgspec.Struct], rest: Mapping[str, Any]) -> None:
    for name, value in rest.items():
        setattr(kind, name, value)
