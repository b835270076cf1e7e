"""Steps: ``map``, ``flat_map`` and ``filter``, applied to one record's value one after the other.
Branches: the choice of one or more streams for a record.

A step has no access to keys, time or state: a record's results have its key and its timestamp. A
retraction is treated as the record that it takes back, so its results take back the results of that
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from millwheel.core.expressions.language import BUILT_IN, Language
from millwheel.core.pipeline.work import BranchSpec, StepKind, StepSpec
from millwheel.core.windows.panes import as_retraction, retracted
from millwheel.errors import RecordError

Apply = Callable[[Any], Iterable[Any]]
"""A record's value -> the resulting values, each to be used before the next is made: a generator of
the user's may give the same object again, changed."""
Choose = Callable[[Any], Sequence[str]]
"""A record's value -> the streams it goes to, none if no branch takes it."""
Load = Callable[[str], Callable[[Any], Any]]
"""``module:function`` -> the function."""


def compile_steps(steps: Sequence[StepSpec], load: Load, language: Language = BUILT_IN) -> Apply:
    """The results of the steps for a value, retractions included. RecordError for values that a
    step cannot use; a user's function may raise anything. ValueError for text that is not an
    expression."""
    run: Apply = _itself
    changed = False
    for step in reversed(steps):
        run = _joined(step, load, language, run, changed)
        changed |= bool(step.function)

    def apply(value: Any) -> Iterable[Any]:
        back = as_retraction(value)
        return run(value) if back is None else (retracted(result) for result in run(back.value))

    return apply


def step_text(step: StepSpec) -> str:
    """The step as it is written, on one line."""
    what = (
        step.function
        or step.expression
        or "{" + ", ".join(f"{n}: {text}" for n, text in step.fields.items()) + "}"
    )
    return f"{step.kind.value} {what}"


def _joined(step: StepSpec, load: Load, language: Language, rest: Apply, changed: bool) -> Apply:
    """The results of this step and all later ones. The calls are nested, because this runs for
    every record. ``changed``: a later step may change its argument."""
    if step.kind is StepKind.FLAT_MAP and step.fields:
        each_with = _each_with(step, language, changed)
        return lambda value: (result for each in each_with(value) for result in rest(each))
    call = _fields(step, language) if step.fields else _function(step, load, language)
    if step.kind is StepKind.FILTER:
        return lambda value: rest(value) if call(value) else ()
    if step.kind is StepKind.MAP:
        return lambda value: rest(call(value))
    return lambda value: (result for each in _several(call(value), step) for result in rest(each))


def _itself(value: Any) -> Iterable[Any]:
    return (value,)


def _function(step: StepSpec, load: Load, language: Language) -> Callable[[Any], Any]:
    return load(step.function) if step.function else language.compile(step.expression).evaluate


def _fields(step: StepSpec, language: Language) -> Callable[[Any], Any]:
    parts = [(name, language.compile(text).evaluate) for name, text in step.fields.items()]
    return lambda value: {name: evaluate(value) for name, evaluate in parts}


def _each_with(step: StepSpec, language: Language, changed: bool) -> Apply:
    """A value once for each entry of a list, with the entry as one more field."""
    [(name, text)] = step.fields.items()
    entries = language.compile(text).evaluate

    def apply(value: Any) -> Iterable[Any]:
        several = _several(entries(value), step)
        fields = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
        if not isinstance(fields, dict):
            raise RecordError(
                f"`{step_text(step)}` adds a field, and a {type(value).__name__} has no fields"
            )
        for entry in several:
            made = {**fields, name: entry}
            # no result may change objects that others share
            yield deepcopy(made) if changed else made

    return apply


def _several(result: Any, step: StepSpec) -> Iterable[Any]:
    """The results of a ``flat_map``. A text or a map is refused: it is one value, and likely a
    mistake."""
    if type(result) is list or (
        isinstance(result, Iterable) and not isinstance(result, (str, bytes, dict))
    ):
        return result
    raise RecordError(
        f"`{step_text(step)}` gave {result!r:.80}; it must give a list (or another iterable) of"
        " values, empty for none"
    )


def compile_branches(
    branches: Sequence[BranchSpec], match_all: bool, language: Language = BUILT_IN
) -> Choose:
    """The streams for a value. RecordError for values on which a condition cannot be evaluated.
    ValueError for text that is not a condition."""
    tests = [
        (each.stream, language.compile(each.condition).evaluate)
        for each in branches
        if each.condition
    ]
    rest = [each.stream for each in branches if not each.condition]

    def choose(value: Any) -> Sequence[str]:
        back = as_retraction(value)
        record_value = value if back is None else back.value
        streams = []
        for stream, holds in tests:
            if holds(record_value):
                streams.append(stream)
                if not match_all:
                    break
        return streams or rest

    return choose
