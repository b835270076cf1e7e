"""What the reference says of a case, in the form in which the ways of running it are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.spec import PipelineSpec
from tests.search.reference import interpret
from tests.search.script import Case, Letter, Outcome


def expected(case: Case, spec: PipelineSpec, got: Outcome) -> Outcome:
    """The outcome that the docs want, with the keys that ``got`` was asked about."""
    reference = interpret(spec, case.script, stated=case.stated, now=case.now)
    found = reference.outcome()
    hidden = {sink.stream for sink in spec.sinks if sink.options.get("mode") == "upsert"}
    return replace(
        found,
        streams={name: rows for name, rows in found.streams.items() if name in got.streams and name not in hidden},
        letters=tuple(map(_coarse, found.letters)),
        state={name: {key: reference.state(name, key) for key in keys} for name, keys in got.state.items()},
        timers={name: _only(found.timers.get(name, {}), keys) for name, keys in got.timers.items()},
    )


def comparable(got: Outcome) -> Outcome:
    """An outcome of the runtime without what the docs do not say word by word."""
    timers = {
        name: {key: own for key, each in keys.items() if (own := tuple(t for t in each if not t[1].startswith("\0")))}
        for name, keys in got.timers.items()
    }
    return replace(got, letters=tuple(map(_coarse, got.letters)), timers=timers)


def _coarse(letter: Letter) -> Letter:
    """Why a source could not use a record is said in many words."""
    return replace(letter, reason="unusable") if letter.where.startswith("source.") else letter


def _only(timers: Mapping[Any, Any], keys: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: timers[key] for key in timers if key in keys or timers[key]}
