"""Answers that a test provides in place of another system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millwheel.connect.kinds import build_lookup
from millwheel.connect.lookups.base import Lookup, LookupKey
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import LookupSpec
from millwheel.errors import PipelineError, SetupError

Answers = Mapping[Any, Any] | Callable[[Any], Any] | Lookup
"""A mapping from keys to answers, a function of a key, or a lookup. A key of one field is its
value, of several a tuple. A missing key and None mean that there is no answer; an exception as an
answer is raised, as by the target."""


class FakeLookup(Lookup):
    """``requests`` are the keys of each request."""

    where = "the lookup of the test"

    def __init__(
        self, answers: Mapping[Any, Any] | Callable[[Any], Any], by: Sequence[str]
    ) -> None:
        self._answer = answers if callable(answers) else answers.get
        self.by = tuple(by)
        self.requests: list[list[Any]] = []

    def look_up(self, keys: Sequence[LookupKey]) -> list[Any]:
        plain = [key[0] if len(key) == 1 else key for key in keys]
        self.requests.append(plain)
        return [self._answer(key) for key in plain]


def fake_lookup(spec: ComputationSpec, folder: str, lookups: Mapping[str, Answers]) -> Lookup:
    """The lookup that the test provides for a computation. Raises PipelineError when it provides
    none."""
    answers, lookup = lookups.get(spec.name), spec.work
    if answers is None or not isinstance(lookup, LookupSpec):
        raise PipelineError(
            f"{spec.name} looks records up in another system, which a test does not ask; give the"
            f" harness lookups={{{spec.name!r}: {{key: answer}}}}"
        )
    if isinstance(answers, Lookup):
        return answers
    try:
        by = lookup.by or build_lookup(lookup, folder).by
    except SetupError as ex:
        raise PipelineError(f"{spec.name}: {ex}; or name what it is asked by: by") from ex
    return FakeLookup(answers, by)
