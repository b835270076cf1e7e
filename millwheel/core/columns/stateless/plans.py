"""From a computation without state (steps, branches, an enrichment with a table that is held whole)
to its column form, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.clean import is_pattern
from millwheel.core.columns.key_columns import fields_read, kinds_of_key
from millwheel.core.columns.stateless.lists import entries_over_columns
from millwheel.core.columns.stateless.stages import (
    ColumnStep,
    StatelessPlan,
    Way,
    column_of,
)
from millwheel.core.expressions.columns import (
    fields_computed_with,
    truth_over_columns,
    value_over_columns,
)
from millwheel.core.expressions.declaration import NullLogic
from millwheel.core.expressions.inner_fields import (
    columns_read,
    inner_path,
    is_inner,
    is_within,
    kind_with_inner,
    path_of,
    plainly_named,
    with_inner_fields,
)
from millwheel.core.expressions.terms import NoColumns, Term, exact_of
from millwheel.core.lazy_polars import pl
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, Delivery, Productions
from millwheel.core.pipeline.steps import step_text
from millwheel.core.pipeline.work import (
    AggregationSpec,
    BranchesSpec,
    EnrichSpec,
    StepKind,
    StepSpec,
    StepsSpec,
)
from millwheel.core.windows.panes import RETRACTION_FIELD

Compile = Callable[[str], Any]
_KINDS = ("int", "float", "str", "bool")
_MOST_FIELDS = 4
"""The most fields of an expression for which all types are tried for a column form."""


@dataclass(slots=True)
class _Draft:
    """A plan while it is made. ``fields`` are the types of the fields behind the steps so far."""

    fields: Mapping[str, str]
    compile_expression: Compile
    stages: list[ColumnStep]
    takes_nulls: bool = False

    def term(self, text: str, truth: bool) -> Term:
        """The expression over the fields. Raises NoColumns, with a phrase."""
        compiled = self.compile_expression(text)
        self.takes_nulls |= compiled.dialect.nulls is NullLogic.SQL
        try:
            translate = truth_over_columns if truth else value_over_columns
            term: Term = translate(compiled.tree, self.fields, compiled.dialect)
        except NoColumns:
            raise self.without(text) from None
        return term

    def entries(self, text: str) -> Term:
        """The list that the expression gives, likewise."""
        compiled = self.compile_expression(text)
        self.takes_nulls |= compiled.dialect.nulls is NullLogic.SQL
        try:
            return entries_over_columns(compiled.tree, self.fields, compiled.dialect)
        except NoColumns:
            raise self.without(text) from None

    def without(self, text: str) -> NoColumns:
        """Why an expression has no column form."""
        unknown = sorted({*columns_read(self.compile_expression(text))} - self.fields.keys())
        why = f": the type of {plainly_named(unknown[0])} is not known" if unknown else ""
        return NoColumns(f"`{text[:60]}` has no column form{why}")

    def read(self, texts: Iterable[str], truth: bool) -> tuple[dict[str, str], dict[str, str]]:
        """The types of the fields that expressions compute with, and of others that they read. A
        ``truth`` is computed even where it is a field alone."""
        compiled = [self.compile_expression(text) for text in texts]
        computed = {name for each in compiled for name in fields_computed_with(each.tree)}
        alone = [each for each in compiled if truth and (each.is_field or inner_path(each.tree))]
        computed |= {name for each in alone for name in columns_read(each)}
        names = dict.fromkeys(name for each in compiled for name in columns_read(each))
        return (
            {name: self.fields[name] for name in names if name in computed},
            {name: self.fields[name] for name in names if name not in computed},
        )

    def within(self, same: Iterable[str]) -> tuple[pl.Expr, ...]:
        """Conditions for records that have the fields within fields: a null that is passed on is
        that of the field itself. With the nulls of SQL it may be that of a field around it."""
        return () if self.takes_nulls else tuple(map(is_within, filter(is_inner, same)))

    def keep(self, text: str) -> None:
        """A filter."""
        term = self.term(text, truth=True)
        kinds, same = self.read([text], truth=True)
        exact = (*self.within(same), *term.exact)
        self.stages.append(
            ColumnStep(kinds, same, exact, keeps=term.column, takes_nulls=self.takes_nulls)
        )

    def make(self, fields: Mapping[str, str]) -> None:
        """A projection."""
        terms = {name: self.term(text, truth=False) for name, text in fields.items()}
        kinds, same = self.read(fields.values(), truth=False)
        self.stages.append(
            ColumnStep(
                kinds,
                same,
                (*self.within(same), *exact_of([*terms.values()])),
                makes=tuple(column_of(term).alias(name) for name, term in terms.items()),
                takes_nulls=self.takes_nulls,
            )
        )
        self.fields = {name: term.kind for name, term in terms.items()}

    def multiply(self, name: str, text: str) -> None:
        """A record for each entry of a list."""
        if any(path_of(each)[0] == name for each in filter(is_inner, self.fields)):
            raise NoColumns(f"`{text[:60]}` replaces {name}, of which fields are read")
        term = self.entries(text)
        kinds, same = self.read([text], truth=False)
        self.stages.append(
            ColumnStep(
                kinds,
                same,
                (*self.within(same), *term.exact),
                lists=(name, term.column),
                takes_nulls=self.takes_nulls,
            )
        )
        self.fields = {**self.fields, name: term.kind}

    def add(self, name: str, text: str) -> None:
        """A field behind the others."""
        term = self.term(text, truth=False)
        kinds, same = self.read([text], truth=False)
        exact, makes = (*self.within(same), *term.exact), (pl.all(), column_of(term).alias(name))
        self.stages.append(
            ColumnStep(kinds, same, exact, makes=makes, takes_nulls=self.takes_nulls)
        )
        self.fields = {**self.fields, name: term.kind}


def stateless_plan(
    spec: ComputationSpec, fields: Mapping[str, str], compile_expression: Compile
) -> StatelessPlan | str:
    """The plan for fields of these types, or why there is none, as a phrase."""
    draft = _Draft(fields, compile_expression, [])
    try:
        if isinstance(spec.work, BranchesSpec):
            return _branches(spec.work, draft)
        if isinstance(spec.work, EnrichSpec):
            by = _by(spec.work)
            if by.kind is not KeyKind.RECORD:
                kinds_of_key(by, fields, compile_expression)
            # The rows of the table determine the rest, once they are there.
            return StatelessPlan((), (), {})
        for step in spec.work_as(StepsSpec).steps:
            if step.kind is StepKind.FILTER:
                draft.keep(step.expression)
            elif step.kind is StepKind.FLAT_MAP:
                draft.multiply(*next(iter(step.fields.items())))
            else:
                draft.make(step.fields)
    except NoColumns as ex:
        return str(ex)
    ways = tuple(Way(stream) for stream in spec.outputs)
    return StatelessPlan(
        tuple(draft.stages), ways, _plainly(draft.fields), inner=tuple(filter(is_inner, fields))
    )


def result_plan(
    spec: ComputationSpec, fields: Mapping[str, str], compile_expression: Compile
) -> StatelessPlan | None:
    """The plan for ``then`` and ``having`` over results with fields of these types; None where each
    result is processed alone."""
    work = spec.work_as(AggregationSpec)
    draft = _Draft({name: kind for name, kind in fields.items() if kind}, compile_expression, [])
    if not {*work.then}.isdisjoint(fields):
        return None
    try:
        for name, text in work.then.items():
            draft.add(name, text)
        if work.having:
            draft.keep(work.having)
    except NoColumns:
        return None
    return StatelessPlan(tuple(draft.stages), tuple(map(Way, spec.outputs)), draft.fields)


def _branches(work: BranchesSpec, draft: _Draft) -> StatelessPlan:
    texts = [each.condition for each in work.branches if each.condition]
    terms = [draft.term(text, truth=True) for text in texts]
    kinds, same = draft.read(texts, truth=True)
    exact = (*draft.within(same), *exact_of(terms))
    return StatelessPlan(
        (ColumnStep(kinds, same, exact, takes_nulls=draft.takes_nulls),),
        tuple(
            Way(each.stream, term.column)
            for each, term in zip(
                (each for each in work.branches if each.condition), terms, strict=True
            )
        ),
        _plainly(draft.fields),
        tuple(each.stream for each in work.branches if not each.condition),
        not work.match_all,
        tuple(filter(is_inner, draft.fields)),
    )


def _plainly(fields: Mapping[str, str]) -> dict[str, str]:
    """The types of the fields that records have themselves."""
    return {name: kind for name, kind in fields.items() if not is_inner(name)}


def why_no_plan(spec: ComputationSpec, compile_expression: Compile, takes_retractions: bool) -> str:
    """Why steps or branches have no column form for any types of their fields, as a phrase; ""
    where they may have one."""
    if spec.productions is Productions.WEAK:
        return "weak productions have ids, which columns of results do not carry"
    if spec.ordered and len(spec.inputs) > 1:
        return "records of several streams wait for their order"
    if spec.ordered and spec.delivery is not Delivery.EXACTLY_ONCE:
        return "its records may come twice, and wait for their order"
    if takes_retractions:
        return "records can be taken back"
    if isinstance(spec.work, BranchesSpec):
        streams = [each.stream for each in spec.work.branches]
        if len(set(streams)) < len(streams):
            return "two branches lead to the same stream"
        return why_never([each.condition for each in spec.work.branches], [], compile_expression)
    if isinstance(spec.work, EnrichSpec):
        return _why_not_enriched(spec.work)
    for step in spec.work_as(StepsSpec).steps:
        if why := _why_not(step, compile_expression):
            return why
    return ""


def _by(work: EnrichSpec) -> KeySpec:
    """The key by which records find their rows in a table that is held whole."""
    assert work.broadcast is not None
    assert work.broadcast.by is not None
    return work.broadcast.by


def _why_not_enriched(work: EnrichSpec) -> str:
    by = _by(work)
    if by.kind is KeyKind.FUNCTION:
        return "its key is code of your own, which takes each record"
    if by.kind is KeyKind.ALL:
        return "all records have one key"
    if work.name == RETRACTION_FIELD or is_pattern(work.name):
        return "it makes a field that columns cannot have"
    return ""


def _why_not(step: StepSpec, compile_expression: Compile) -> str:
    if step.function:
        return "code of your own takes each record"
    if step.kind is not StepKind.FILTER and not step.fields:
        return f"`{step_text(step)[:60]}` makes values without fields"
    if RETRACTION_FIELD in step.fields or any(map(is_pattern, step.fields)):
        return f"`{step_text(step)[:60]}` makes a field that columns cannot have"
    if step.kind is StepKind.FLAT_MAP:
        asked: list[tuple[str, Ask]] = [(text, _Draft.entries) for text in step.fields.values()]
        return _why_never_asked(asked, compile_expression)
    tests = [step.expression] if step.kind is StepKind.FILTER else []
    return why_never(tests, list(step.fields.values()), compile_expression)


def why_never(tests: list[str], values: list[str], compile_expression: Compile) -> str:
    """Which expression has no column form for any types of its fields, as a phrase; "" for none."""
    asked = [*((text, _truth) for text in tests), *((text, _value) for text in values)]
    return _why_never_asked([each for each in asked if each[0]], compile_expression)


Ask = Callable[[_Draft, str], object]
"""A request for the form of an expression that a step needs. Raises NoColumns."""


def _truth(draft: _Draft, text: str) -> object:
    return draft.term(text, truth=True)


def _value(draft: _Draft, text: str) -> object:
    return draft.term(text, truth=False)


def _why_never_asked(asked: Sequence[tuple[str, Ask]], compile_expression: Compile) -> str:
    for text, ask in asked:
        names = columns_read(compile_expression(text))
        if patterns := sorted(filter(is_pattern, names)):
            return f"the library of columns takes the name of the field {patterns[0]} for a pattern"
        if len(names) <= _MOST_FIELDS and not _possible(text, ask, compile_expression):
            return f"`{text[:60]}` has no column form"
    return ""


@lru_cache(maxsize=1_000)  # it depends on nothing else
def _possible(text: str, ask: Ask, compile_expression: Compile) -> bool:
    """Whether an expression has a column form for some types of its fields."""
    names = columns_read(compile_expression(text))
    return any(
        _fits(text, ask, dict(zip(names, kinds, strict=True)), compile_expression)
        for kinds in product(_KINDS, repeat=len(names))
    )


def _fits(text: str, ask: Ask, fields: Mapping[str, str], compile_expression: Compile) -> bool:
    try:
        ask(_Draft(fields, compile_expression, []), text)
    except NoColumns:
        return False
    return True


class StatelessPlans:
    """The plans of a computation without state, by the types of the fields that come. ``needs`` are
    the fields that they read of their input, and ``key_fields`` those that its keys are read from.
    ``projects``: a step makes all the fields of the results; otherwise records are passed on as
    they come, with all of theirs."""

    def __init__(self, spec: ComputationSpec, compile_expression: Compile) -> None:
        self._spec = spec
        self._compile = compile_expression
        self._plans: dict[tuple[tuple[str, str], ...], StatelessPlan | str] = {}
        self.needs, self.projects = _read(spec, compile_expression)
        keys = (fields_read(each.key, compile_expression) for each in spec.inputs)
        self.key_fields = frozenset(name for names in keys for name in names)

    def plan(self, fields: Mapping[str, str]) -> StatelessPlan | None:
        """The plan for fields of these types, None when it has no column form."""
        plan = self.plan_or_why(fields)
        return plan if isinstance(plan, StatelessPlan) else None

    def plan_or_why(self, fields: Mapping[str, str]) -> StatelessPlan | str:
        """The same, with the reason."""
        typed = {name: kind for name, kind in fields.items() if kind}
        if self.projects:
            typed = {name: typed[name] for name in sorted(self.needs & typed.keys())}
        types = tuple(typed.items())
        if types not in self._plans:
            self._plans[types] = stateless_plan(self._spec, typed, self._compile)
        return self._plans[types]

    def of(self, batch: ColumnBatch) -> StatelessPlan | None:
        """The plan for a batch."""
        schema = with_inner_fields(batch.frame.head(0), self.needs).schema
        return self.plan({name: kind_with_inner(kind) for name, kind in schema.items()})


def _read(spec: ComputationSpec, compile_expression: Compile) -> tuple[frozenset[str], bool]:
    """The fields that are read of the input, and whether a step makes those of the results."""
    if isinstance(spec.work, BranchesSpec):
        texts = [each.condition for each in spec.work.branches if each.condition]
        return _names(texts, compile_expression), False
    if isinstance(spec.work, EnrichSpec):
        return frozenset(fields_read(_by(spec.work), compile_expression)), False
    needs: frozenset[str] = frozenset()
    made: set[str] = set()
    for step in spec.work_as(StepsSpec).steps:
        if step.kind is StepKind.FILTER:
            needs |= _names([step.expression], compile_expression) - made
        else:
            needs |= _names(step.fields.values(), compile_expression) - made
        if not step.passes_on:
            return needs, True
        made |= {*step.fields}
    return needs, False


def _names(texts: Iterable[str], compile_expression: Compile) -> frozenset[str]:
    return frozenset(name for text in texts for name in columns_read(compile_expression(text)))
