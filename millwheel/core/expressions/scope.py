"""The scope in which an expression is translated: the types of its fields, the meaning of nulls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millwheel.core.expressions.declaration import PLAIN, Dialect, NullLogic
from millwheel.core.expressions.terms import NULL, RECORD, NoColumns, Term, exact_of
from millwheel.core.lazy_polars import pl

ANY_VALUE: Mapping[str, Any] = {"int": 1, "float": 1.0, "str": "", "bool": False}
"""The substitutes for nulls in computations whose results are not used."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Fields with their kinds. With :attr:`NullLogic.SQL` they may hold nulls, and every term has
    null where the row form has it; all its ``exact`` are true or false, never null."""

    fields: Mapping[str, str]
    dialect: Dialect = PLAIN

    @property
    def three_valued(self) -> bool:
        return self.dialect.nulls is NullLogic.SQL

    def taken(self, term: Term) -> Term:
        """The term for a computation: where it is null, the computation goes by rows, or gives
        null. Raises NoColumns for a record, as the next one."""
        _no_record(term)
        return replace(term, present=()) if self.three_valued else term.settled

    def passed(self, term: Term) -> Term:
        """The term for a choice among values, of which one may be null."""
        _no_record(term)
        return replace(term, present=()) if self.three_valued else term

    def strict(self, terms: Sequence[Term], make: Callable[[Sequence[Term]], Term]) -> Term:
        """The result of ``make``, null where one of the terms is null."""
        if not self.three_valued:
            return make(terms)
        open_terms = [each for each in terms if each.constant is None and each.kind != NULL]
        if not open_terms:
            return make(terms)
        null = pl.any_horizontal([each.column.is_null() for each in open_terms])
        made = make([_filled(each) for each in terms])
        return Term(
            pl.when(null).then(None).otherwise(made.column),
            made.kind,
            exact=(*exact_of(terms), *(null | each for each in made.exact)),
        )

    def decided(self, truth: pl.Expr) -> pl.Expr:
        """Where a truth is true, and not unknown."""
        return truth.fill_null(False) if self.three_valued else truth

    def passing(self, exact: pl.Expr) -> pl.Expr:
        """Where a check holds, as it does for null."""
        return exact.fill_null(True) if self.three_valued else exact


def _no_record(term: Term) -> None:
    """Raises NoColumns for a record: columns would make the fields of all records alike."""
    if term.kind == RECORD:
        raise NoColumns


def _filled(term: Term) -> Term:
    """The term without nulls; its own checks are made elsewhere."""
    if term.constant is not None or term.kind == NULL:
        return term
    return replace(term, column=term.column.fill_null(ANY_VALUE[term.kind]), exact=(), present=())
