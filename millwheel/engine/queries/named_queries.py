"""Named queries: those of the pipeline's file, overridden by those that were set while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millwheel.core.pipeline.query_changes import QueryChanges
from millwheel.core.pipeline.spec import QuerySpec
from millwheel.engine.queries.formulas import NamedFormula


class NamedQueries:
    """Formulas by name. :attr:`formulas` is replaced as a whole, so any thread may read it."""

    def __init__(
        self, specs: Sequence[QuerySpec] = (), computations: frozenset[str] = frozenset()
    ) -> None:
        self._own = tuple(specs)
        self._computations = computations
        self.number = 0
        self.formulas: Mapping[str, NamedFormula] = _compiled(specs)

    def change(self, changes: QueryChanges) -> list[str]:
        """Apply a table of changes. Returns a sentence for each row that is left out, because it is
        not a formula or has the name of a computation."""
        specs, problems = merged(self._own, changes), []
        for row in changes.rows:
            problem = _problem(row.spec, self._computations) if row.formula else ""
            if problem:
                specs.pop(row.name, None)
                problems.append(f"the query {row.name} is left out: {problem}")
        self.number, self.formulas = changes.number, _compiled(list(specs.values()))
        return problems


def merged(own: Sequence[QuerySpec], changes: QueryChanges) -> dict[str, QuerySpec]:
    """All queries, by name."""
    queries = {spec.name: spec for spec in own}
    for row in changes.rows:
        queries.pop(row.name, None)
        if row.formula:
            queries[row.name] = row.spec
    return queries


def _compiled(specs: Sequence[QuerySpec]) -> dict[str, NamedFormula]:
    return {spec.name: NamedFormula.of(spec) for spec in specs}


def _problem(spec: QuerySpec, computations: frozenset[str]) -> str:
    if spec.name in computations:
        return "a computation has that name"
    try:
        NamedFormula.of(spec)
    except ValueError as ex:
        return str(ex)
    return ""
