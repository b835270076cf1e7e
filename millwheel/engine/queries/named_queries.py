"""Named queries: those of the pipeline's file, overridden by those that were set while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.core.expressions.formulas import Compile
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.query_changes import QueryChanges
from millwheel.core.pipeline.spec import KeptKinds, QuerySpec
from millwheel.engine.queries.formulas import NO_KINDS, NamedFormula


class NamedQueries:
    """Formulas by name. :attr:`formulas` is replaced as a whole, so any thread may read it."""

    def __init__(
        self,
        specs: Sequence[QuerySpec] = (),
        computations: frozenset[str] = frozenset(),
        kept: Mapping[str, KeptKinds] = NO_KINDS,
        compile_text: Compile = compile_expression,
    ) -> None:
        """``kept`` are the kinds of what the computations keep, where there are decimals;
        ``compile_text`` is of the language of the queries."""
        self.kept = kept
        self._compile = compile_text
        self._own = tuple(specs)
        self._computations = computations
        self.number = 0
        self.formulas: Mapping[str, NamedFormula] = self._compiled(specs)

    def change(self, changes: QueryChanges) -> list[str]:
        """Apply a table of changes. Returns a sentence for each row that is left out, because it is
        not a formula or has the name of a computation."""
        specs, problems = merged(self._own, changes), []
        for row in changes.rows:
            problem = self._problem(row.spec) if row.formula else ""
            if problem:
                specs.pop(row.name, None)
                problems.append(f"the query {row.name} is left out: {problem}")
        self.number, self.formulas = changes.number, self._compiled(list(specs.values()))
        return problems

    def _compiled(self, specs: Sequence[QuerySpec]) -> dict[str, NamedFormula]:
        return {spec.name: NamedFormula.of(spec, self.kept, self._compile) for spec in specs}

    def _problem(self, spec: QuerySpec) -> str:
        if spec.name in self._computations:
            return "a computation has that name"
        try:
            NamedFormula.of(spec, self.kept, self._compile)
        except ValueError as ex:
            return str(ex)
        return ""


def merged(own: Sequence[QuerySpec], changes: QueryChanges) -> dict[str, QuerySpec]:
    """All queries, by name."""
    queries = {spec.name: spec for spec in own}
    for row in changes.rows:
        queries.pop(row.name, None)
        if row.formula:
            queries[row.name] = row.spec
    return queries
