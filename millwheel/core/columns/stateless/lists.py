"""Lists as columns: results of an expression, where a record goes on once with each entry."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from millwheel.core.columns.stateless.stages import column_of
from millwheel.core.expressions.columns import value_over_columns
from millwheel.core.expressions.declaration import Dialect
from millwheel.core.expressions.terms import RECORD, NoColumns, Term, exact_of
from millwheel.core.lazy_polars import pl

_SPLIT = "split"
"""The function whose lists have a column form."""


def entries_over_columns(tree: ast.expr, fields: Mapping[str, str], dialect: Dialect) -> Term:
    """The list that an expression over declared fields gives, which is never empty: a column of
    lists, with the kind of their entries. Fields may hold nulls as in
    :func:`.value_over_columns`. Raises NoColumns."""
    if isinstance(tree, ast.List | ast.Tuple):
        terms = [value_over_columns(each, fields, dialect) for each in tree.elts]
        kinds = {term.kind for term in terms}
        if len(kinds) != 1 or kinds == {RECORD}:
            raise NoColumns
        column = pl.concat_list([column_of(term) for term in terms])
        return Term(column, kinds.pop(), exact=exact_of(terms))
    if (
        isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and tree.func.id == _SPLIT
        and tree.func.id not in dialect.own
        and len(tree.args) == 2
        and not tree.keywords
    ):
        return _parts(tree.args[0], tree.args[1], fields, dialect)
    raise NoColumns


def _parts(
    text: ast.expr, separator: ast.expr, fields: Mapping[str, str], dialect: Dialect
) -> Term:
    """The parts of a text between separators; a null has none, and not no parts."""
    if not isinstance(separator, ast.Constant) or type(separator.value) is not str:
        raise NoColumns
    term = value_over_columns(text, fields, dialect)
    if term.kind != "str" or term.constant is not None:
        raise NoColumns
    strict = replace(term, exact=(*term.exact, term.column.is_not_null())).settled
    return Term(strict.column.str.split(separator.value), "str", exact=strict.exact)
