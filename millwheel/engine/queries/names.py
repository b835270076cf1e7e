"""Names in the Redis protocol, and the queries that they stand for: ``clicks:42:3h``,
``clicks.n:{a:b}:3h@1700000000000000``.

    INDICATOR ":" KEY [":" WINDOW ["@" MICROS]]
    QUERY ":" KEY ["@" MICROS]
    COMPUTATION ":" KEY ["@" START]    the newest result, or the window that begins then

The indicator ends at the first colon. The part after the last colon is the window if it is a
duration; otherwise it belongs to the key. Braces around the whole key do not belong to it: they let
clients of Redis Cluster compute the slot from the key alone, and they allow keys that end like a
window. A key in double quotes is text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import msgspec

from millwheel.connect.own_functions import named_alone
from millwheel.core.expressions.columns import kind_of_value
from millwheel.core.expressions.language import Language
from millwheel.core.instants.decimals import (
    MOST_DIGITS,
    NO_SCALES,
    Scales,
    beyond,
    decimal_form,
    with_decimals,
)
from millwheel.core.model.keys import Key, check_key
from millwheel.core.model.times import duration_text, duration_us
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, KeptKinds, PipelineSpec, QuerySpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.engine.queries.model import Answer, Consistency, Mode, Query, QueryError
from millwheel.engine.queries.named_queries import (
    KeptTexts,
    NamedFormula,
    NamedQueries,
    formula_asked,
)
from millwheel.errors import MillwheelError, RecordError
from millwheel.language.spec.typed.decimals import has_decimals, scales_of

MAX_NAME_BYTES = 4_096
"""The longest name: names come from outside, and a key has 1 KiB at most by default."""
_PLANS_BYTES = 32 << 20
"""Of the plans that are kept: a dashboard repeats the same names, some 50,000 of 40 bytes."""
_QUESTION_BYTES, _COPIES = 300, 3
"""Of a question, and how often it and its plan hold the text of the name."""
_WINDOW = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?[a-z]*)(?:@(-?[0-9]{1,19}))?")
_Kind = TypeVar("_Kind", bound=Enum)
_TIMED = re.compile(r"(.+)@([0-9]{1,19})", re.DOTALL)
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,19}")


@dataclass(frozen=True, slots=True)
class Name:
    """The parts of a name. ``window_us`` and ``until_us`` as in :class:`Query`."""

    indicator: str
    key: str
    window_us: int | None
    until_us: int | None


def parse_name(name: bytes) -> Name:
    """The parts of a name. Raises QueryError when it is invalid."""
    if len(name) > MAX_NAME_BYTES:
        raise QueryError(
            "too_much", f"a name has {MAX_NAME_BYTES} bytes at most, this one has {len(name)}"
        )
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise QueryError("wrong_key", f"{name[:60]!r} is not UTF-8") from None
    indicator, colon, rest = text.partition(":")
    if not colon or not rest or not indicator:
        raise QueryError(
            "unknown_indicator",
            f"{text[:60]!r} is not a name; write INDICATOR:KEY:WINDOW: clicks:42:3h",
        )
    key, colon, last = rest.rpartition(":")
    match = _WINDOW.fullmatch(last) if colon and key else None
    if match is None:
        return Name(indicator, _bare(rest), None, None)
    until = match[2]
    return Name(indicator, _bare(key), window_of(match[1]), None if until is None else int(until))


def window_of(text: str) -> int:
    """A duration in µs. Raises QueryError when it is invalid."""
    try:
        return duration_us(text)
    except (MillwheelError, ValueError, OverflowError):
        raise QueryError(
            "bad_window", f"{text[:40]!r} is not a window; write 90s, 10m, 3h or 7d"
        ) from None


def _bare(key: str) -> str:
    within = key[1:-1]
    return (
        within
        if key[0] == "{" and key[-1] == "}" and within and not set(within) & {"{", "}"}
        else key
    )


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The meaning of a name: ``questions``, and the ``formula`` over their answers; None: the
    answer to the only question, whose decimals have ``scales``."""

    questions: tuple[Query, ...]
    formula: NamedFormula | None = None
    scales: Scales = field(default_factory=lambda: NO_SCALES)

    @property
    def plain(self) -> bool:
        """Whether the answer to the only question is the answer, as it is."""
        return self.formula is None and not self.scales

    def answer(self, answers: Sequence[Answer]) -> Answer:
        """The answer, from the answers to the questions. Raises QueryError."""
        if self.formula is not None:
            return self.formula.result(answers)
        return shown_answer(answers[0], self.scales) if self.scales else answers[0]


