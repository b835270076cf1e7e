"""Fields within fields, ``bid.price``, as columns.

The records of a join have a struct for each of its inputs. A field of one that expressions read
becomes a column of its own, with a name that no field of a record has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from millwheel.core.expressions.terms import RECORD
from millwheel.core.lazy_polars import kind_of, pl

if TYPE_CHECKING:
    from millwheel.core.expressions.language import Expression

_MARK = "\0."


def inner_name(*names: str) -> str:
    """The name of the column of a field within a field; the first is that of the outer one."""
    return _MARK + ".".join(names)


def is_inner(name: str) -> bool:
    """Whether a column is one of a field within a field."""
    return name.startswith(_MARK)


def plainly_named(name: str) -> str:
    """The name of a column as it is written in expressions."""
    return name.removeprefix(_MARK)


def path_of(name: str) -> list[str]:
    """The names that lead to a column: for a field of the record itself, its own."""
    return plainly_named(name).split(".") if is_inner(name) else [name]


def inner_path(tree: ast.AST) -> str:
    """The column that ``a.b`` reads, or ``a.b.c``; "" for any other expression."""
    names: list[str] = []
    while isinstance(tree, ast.Attribute):
        names.append(tree.attr)
        tree = tree.value
    return inner_name(tree.id, *reversed(names)) if names and isinstance(tree, ast.Name) else ""


def kind_with_inner(polars_type: Any) -> str:
    """The kind of a column, which may be one of records; "" for other types."""
    return RECORD if isinstance(polars_type, pl.Struct) else kind_of(polars_type)


def is_within(name: str) -> pl.Expr:
    """Whether there is a record that could have a field within fields. (The field may be null.)"""
    outer, *inner = path_of(name)
    column = pl.col(outer)
    there = [column.is_not_null()]
    for each in inner[:-1]:
        column = column.struct.field(each)
        there.append(column.is_not_null())
    return pl.all_horizontal(there)


def columns_read(expression: Expression) -> tuple[str, ...]:
    """The columns that an expression reads: its fields, in order; in place of a field of which it
    reads only inner fields, these."""
    read = [*_read(expression.tree)]
    paths = dict.fromkeys(filter(is_inner, read))
    outer = {plainly_named(path).split(".")[0] for path in paths} - {*read}
    return (*(name for name in expression.fields if name not in outer), *paths)


def with_inner_fields(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """The frame with columns for the ``names`` that are fields within its fields. Missing ones are
    left out."""
    added = []
    for name in filter(is_inner, names):
        outer, *inner = path_of(name)
        if name in frame.columns or outer not in frame.columns:
            continue
        column: pl.Series | None = frame[outer]
        for each in inner:
            column = _within(column, each)
        if column is not None:
            added.append(column.alias(name))
    return frame.with_columns(added) if added else frame


def as_records(columns: Iterable[pl.Series]) -> list[pl.Series]:
    """Columns, with those of fields within fields back in records: the inverse of
    :func:`with_inner_fields`."""
    return _nested({tuple(path_of(column.name)): column for column in columns})


def _nested(columns: Mapping[tuple[str, ...], pl.Series]) -> list[pl.Series]:
    parts: dict[str, dict[tuple[str, ...], pl.Series]] = {}
    for (name, *path), column in columns.items():
        parts.setdefault(name, {})[tuple(path)] = column
    return [
        own[()].alias(name) if () in own else pl.DataFrame(_nested(own)).to_struct(name)
        for name, own in parts.items()
    ]


def _within(column: pl.Series | None, name: str) -> pl.Series | None:
    kind = None if column is None else column.dtype
    if column is None or not isinstance(kind, pl.Struct):
        return None
    return column.struct.field(name) if name in (each.name for each in kind.fields) else None


def _read(tree: ast.AST) -> Iterator[str]:
    """The names in an expression, and the inner fields."""
    if path := inner_path(tree):
        yield path
    elif isinstance(tree, ast.Name):
        yield tree.id
    else:
        for node in ast.iter_child_nodes(tree):
            yield from _read(node)
