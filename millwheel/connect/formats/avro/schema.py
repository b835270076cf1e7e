"""Avro schemas: loaded, parsed, and without the logical types that fastavro would turn into objects
of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from millwheel.errors import SetupError

Schema = Any
"""A schema as JSON has it: a name, a map, or a list for a union."""
_LOGICAL = frozenset({"logicalType", "precision", "scale"})


class Parsed(NamedTuple):
    """``full`` has logical types, ``bare`` only the types of the encoding; both are parsed, with
    full names. ``recursive``: a type holds itself."""

    full: Schema
    bare: Schema
    recursive: bool


def fastavro() -> Any:
    """The library. Raises SetupError if it is not installed."""
    try:
        import fastavro
    except ImportError as ex:
        raise SetupError(
            "Avro needs the package fastavro; install it with: pip install 'millwheel-spark[avro]'"
        ) from ex
    return fastavro


def load_schema(schema: str | Mapping[str, Any] | list[Any], folder: str) -> Schema:
    """Load a schema: JSON, JSON text, or the path of a file relative to ``folder``. Raises
    ValueError for anything else."""
    if not isinstance(schema, str):
        return schema
    if schema.lstrip().startswith(("{", "[", '"')):
        return _json(schema, "option 'schema'")
    path = Path(folder, schema)
    try:
        return _json(path.read_text(encoding="utf-8"), f"option 'schema': {path}")
    except OSError as ex:
        raise ValueError(f"option 'schema': cannot read {path}: {ex.strerror or ex}") from ex
    except UnicodeDecodeError as ex:
        raise ValueError(f"option 'schema': {path} is not a text in UTF-8: {ex}") from ex


def parse(schema: Schema, what: str = "option 'schema'") -> Parsed:
    """Parse a schema. Raises ValueError, with a sentence that begins with ``what``, for an invalid
    one."""
    _refuse_huge(schema, what)
    try:
        full = fastavro().parse_schema(plain_schema(schema), _force=True)
        bare = fastavro().parse_schema(_bare(full), _force=True)
    except SetupError:
        raise
    except Exception as ex:  # fastavro raises several kinds, TypeError among them
        raise ValueError(f"{what} is not an Avro schema: {type(ex).__name__}: {ex}") from ex
    parsed = Parsed(full, bare, _holds_itself(full, frozenset()))
    _refuse_endless(full, what, set())
    return parsed


def names_of(schema: Schema, named: dict[str, Schema] | None = None) -> dict[str, Schema]:
    """The named types that are defined in a parsed schema."""
    named = {} if named is None else named
    if isinstance(schema, list):
        for branch in schema:
            names_of(branch, named)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "error", "enum", "fixed"):
            named[schema["name"]] = schema
        for inner in inner_types(schema):
            names_of(inner, named)
    return named


def inner_types(schema: Mapping[str, Any]) -> list[Schema]:
    """The types directly within a complex one."""
    kind = schema["type"]
    if kind in ("record", "error"):
        return [field["type"] for field in schema["fields"]]
    if kind in ("array", "map"):
        return [schema["items" if kind == "array" else "values"]]
    return []


def whole(schemas: list[Schema]) -> Schema:
    """The last of ``schemas``, with the others inserted at their first use. Raises ValueError when
    they do not fit together."""
    if len(schemas) == 1:
        return schemas[0]
    names: dict[str, Any] = {}
    try:
        parsed = [fastavro().parse_schema(plain_schema(each), names) for each in schemas]
    except Exception as ex:  # fastavro raises several kinds
        raise ValueError(
            f"schemas that refer to each other do not go together: {type(ex).__name__}: {ex}"
        ) from ex
    defined: dict[str, Schema] = {}
    for each in parsed[:-1]:
        names_of(each, defined)
    return _filled_in(plain_schema(parsed[-1]), defined, set())


def _filled_in(schema: Schema, defined: Mapping[str, Schema], there: set[str]) -> Schema:
    if isinstance(schema, list):
        return [_filled_in(branch, defined, there) for branch in schema]
    if isinstance(schema, str):
        if schema not in defined or schema in there:
            return schema
        schema = plain_schema(defined[schema])
    there.add(schema.get("name", ""))
    filled = dict(schema)
    if "fields" in filled:
        filled["fields"] = [
            {**field, "type": _filled_in(field["type"], defined, there)}
            for field in filled["fields"]
        ]
    for name in ("items", "values"):
        if name in filled:
            filled[name] = _filled_in(filled[name], defined, there)
    return filled


def schema_text(schema: Schema) -> str:
    """A schema as a registry takes it."""
    return json.dumps(plain_schema(schema))


def _json(text: str, what: str) -> Schema:
    try:
        return json.loads(text)
    except ValueError as ex:
        raise ValueError(f"{what} is not JSON: {ex}") from ex


def plain_schema(schema: Schema) -> Schema:
    """A copy without the marks of fastavro."""
    if isinstance(schema, Mapping):
        return {
            name: plain_schema(inner)
            for name, inner in schema.items()
            if not str(name).startswith("__")
        }
    return (
        [plain_schema(inner) for inner in schema] if isinstance(schema, (list, tuple)) else schema
    )


def _bare(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {
        name: inner
        for name, inner in schema.items()
        if name not in _LOGICAL and not name.startswith("__")
    }
    if "fields" in bare:
        bare["fields"] = [{**field, "type": _bare(field["type"])} for field in bare["fields"]]
    for name in ("items", "values"):
        if name in bare:
            bare[name] = _bare(bare[name])
    primitive = bare["type"] in (
        "null",
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "bytes",
        "string",
    )
    return bare["type"] if primitive else bare


def _holds_itself(schema: Schema, above: frozenset[str]) -> bool:
    if isinstance(schema, str):
        return schema in above
    if isinstance(schema, list):
        return any(_holds_itself(branch, above) for branch in schema)
    above = above | {schema["name"]} if schema["type"] in ("record", "error") else above
    return any(_holds_itself(inner, above) for inner in inner_types(schema))


def _refuse_endless(schema: Schema, what: str, empty: set[str]) -> None:
    """Refuse arrays of items that take no bytes: ten bytes could claim billions of items. Raises
    ValueError."""
    if isinstance(schema, list):
        for branch in schema:
            _refuse_endless(branch, what, empty)
    if not isinstance(schema, dict):
        return
    for inner in inner_types(schema):
        _refuse_endless(inner, what, empty)
    if schema["type"] in ("record", "error") and all(
        _takes_nothing(inner, empty) for inner in inner_types(schema)
    ):
        empty.add(schema["name"])
    if schema["type"] == "array" and _takes_nothing(schema["items"], empty):
        raise ValueError(
            f"{what} has an array whose items take no bytes; damaged input could claim any number"
            " of them"
        )


def _refuse_huge(schema: Schema, what: str) -> None:
    """Refuse schemas that take long to read, or whose numbers do: files bring theirs along. Raises
    ValueError."""
    level, count = [schema], 0
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, Mapping):
                inner += each.values()
                for name, most in _MOST.items():
                    if isinstance(each.get(name), int) and each[name] > most:
                        raise ValueError(
                            f"{what} has a {name} of {each[name]:.3g}, more than {most:,}"
                        )
            elif isinstance(each, (list, tuple)):
                inner += each
        count += len(inner)
        if not inner:
            return
        if count > _MOST_NODES:
            break
        level = inner
    raise ValueError(
        f"{what} has more than {_MOST_NODES:,} parts, or more than {_MOST_LEVELS} levels"
    )


def most_bytes(schema: Schema) -> int:
    """The most bytes of one value of a parsed bare schema: so many that its objects stay within
    some 512 MB. Items of an array may take a hundred times as much memory as bytes."""
    return min(_MOST_BYTES, int(_OBJECT_BYTES / _growth(schema, names_of(schema), frozenset())))


def _growth(schema: Schema, names: Mapping[str, Schema], above: frozenset[str]) -> float:
    """The highest number of bytes in memory for a byte of Avro, in the items of arrays and maps."""
    if isinstance(schema, str):
        return (
            1.0
            if schema not in names or schema in above
            else _growth(names[schema], names, above | {schema})
        )
    if isinstance(schema, list):
        return max([1.0, *(_growth(branch, names, above) for branch in schema)])
    above = above | {str(schema.get("name", ""))}
    highest = max([1.0, *(_growth(inner, names, above) for inner in inner_types(schema))])
    if schema["type"] not in ("array", "map"):
        return highest
    least, memory = _item(schema["items" if schema["type"] == "array" else "values"], names, above)
    return max(highest, memory / max(least, 1))


def _item(schema: Schema, names: Mapping[str, Schema], above: frozenset[str]) -> tuple[int, int]:
    """The fewest bytes of a value, and about the memory that such a value takes."""
    if isinstance(schema, str) and schema in names and schema not in above:
        return _item(names[schema], names, above | {schema})
    if isinstance(schema, dict) and schema["type"] in ("record", "error"):
        inner = above | {schema["name"]}
        parts = [_item(field["type"], names, inner) for field in schema["fields"]]
        return sum(least for least, _ in parts), _DICT_BYTES + sum(memory for _, memory in parts)
    if isinstance(schema, list):
        parts = [_item(branch, names, above) for branch in schema]
        return 1 + min(least for least, _ in parts), max(memory for _, memory in parts)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "fixed":
        return schema["size"], _VALUE_BYTES + schema["size"]
    return {"null": 0, "float": 4, "double": 8}.get(kind, 1), _VALUE_BYTES


_MOST_LEVELS, _MOST_NODES = 200, 50_000  # of a schema, with the levels of its JSON
_MOST = {
    "scale": 1_000,
    "precision": 1_000,
    "size": 64 << 20,
}  # of digits, and of the bytes of a fixed: no honest schema has more
_MOST_BYTES, _OBJECT_BYTES = 64 << 20, 512 << 20
_DICT_BYTES, _VALUE_BYTES = 200, 40  # of a dict of a few fields, and of a value and its place


def _takes_nothing(schema: Schema, empty: set[str]) -> bool:
    if isinstance(schema, dict):
        return schema["type"] == "null" or schema.get("name") in empty or schema.get("size") == 0
    return schema == "null" or (isinstance(schema, str) and schema in empty)