def shown_answer(answer: Answer, scales: Scales) -> Answer:
    """An answer with its decimals as numbers. Raises QueryError if one of them is no longer
    exact."""
    if problem := beyond(answer.values, scales):
        raise QueryError("bad_value", problem)
    return msgspec.structs.replace(answer, values=with_decimals(answer.values, scales))


def scales_kept(kinds: KeptKinds | None) -> Scales:
    """The decimals of answers, those of all open windows among them."""
    scales = NO_SCALES if kinds is None else scales_of(kinds.values)
    return {"windows": [scales], **scales} if scales else NO_SCALES


@dataclass(frozen=True, slots=True)
class Catalog:
    """The possible questions to a pipeline: each computation with the type of its key (None where
    it declares none), and named queries. ``about`` describes the computations for people."""

    keys: Mapping[str, str | None]
    windowed: frozenset[str]
    named: NamedQueries = field(default_factory=NamedQueries)
    about: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    firing: frozenset[str] = frozenset()
    """Computations with windows of their own."""
    _plans: KeptTexts[bytes, tuple[Mapping[str, NamedFormula], QueryPlan]] = field(
        default_factory=lambda: KeptTexts(_PLANS_BYTES), compare=False
    )
    """Plans that were made, each with the named queries that it rests on."""

    @staticmethod
    def of(spec: PipelineSpec, language: Language | None = None) -> Catalog:
        """The catalog of a pipeline. ``language`` is that of its named queries; without it they can
        be named, but none that calls user code can be computed."""
        keys = {each.name: _key_type(each, spec) for each in spec.computations}
        windowed = frozenset(
            each.name for each in spec.computations if isinstance(each.work, SlicesSpec)
        )
        about = {each.name: _about(each, keys[each.name]) for each in spec.computations}
        firing = frozenset(each.name for each in spec.computations if each.windowed is not None)
        named = NamedQueries(
            spec.queries,
            frozenset(keys),
            spec.kept,
            (language or named_alone(spec.functions)).compile,
        )
        return Catalog(keys, windowed, named, about, firing)

    def plan(self, name: bytes) -> QueryPlan:
        """The plan for a name. ``until_us`` may be None: now. Raises QueryError."""
        entry, formulas = self._plans.get(name), self.named.formulas
        if entry is not None and entry[0] is formulas:
            return entry[1]
        query_plan = self._made(name, formulas)
        self._plans.keep(
            name,
            (formulas, query_plan),
            (len(name) * _COPIES + _QUESTION_BYTES) * len(query_plan.questions),
        )
        return query_plan

    def _made(self, name: bytes, formulas: Mapping[str, NamedFormula]) -> QueryPlan:
        parts = self.parts(name)
        formula = formulas.get(parts.indicator)
        if formula is None:
            return self._of_one(self._query(parts))
        return self._planned(
            formula, parts.key, Query(parts.indicator, 0, parts.window_us, parts.until_us)
        )

    def _of_one(self, query: Query) -> QueryPlan:
        scales = scales_kept(self.named.kept.get(query.computation))
        return QueryPlan((query,), scales=scales)

    def parts(self, name: bytes) -> Name:
        """The parts of a name. Raises QueryError."""
        parts = parse_name(name)
        if parts.window_us is None and (
            parts.indicator in self.named.formulas
            or parts.indicator.partition(".")[0] in self.firing
        ):
            key, until_us = _timed(parts.key)
            return Name(parts.indicator, key, None, until_us)
        return parts

    def first(self, indicator: str) -> str:
        """The first computation that an indicator, a named query or a formula reads. Raises
        QueryError."""
        formula = formula_asked(indicator, self.named.formulas, self.named.kept)
        return indicator.partition(".")[0] if formula is None else formula.computations[0]

    def planned(self, indicator: str, key: str, options: Mapping[str, str]) -> QueryPlan:
        """The plan for a command with options, about a computation, a named query, or a formula.
        Raises QueryError."""
        for what, text in (("an indicator", indicator), ("a key", key)):
            if len(text) > MAX_NAME_BYTES:
                raise QueryError(
                    "too_much",
                    f"{what} has {MAX_NAME_BYTES} characters at most, this one has {len(text)}",
                )
        formula = formula_asked(indicator, self.named.formulas, self.named.kept)
        if formula is None:
            return self._of_one(self.asked(indicator, key, options))
        return self._planned(formula, key, _with_options(indicator, 0, options))

    def _planned(self, formula: NamedFormula, text: str, query: Query) -> QueryPlan:
        keys = {name: self._key_of(formula, name, text) for name in formula.computations}
        return QueryPlan(tuple(formula.questions(query, keys)), formula)

    def _key_of(self, formula: NamedFormula, computation: str, text: str) -> Key:
        if not formula.spec.keys:
            return self.key(computation, text)
        self._key_type_of(computation)
        return self._typed(computation, formula.key_for(computation, _checked(_guessed(text))))

    def _typed(self, computation: str, key: Key) -> Key:
        if not isinstance(key, tuple) and self.keys[computation]:
            return self.key(computation, str(key))
        return key_in_units(key, self.named.kept.get(computation))

    def query(self, name: bytes) -> Query:
        """The query of one computation that a name stands for. ``until_us`` may be None: now.
        Raises QueryError."""
        return self._query(self.parts(name))

    def _query(self, parts: Name) -> Query:
        return Query(
            parts.indicator, self.key(parts.indicator, parts.key), parts.window_us, parts.until_us
        )

    def asked(self, indicator: str, key: str, options: Mapping[str, str]) -> Query:
        """The query of a command with options: window, until, mode, consistency. Raises
        QueryError."""
        return _with_options(indicator, self.key(indicator, key), options)

    def key(self, indicator: str, text: str) -> Key:
        """The key of an indicator that a text stands for. Without a declared type, digits are a
        number."""
        computation = indicator.partition(".")[0]
        kind = self._key_type_of(computation)
        if kind == "str":
            return text
        if kind == "int" and not _NUMBER.fullmatch(text):
            raise QueryError(
                "wrong_key", f"keys of {computation} are whole numbers, {text[:60]!r} is not one"
            )
        return key_in_units(_checked(_guessed(text)), self.named.kept.get(computation))

    def text(self, computation: str, key: Key) -> str:
        """The inverse of :meth:`key`."""
        if self.keys.get(computation) is not None and isinstance(key, str):
            return key
        return str(key) if isinstance(key, int) else msgspec.json.encode(key).decode()

    def _key_type_of(self, computation: str) -> str | None:
        if computation not in self.keys:
            there = ", ".join(sorted([*self.keys, *self.named.formulas])) or "none"
            raise QueryError(
                "unknown_indicator",
                f"there is no indicator {computation[:60]!r}; there are: {there}",
            )
        return self.keys[computation]

    def document(self) -> Mapping[str, Any]:
        """The catalog as a JSON document, for people and programs."""
        formulas = self.named.formulas
        return {
            "computations": self.about,
            "queries": {name: query_document(each.spec) for name, each in sorted(formulas.items())},
            "number": self.named.number,
        }


