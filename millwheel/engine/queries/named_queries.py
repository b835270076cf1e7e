"""Named queries: formulas over the values of several computations, and their answers from theirs.
Queries in the pipeline's file are overridden by queries that are set while it runs.

Null rules: division by zero gives null; so does every operation on a null
value; a comparison with null is false, as in expressions.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from millwheel.core.expressions.language import (
    Compile,
    Formula,
    compile_expression,
    foreign_formula,
    formula_of,
)
from millwheel.core.instants.decimals import NO_SCALES, beyond, in_units_again, with_decimals
from millwheel.core.model.keys import Key
from millwheel.core.pipeline.query_changes import QueryChanges
from millwheel.core.pipeline.spec import KeptKinds, QuerySpec
from millwheel.engine.queries.model import Answer, Consistency, Query, QueryError
from millwheel.errors import MillwheelError, RecordError
from millwheel.language.spec.typed.decimals import has_decimals
from millwheel.language.spec.typed.formulas import TypedFormula, typed_formula

K = TypeVar("K")
V = TypeVar("V")
_ENTRY_BYTES = 200  # of an entry beside what it holds


NO_KINDS: Mapping[str, KeptKinds] = MappingProxyType({})
"""Of a pipeline without decimals."""
LITERAL = "value"
"""The name of the value of an unnamed formula."""
# the characters of names of computations and queries; a formula has others
_PLAIN = re.compile(r"[\w.-]+")
_WEAKNESS = (Consistency.DURABLE, Consistency.STANDBY, Consistency.LATEST)


@dataclass(frozen=True, slots=True)
class NamedFormula:
    """A query with its compiled formula."""

    spec: QuerySpec
    typed: TypedFormula

    @staticmethod
    def of(
        spec: QuerySpec,
        kept: Mapping[str, KeptKinds] = NO_KINDS,
        compile_text: Compile = compile_expression,
    ) -> NamedFormula:
        """``kept`` are the kinds of the values that computations keep; ``compile_text`` compiles
        the language of named queries. Raises ValueError if the formula is not an expression over
        computations."""
        formula = formula_of(spec.formula, compile_text)
        return NamedFormula(spec, typed_formula(spec.formula, formula, kept, compile_text))

    @property
    def formula(self) -> Formula:
        """The formula, over whole units where it reads decimals."""
        return self.typed.formula

    @property
    def computations(self) -> tuple[str, ...]:
        """The computations that the formula reads, each once."""
        return self.formula.computations

    def questions(self, query: Query, keys: Mapping[str, Key] | None = None) -> list[Query]:
        """The questions whose answers the formula needs, one per computation. ``keys`` by
        computation, where they were computed already. Raises QueryError."""
        window_us = self.spec.window_us if query.window_us is None else query.window_us
        keys_by_name = (
            {name: self.key_for(name, query.key) for name in self.computations}
            if keys is None
            else keys
        )
        return [
            replace(query, indicator=name, key=keys_by_name[name], window_us=window_us)
            for name in self.computations
        ]

    def result(self, answers: Sequence[Answer]) -> Answer:
        """The answer of the formula, from those of :attr:`computations` in their order. Its span is
        the union of their spans. It is complete if all of them are complete and cover the same
        span. Its consistency is the weakest of theirs; shard and commit are those of the first."""
        values = {
            name: answer.values for name, answer in zip(self.computations, answers, strict=True)
        }
        weakest = max(answers, key=lambda answer: _WEAKNESS.index(answer.consistency))
        lags = [answer.lag_us for answer in answers if answer.lag_us is not None]
        starts = {answer.covered_start_us for answer in answers}
        ends = {answer.covered_end_us for answer in answers}
        return replace(
            answers[0],
            values={self.spec.name: self.value(values)},
            covered_start_us=min((start for start in starts if start is not None), default=None),
            covered_end_us=max((end for end in ends if end is not None), default=None),
            watermark_us=min(answer.watermark_us for answer in answers),
            complete=len(starts) == len(ends) == 1 and all(answer.complete for answer in answers),
            consistency=weakest.consistency,
            lag_us=max(lags, default=None),
        )

    def value(self, values: Mapping[str, Mapping[str, object]]) -> Any:
        """The value of the formula for the values of each computation, by name; None by the null
        rules."""
        scales = self.typed.scales
        record: dict[str, Any] = {
            name: in_units_again(dict(values[name]), scales.get(name, NO_SCALES))
            for name in self.computations
        }
        read = [_read(record, computation, value) for computation, value in self.formula.used]
        for computation, value in self.formula.used:
            if not value:
                record[computation] = next(iter(record[computation].values()))
        try:
            return _answerable(self._shown(self.formula.expression.evaluate(record)))
        except RecordError as ex:
            if None in read or str(ex).endswith("by zero"):
                return None
            raise QueryError(
                "bad_value", f"the query {self.spec.name} has no value: {ex}"
            ) from None

    def _shown(self, value: Any) -> Any:
        """The value as answers have it. Raises RecordError for units that are no longer exact."""
        scale = self.typed.kind
        if not has_decimals(scale):
            return value
        if problem := beyond(value, scale):
            raise RecordError(problem)
        return with_decimals(value, scale)

    def key_for(self, computation: str, key: Any) -> Any:
        """The key of a computation, made of parts of the question's key."""
        key_names = self.spec.keys.get(computation)
        if key_names is None:
            return key
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != len(self.spec.key):
            names = ", ".join(self.spec.key)
            raise QueryError(
                "wrong_key", f"the key of {self.spec.name} has {len(self.spec.key)} parts ({names})"
            )
        values = tuple(parts[self.spec.key.index(name)] for name in key_names)
        return values if len(values) > 1 else values[0]


