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
    """The column that ``a.b`` reads; "" for any other expression. What lies deeper, ``a.b.c``, is
    read record by record."""
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        return inner_name(tree.value.id, tree.attr)
    return ""


def columns_read(expression: Expression) -> tuple[str, ...]:
    """The columns that an expression reads: its fields, in order, and in place of those of which it
    reads inner ones only, these."""
    paths = {path: path[len(_MARK) :].split(".")[0] for path in _paths(expression.tree)}
    if not paths:
        return expression.fields
    whole = {node.id for node in _names(expression.tree)}
    alone = [name for name in expression.fields if name not in paths.values() or name in whole]
    return (*alone, *paths)


def with_inner_fields(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """The frame with those of the columns that are fields within its fields. One that is not there
    is left out."""
    added = []
    for name in names:
        outer, _, inner = plainly_named(name).partition(".")
        if not is_inner(name) or name in frame.columns or outer not in frame.columns:
            continue
        kind = frame.schema[outer]
        if isinstance(kind, pl.Struct) and inner in (field.name for field in kind.fields):
            added.append(frame[outer].struct.field(inner).alias(name))
    return frame.with_columns(added) if added else frame


def _paths(tree: ast.AST) -> Iterator[str]:
    return filter(None, map(inner_path, ast.walk(tree)))


def _names(tree: ast.AST) -> Iterator[ast.Name]:
    """The names in an expression that are not the outer field of ``a.b``."""
    if isinstance(tree, ast.Name):
        yield tree
    elif not inner_path(tree):
        for node in ast.iter_child_nodes(tree):
            yield from _names(node)
