"""Named queries: those of the pipeline's file, overridden by those that were set while it runs,
which are followed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from millwheel.core.expressions.language import Compile, compile_expression
from millwheel.core.pipeline.query_changes import QueryChanges
from millwheel.core.pipeline.spec import KeptKinds, QuerySpec
from millwheel.engine.queries.formulas import NO_KINDS, NamedFormula
from millwheel.errors import MillwheelError

_LOOK_S = 10.0  # between two reads, in case a notification was lost
_log = logging.getLogger("millwheel.queries")


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


class ChangesRead(Protocol):
    """Reads the named queries that were set while the pipeline runs."""

    def read(self, latest: QueryChanges | None = None) -> QueryChanges:
        """The newest table of changes; ``latest`` itself if nothing has changed since."""


class NamedFollower:
    """Keeps named queries equal to those in the root, on a thread of its own."""

    def __init__(self, named: NamedQueries, changes: ChangesRead) -> None:
        self._named = named
        self._changes = changes
        self._latest: QueryChanges | None = None
        self._news = threading.Event()
        self._over = False

    def begin(self) -> None:
        """Read them once, then follow them until :meth:`end`. If the root does not answer, the
        first read is left to the thread."""
        self._look()
        threading.Thread(target=self._follow, name="named queries", daemon=True).start()

    def changed(self) -> None:
        """They may have changed: read them now (any thread)."""
        self._news.set()

    def end(self) -> None:
        """Stop following."""
        self._over = True
        self._news.set()

    def _follow(self) -> None:
        while not self._over:
            self._news.wait(_LOOK_S)
            self._news.clear()
            self._look()

    def _look(self) -> None:
        try:
            changes = self._changes.read(self._latest)
        except (MillwheelError, OSError) as ex:  # queries known so far stay available
            _log.warning("named queries are not followed: %s", ex)
            return
        if changes is not self._latest:
            self._latest = changes
            for problem in self._named.change(changes):
                _log.warning("%s", problem)
