"""Fields within fields, ``bid.price``, as columns.

The records of a join have a struct for each of its inputs. What expressions read of one becomes a
column of its own, with a name that no field of a record has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from millwheel.core.lazy_polars import pl

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
    """The name of a column as people write it."""
    return name.removeprefix(_MARK)


def inner_path(tree: ast.AST) -> str:
    """The column that ``a.b`` reads, or ``a.b.c``; "" for any other expression."""
    names: list[str] = []
    while isinstance(tree, ast.Attribute):
        names.append(tree.attr)
        tree = tree.value
    return inner_name(tree.id, *reversed(names)) if names and isinstance(tree, ast.Name) else ""


def columns_read(expression: Expression) -> tuple[str, ...]:
    """The columns that an expression reads: its fields, in order, and in place of those of which it
    reads inner ones only, these."""
    read = [*_read(expression.tree)]
    paths = dict.fromkeys(filter(is_inner, read))
    outer = {plainly_named(path).split(".")[0] for path in paths} - {*read}
    return (*(name for name in expression.fields if name not in outer), *paths)


def with_inner_fields(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """The frame with those of the columns that are fields within its fields. One that is not there
    is left out."""
    added = []
    for name in filter(is_inner, names):
        outer, *inner = plainly_named(name).split(".")
        if name in frame.columns or outer not in frame.columns:
            continue
        column: pl.Series | None = frame[outer]
        for each in inner:
            column = _within(column, each)
        if column is not None:
            added.append(column.alias(name))
    return frame.with_columns(added) if added else frame


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