def key_in_units(key: Key, kinds: KeptKinds | None) -> Key:
    """A key as records have it: decimals, which are numbers or texts of them, as whole units.
    Raises QueryError for anything but a decimal of its form."""
    parts = key if isinstance(key, tuple) else (key,)
    if kinds is None or len(parts) != len(kinds.key) or not any(map(has_decimals, kinds.key)):
        return key
    try:
        made = tuple(
            decimal_form(f"decimal({MOST_DIGITS}, {scale})").inside(part)
            if isinstance(scale, int)
            else part
            for part, scale in zip(parts, kinds.key, strict=True)
        )
    except RecordError as ex:
        raise QueryError("wrong_key", f"a part of the key is a decimal: {ex}") from None
    return made if isinstance(key, tuple) else made[0]


def query_document(spec: QuerySpec) -> Mapping[str, Any]:
    """A named query as a JSON document, for people and programs."""
    window = None if spec.window_us is None else duration_text(spec.window_us)
    keys = {name: list(parts) for name, parts in spec.keys.items()}
    return {"formula": spec.formula, "window": window, "key": list(spec.key), "keys": keys}


def _with_options(indicator: str, key: Key, options: Mapping[str, str]) -> Query:
    window, until = options.get("window"), options.get("until")
    if until is not None and not re.fullmatch(r"-?[0-9]{1,19}", until):
        raise QueryError("bad_window", f"until is a time in µs UTC, not {until[:40]!r}")
    return Query(
        indicator,
        key,
        None if window is None else window_of(window),
        None if until is None else int(until),
        _choice(Mode, "mode", options.get("mode", "covering")),
        _choice(Consistency, "consistency", options.get("consistency", "durable")),
    )


