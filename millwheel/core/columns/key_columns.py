"""The parts of a key as columns: of which types they are, and how they are computed from fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millwheel.core.columns.clean import is_clean, is_pattern
from millwheel.core.expressions.columns import term_over_columns
from millwheel.core.expressions.inner_fields import (
    columns_read,
    plainly_named,
    with_inner_fields,
)
from millwheel.core.expressions.terms import NoColumns, Term
from millwheel.core.lazy_polars import kind_of, pl
from millwheel.core.pipeline.keys import EVERYTHING, INSTANCE, KeyKind, KeySpec

Compile = Callable[[str], Any]
_KINDS = ("int", "str")
_MOST_SHAPES = 64
"""The most combinations of types for which the columns of a key are remembered: a stream has one or
two."""


def fields_read(key: KeySpec, compile_expression: Compile) -> tuple[str, ...]:
    """The fields of a record that make its key; none where it does not consist of fields."""
    if key.plain:
        return key.names
    names = (name for text in key.texts for name in columns_read(compile_expression(text)))
    return tuple(dict.fromkeys(names))


def kinds_of_key(
    key: KeySpec, fields: Mapping[str, str], compile_expression: Compile
) -> dict[str, str]:
    """The type of each part of a key, by name, for fields of these types. Raises NoColumns, with
    the reason as a phrase."""
    kinds = {INSTANCE: "int"} if key.instances > 1 else {}
    if key.kind is KeyKind.ALL:
        return {"key": "str", **kinds}
    if len(set(key.names)) < len(key.names):
        raise NoColumns("its key has the same field twice")
    parts = {}
    for name, text in zip(key.names, key.texts or key.names, strict=True):
        kind = fields.get(name) if key.plain else _term(text, fields, compile_expression).kind
        if kind not in _KINDS:
            raise NoColumns(f"the key {name} is not declared as int or str")
        parts[name] = kind
    return {**parts, **kinds}


def _term(text: str, fields: Mapping[str, str], compile_expression: Compile) -> Term:
    expression = compile_expression(text)
    try:
        term = term_over_columns(expression.tree, fields, expression.dialect)
    except NoColumns:
        unknown = sorted({*columns_read(expression)} - fields.keys())
        why = f": its field {plainly_named(unknown[0])} is not declared" if unknown else ""
        raise NoColumns(f"the key {text} has no column form{why}") from None
    if term.kind not in _KINDS:
        raise NoColumns(f"the key {text} is not an int or str")
    return term


class KeyColumns:
    """Computes keys that are made of expressions from columns of fields."""

    def __init__(self, key: KeySpec, compile_expression: Compile) -> None:
        self._key = key
        self._compile = compile_expression
        self._reads = fields_read(key, compile_expression)
        self._shapes: dict[tuple[tuple[str, str], ...], Sequence[Term] | None] = {}

    def parts(self, frame: pl.DataFrame) -> list[pl.Series] | None:
        """The parts of the keys of records with these fields. None where they must be computed
        record by record: a record has no key, or another one than in the row form."""
        frame = with_inner_fields(frame, self._reads)
        types = {name: kind_of(frame[name].dtype) for name in self._reads if name in frame.columns}
        terms = self._terms(types)
        if terms is None or not is_clean(frame, types):
            return None
        exact = [check.all() for term in terms for check in term.exact]
        if exact and not all(
            frame.select(each.alias(str(at)) for at, each in enumerate(exact)).row(0)
        ):
            return None
        columns = [term.column.alias(name) for name, term in self._named(terms)]
        parts = frame.select(columns).get_columns()
        return None if any(part.null_count() for part in parts) else parts

    def _named(self, terms: Sequence[Term]) -> Sequence[tuple[str, Term]]:
        return list(zip(self._key.names, terms, strict=True))

    def _terms(self, types: Mapping[str, str]) -> Sequence[Term] | None:
        shape = tuple(sorted(types.items()))
        if shape not in self._shapes:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = self._translated(types)
        return self._shapes[shape]

    def _translated(self, types: Mapping[str, str]) -> Sequence[Term] | None:
        if any(name not in types or is_pattern(name) for name in self._reads):
            return None
        try:
            return [_term(text, types, self._compile) for text in self._key.texts]
        except NoColumns:
            return None


def everything(records: int) -> pl.Series:
    """The keys of so many records of ``key: all``."""
    keys: pl.Series = pl.Series("key", [EVERYTHING], pl.String).new_from_index(0, records)
    return keys