def _answerable(value: Any) -> Any:
    """A value that an answer can hold. Raises RecordError for another one."""
    if type(value) in (float, str, bool, type(None)):
        return value
    try:
        _json(value)
    except (OverflowError, TypeError, RecursionError, UnicodeEncodeError):
        raise RecordError("its value is too large, or of a kind that JSON does not have") from None
    return value


_json = msgspec.json.Encoder().encode


def _read(record: Mapping[str, Any], computation: str, value: str) -> Any:
    values = record[computation]
    if value:
        if value not in values:
            raise QueryError(
                "unknown_indicator",
                f"{computation} has no {value!r}; it has {', '.join(sorted(values))}",
            )
        return values[value]
    if len(values) != 1:
        raise QueryError(
            "unknown_indicator",
            f"{computation} has {len(values)} values; name one: {computation}.NAME",
        )
    return next(iter(values.values()))


def literal(text: str, kept: Mapping[str, KeptKinds] = NO_KINDS) -> NamedFormula:
    """The formula that a question contains: one of a client, whose cost is bounded. Raises
    QueryError if it is not an expression over computations."""
    formula = None if kept else _literals.get(text)
    if formula is not None:
        return formula
    try:
        typed = typed_formula(text, foreign_formula(text), kept)
        named_formula = NamedFormula(QuerySpec(LITERAL, text), typed)
    except ValueError as ex:
        raise QueryError("bad_formula", f"{text[:80]!r} is not a formula: {ex}") from None
    if not kept:  # another pipeline may be asked in this process, with other kinds
        _literals.keep(text, named_formula, len(text) * _BYTES_OF_A_CHARACTER)
    return named_formula


def formula_asked(
    indicator: str,
    named: Mapping[str, NamedFormula],
    kept: Mapping[str, KeptKinds] = NO_KINDS,
) -> NamedFormula | None:
    """The formula that an indicator stands for: a named one, or one that it spells out; None for an
    indicator of one computation. Raises QueryError if it spells out no formula."""
    formula = named.get(indicator)
    return (
        literal(indicator, kept) if formula is None and not _PLAIN.fullmatch(indicator) else formula
    )


class KeptTexts(Generic[K, V]):
    """A cache of values by texts that clients send: about ``most_bytes`` together, since clients
    choose how long the texts are. Beyond that all of them are forgotten at once: that is rare,
    because clients repeat their questions. Several threads may use it; they may then do the same
    work twice."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._values: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value, or None."""
        return self._values.get(key)

    def keep(self, key: K, value: V, size: int) -> None:
        """Keep a value that holds about ``size`` bytes. One that is larger than the whole cache is
        not kept."""
        size += _ENTRY_BYTES
        if self._bytes + size > self._most:
            self._values.clear()
            self._bytes = 0
        if size <= self._most:
            self._values[key] = value
            self._bytes += size


_BYTES_OF_A_CHARACTER = 200
"""About the memory of a compiled formula for each character of its text: it is a tree of
closures."""
_literals: KeptTexts[str, NamedFormula] = KeptTexts(16 << 20)


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
        """``kept`` are the kinds of the values that the computations keep, where there are
        decimals; ``compile_text`` compiles the language of the queries."""
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
        """Read them now, because they may have changed (any thread)."""
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