def _timed(key: str) -> tuple[str, int | None]:
    """The key of a named query, and the time behind it, if any. A key in braces has no time behind
    it."""
    match = _TIMED.fullmatch(key)
    return (key, None) if match is None else (_bare(match[1]), int(match[2]))


def _checked(key: object) -> Key:
    try:
        return check_key(key)
    except MillwheelError as ex:
        raise QueryError("wrong_key", str(ex)) from None


def _guessed(text: str) -> object:
    if _NUMBER.fullmatch(text):
        return int(text)
    if text[0] in '["':
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return text


def _choice(kind: type[_Kind], what: str, text: str) -> _Kind:
    try:
        return kind(text)
    except ValueError:
        raise QueryError(
            "bad_window", f"there is no {what} {text[:40]!r}; there are {_list(kind)}"
        ) from None


def _list(kind: type[_Kind]) -> str:
    return ", ".join(each.value for each in kind)


def _about(spec: ComputationSpec, key: str | None) -> Mapping[str, Any]:
    """The description of a computation for people: its key, values and slices."""
    description: dict[str, Any] = {"key": key, "values": [each.name for each in spec.aggregates]}
    if isinstance(spec.work, SlicesSpec):
        description["every"] = duration_text(spec.work.levels_us[0])
        description["keep"] = duration_text(spec.work.keep_us)
    if spec.windowed is not None:
        description["window"] = spec.windowed.window.kind
    return description


def _kind_of_key(key: KeySpec, fields: Mapping[str, str], language: Language) -> str | None:
    """The type of a key of one part; None if unknown."""
    if key.kind is KeyKind.ALL:
        return "str"
    if len(key.fields) != 1 or key.nulls:
        return None
    text = key.texts[0] if key.texts else key.names[0]
    kind = kind_of_value(text, fields, language.compile) if key.texts else fields.get(text)
    return kind if kind in ("int", "str") else None


def _key_type(spec: ComputationSpec, pipeline: PipelineSpec) -> str | None:
    types, language = set(), named_alone(pipeline.functions, pipeline.nulls, pipeline.vectorized)
    for each in spec.inputs:
        stream = pipeline.stream(each.stream)
        types.add(_kind_of_key(each.key, stream.fields, language))
    if spec.name in pipeline.kept and has_decimals(list(pipeline.kept[spec.name].key[:1]) or ""):
        return None
    return types.pop() if len(types) == 1 else None
