"""Compares what the runtime gave with what the reference says, as far as the docs determine it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.spec import PipelineSpec
from tests.search.compare import differences
from tests.search.facts import Facts, Level, Order
from tests.search.freedoms import Promised
from tests.search.reference import Reference, interpret
from tests.search.script import Case, Letter, Outcome, Row

_NOTHING = Facts(Level.NOTHING, Order.NONE, paced=False, timely=False, single=False)


def against_reference(case: Case, spec: PipelineSpec, known: Promised, got: Outcome) -> list[str]:
    """A sentence for each part of an outcome of the runtime, one record at a time, that the
    reference has otherwise."""
    if "idle_after" in case.features:
        return []  # How far silence has moved a watermark depends on when somebody looked last.
    reference = interpret(spec, case.script, stated=case.stated, now=case.now)
    if reference.unsure:
        return []
    free = reference.clocked
    want, found = _unfinished(_wanted(reference, spec, got)), _unfinished(_plain(got))
    return differences(
        spec, _loosened(spec, known, free), _timeless(want, free), _timeless(found, free)
    )


def _wanted(reference: Reference, spec: PipelineSpec, got: Outcome) -> Outcome:
    """The outcome of the reference, for the keys that ``got`` was asked about."""
    found = reference.outcome()
    return replace(
        found,
        streams={name: rows for name, rows in found.streams.items() if name in got.streams},
        letters=tuple(map(_coarse, found.letters)),
        state={
            name: {key: reference.state(name, key) for key in keys}
            for name, keys in got.state.items()
        },
    )


def _plain(got: Outcome) -> Outcome:
    """An outcome of the runtime without the timers of the system, and what the docs do not say word
    by word."""
    timers = {
        name: {
            key: own
            for key, each in keys.items()
            if (own := tuple(t for t in each if not t[1].startswith("\0")))
        }
        for name, keys in got.timers.items()
    }
    return replace(got, letters=tuple(map(_coarse, got.letters)), timers=timers)


def _coarse(letter: Letter) -> Letter:
    """Why a source could not use a record is said in many words, and a timer in several."""
    if letter.where.startswith("source."):
        return replace(letter, reason="unusable")
    letter = replace(
        letter, reason=re.sub(r" \(aggregate '\w+' of stream '\w+'\)$", "", letter.reason)
    )
    return replace(letter, about="") if "on this timer" in letter.reason else letter


def _unfinished(outcome: Outcome) -> Outcome:
    """Without what callbacks tell of ``is_last``: a watermark that jumps may do so in steps, and
    then a pane is not the last for sure."""

    def told(rows: Any) -> Any:
        return tuple(
            Row(row.key, row.timestamp, {**row.value, "last": None})
            if isinstance(row.value, dict) and "last" in row.value
            else row
            for row in rows
        )

    streams = {name: told(rows) for name, rows in outcome.streams.items()}
    return replace(
        outcome,
        streams=streams,
        standing={name: told(rows) for name, rows in outcome.standing.items()},
    )


def _timeless(outcome: Outcome, streams: frozenset[str]) -> Outcome:
    """Without the timestamps of streams in which some are not determined."""

    def stripped(tables: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: tuple(Row(row.key, 0, row.value) for row in rows) if name in streams else rows
            for name, rows in tables.items()
        }

    return replace(outcome, streams=stripped(outcome.streams), standing=stripped(outcome.standing))


def _loosened(spec: PipelineSpec, known: Promised, streams: frozenset[str]) -> Promised:
    """Nothing is determined behind records whose time is not."""
    levels, facts, behind = dict(known.computations), dict(known.streams), set(streams)
    for _ in spec.computations:
        for computation in spec.computations:
            if behind & {given.stream for given in computation.inputs}:
                levels[computation.name] = Level.NOTHING
                side = computation.late.partition(":")[2]
                behind.update((*computation.outputs, *((side,) if side else ())))
    facts.update(dict.fromkeys(behind - streams, _NOTHING))
    return Promised(facts, levels, known.crashing, known.doubled)
