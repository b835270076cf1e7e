"""Cases with divided keys: what can be divided is, and all results must be those of whole keys
(docs/skew.md). Likewise enrichments have copies of their tables, and results must be those of a
table that is divided by its key (docs/joins.md)."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from millwheel.core.model.times import MIN_TIME
from millwheel.core.pipeline.graph import build_graph, takes_retractions
from millwheel.core.pipeline.keys import Divided, KeyKind
from millwheel.core.pipeline.skew import planned
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    Delivery,
    PipelineSpec,
    Productions,
)
from millwheel.core.pipeline.tables import with_copies
from millwheel.core.pipeline.work import (
    AggregationSpec,
    BroadcastSpec,
    EnrichSpec,
    JoinSpec,
    SlicesSpec,
)
from tests.search.generate.pushes import LAST_CLOCK
from tests.search.script import Action, Case, Clock, Finish, Outcome, Push, Watermark

_ARRIVAL = frozenset({"collect", "first", "last"})
_KEYLESS = re.compile(
    r"^(enrich with|copies of) \S+ failed \d+ times on this record: RecordError: (?=missing key)"
)
"""A record without a key for its row comes to its copy all the same, and is a letter there."""
_PREFIXES = "partial.", "copies."


def divided(spec: PipelineSpec, instances: int, case: Case, grouped: bool = False) -> PipelineSpec:
    """The pipeline with all keys divided that can be, without a promise less: an at-least-once
    computation may count an accumulator twice. ``grouped``: by a grouping, wherever one can be; the
    name of the computation draws it."""
    if instances == 1:
        return spec
    timely = _timely(case, spec)
    spec = with_copies(with_broadcast(spec, instances, case))
    computations = (
        replace(c, scatter=instances, divided=_rule(c, spec) if grouped else Divided.ALL)
        if _fits(c, spec, timely) and not isinstance(c.work, EnrichSpec)
        else c
        for c in spec.computations
    )
    return planned(replace(spec, computations=tuple(computations)))


def with_broadcast(spec: PipelineSpec, copies: int, case: Case) -> PipelineSpec:
    """The pipeline with so many copies of each table of which there can be some."""
    if copies == 1:
        return spec
    held, timely = BroadcastSpec(1_000_000, copies=copies), _timely(case, spec)
    computations = (
        replace(c, work=replace(c.work, broadcast=held))
        if isinstance(c.work, EnrichSpec) and _has_copies(c, spec, timely)
        else c
        for c in spec.computations
    )
    return replace(spec, computations=tuple(computations))


def _has_copies(c: ComputationSpec, spec: PipelineSpec, timely: frozenset[str]) -> bool:
    """Not where a record may come when its time has passed: it gets what has come by then, and a
    version takes longer to a copy."""
    work = c.work
    if not isinstance(work, EnrichSpec) or not work.waits or work.timeless:
        return False
    sources = {name.removeprefix("source.") for name in build_graph(spec).roots(c.name)}
    own = any(each.key.kind is KeyKind.RECORD for each in c.inputs)
    return not own and sources <= timely and c.delivery is Delivery.EXACTLY_ONCE


def _rule(c: ComputationSpec, spec: PipelineSpec) -> Divided:
    """Not where a copy must reach the instance that knows its id: copies in a source, and weak
    productions."""
    name = c.inputs[0].stream
    stream = next(
        (each for each in spec.streams if each.name == name and each.source is not None), None
    )
    makers = [each for each in spec.computations if name in (*each.outputs, each.late_side)]
    copied = any(each.productions is Productions.WEAK for each in makers) or name == DEAD_LETTERS
    if copied or (stream is not None and stream.id):
        return Divided.ALL
    drawn = Random(f"{spec.name} {c.name} {c.aggregates}")
    return drawn.choice([each for each in Divided if each.by_tables])


def _timely(case: Case, spec: PipelineSpec) -> frozenset[str]:
    """Streams that are read to their end without a record behind the watermark. Divided sessions
    end later than whole ones, so such a record may still find one (docs/skew.md), and results are
    compared at the end."""
    if Finish(None) not in case.script:
        return frozenset()
    found, stand = {each.name for each in spec.streams if each.source is not None}, MIN_TIME
    for action in case.script:
        if isinstance(action, Watermark):
            stand = max(stand, action.t)
        elif isinstance(action, Clock) and not case.stated:  # silence lets the watermark go on
            return frozenset()
        elif isinstance(action, Push):
            unit_us = spec.stream(action.stream).timestamp_unit_us
            if not all(_is_timely(value, unit_us, stand) for value in action.values):
                found.discard(action.stream)
    return frozenset(found)


def timely(case: Case, spec: PipelineSpec) -> Case:
    """The case itself, or, where only records behind the watermark keep sessions from being
    divided, the same without these records, read to its end."""
    now, all_streams = (
        _timely(case, spec),
        frozenset(each.name for each in spec.streams if each.source is not None),
    )
    kept = (c for c in spec.computations if _fits(c, spec, all_streams) and not _fits(c, spec, now))
    if not any(kept):
        return case
    script: list[Action] = []
    stand = MIN_TIME
    for action in case.script:
        if isinstance(action, Watermark):
            stand = max(stand, action.t)
        if isinstance(action, Push):
            unit_us = spec.stream(action.stream).timestamp_unit_us
            values = tuple(value for value in action.values if _is_timely(value, unit_us, stand))
            action = replace(action, values=values)
            script += [action] if values else []
        elif case.stated or not isinstance(action, Clock):
            script.append(action)
    if Finish(None) not in script:
        # as at the end of every script: what waits for the clock does not fire at a watermark that
        # is on its way
        clocks = (action.t for action in script if isinstance(action, Clock))
        last = Clock(max(clocks, default=case.now or 0) + LAST_CLOCK)
        script += [*([last] if case.stated else []), Finish(None)]
    return case.with_script(tuple(script))


def _is_timely(value: object, unit_us: int, stand: int) -> bool:
    at = value.get("at") if isinstance(value, dict) else None
    return type(at) is int and at * unit_us >= stand


def _fits(c: ComputationSpec, spec: PipelineSpec, timely: frozenset[str]) -> bool:
    return _has_copies(c, spec, timely) or (
        (_has_pieces(c, timely) or (isinstance(c.work, SlicesSpec) and c.work.ttl_us is None))
        and bool(c.aggregates)
        and not c.called
        and not isinstance(c.work, JoinSpec)
        and len(c.inputs) == 1
        and c.firing.trigger is None
        and c.late == "drop"
        and c.firing.output_time == "end_of_window"
        and c.delivery is Delivery.EXACTLY_ONCE
        and not (isinstance(c.work, AggregationSpec) and c.work.numbered)
        and not _ARRIVAL & {each.function for each in c.aggregates}
        and not takes_retractions(c, spec)
    )


def _has_pieces(c: ComputationSpec, timely: frozenset[str]) -> bool:
    if c.windowed is None or c.windowed.window.kind in ("count", "custom"):
        return False
    return c.windowed.window.kind != "session" or (
        c.inputs[0].stream in timely and c.firing.allowed_lateness_us == 0
    )


def as_whole(outcome: Outcome) -> Outcome:
    """An outcome with what the planner has put before computations under the names of these."""
    letters = (
        replace(each, where=_whole(each.where), reason=_KEYLESS.sub("", each.reason))
        for each in outcome.letters
    )
    streams = {name: rows for name, rows in outcome.streams.items() if _whole(name) == name}
    return replace(outcome, streams=streams, letters=tuple(letters))


def _whole(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
