"""Draws a case from a seed: a valid pipeline of one to four computations, and a script of what is
pushed to it.

``features`` are words for what was drawn: each kind of computation, each option, each form of
input. A case can be asked for by them: then seeds are drawn anew until all of them are there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from millwheel.connect.own_functions import language_of
from millwheel.connect.python_objects import load_object
from millwheel.core.columns.forms.computations import NO_LABELS, ComputationForm, computation_form
from millwheel.core.columns.forms.joins import near_pairings
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.order.chains import chains_of, is_stateless
from millwheel.core.pipeline.graph import build_graph
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import (
    IntervalJoinSpec,
    JoinKind,
    OverSpec,
    RegularJoinSpec,
    TopSpec,
    Work,
)
from millwheel.core.rows.versions import EnrichPlan
from millwheel.core.windows.windows import Forever
from tests.search.document import emit
from tests.search.facts import Free
from tests.search.generate import pushes
from tests.search.generate.computations import draw_computation
from tests.search.generate.draft import Draft
from tests.search.generate.ends import (
    add_ids,
    change_types,
    draw_sinks,
    draw_stream,
    leave_fields_undeclared,
    with_large_numbers,
)
from tests.search.generate.kinds import add_batches, add_lists, add_owners, own_orders
from tests.search.generate.late_arrivals import with_late_arrivals
from tests.search.generate.named_keys import name_keys, with_nulls
from tests.search.generate.refused import spoil
from tests.search.generate.sliced import add_slices
from tests.search.generate.typed_fields import type_fields
from tests.search.script import Case, load_tree

__all__ = ["Unlucky", "case"]

_DRAWS = 400
_STREAMS = ("hits", "clicks")
_COLUMNS = frozenset(
    {
        "columns",
        "steps_in_columns",
        "near_in_columns",
        "all_in_columns",
        "alone_in_columns",
        "versions_in_columns",
        "taken_back_in_columns",
        "counted_in_columns",
        "forgotten_in_columns",
        "whole_in_columns",
        "first_in_columns",
        "over_in_columns",
        "order_in_columns",
        "enrich_in_columns",
    }
)

_CHAINED = frozenset({"chained", "chained_results"})
_WHOLE_JOINS: dict[str, Callable[[Work], bool]] = {
    "near_in_columns": lambda work: isinstance(work, IntervalJoinSpec),
    "all_in_columns": lambda work: isinstance(work, RegularJoinSpec),
    "alone_in_columns": lambda work: (
        isinstance(work, RegularJoinSpec) and work.kind is not JoinKind.INNER
    ),
}


class Unlucky(Exception):
    """No case with these features was drawn."""


def case(
    seed: int, features: Iterable[str] = (), without: Iterable[str] = (), racing: bool = False
) -> Case:
    """The case of a seed, with all of these features and without those. ``racing``: something is
    determined although streams race each other, and there is no word but the timestamps' about the
    watermark."""
    wanted, unwanted = frozenset(features), frozenset(without)
    for number in range(_DRAWS if wanted or unwanted else 1):
        found = _draw(seed, number, wanted, racing)
        if wanted <= found.features and not unwanted & found.features:
            return found
    raise Unlucky(f"no case of seed {seed} has {', '.join(sorted(wanted))}")


def _chains(draft: Draft) -> frozenset[str]:
    """Whether some computations run in the shards of others, and of others with state. (None run
    in those of a source: all that comes is looked at.)"""
    spec = load_tree(draft.tree)
    graph = build_graph(spec)
    firsts = [graph.nodes[name] for name in chains_of(graph, spec, ()).before.values()]
    behind = {is_stateless(first.computation) for first in firsts if first.computation}
    return _CHAINED if False in behind else frozenset({"chained"} if behind else ())


def _joins_in_columns(draft: Draft, is_one: Callable[[Work], bool]) -> bool:
    """Whether some join of a kind takes whole bundles."""
    spec = load_tree(draft.tree)
    pairings = near_pairings(spec, language_of(spec).compile, NO_LABELS)
    return any(is_one(each.work) for each in spec.computations if each.name in pairings)


def _versions_in_columns(draft: Draft) -> bool:
    """Whether columns hold the groups of some change log."""
    return any(
        isinstance(form.plan, ColumnPlan) and form.plan.versions
        for each, form in _forms(draft)
        if each.is_change_log
    )


def _taken_back_in_columns(draft: Draft) -> bool:
    """Whether columns hold the groups of a change log from which records are taken back."""
    return any(
        isinstance(form.plan, ColumnPlan) and form.plan.versions and form.plan.takes_back
        for each, form in _forms(draft)
        if each.is_change_log
    )


def _counted_in_columns(draft: Draft) -> bool:
    """Whether columns hold the different values of the groups of a change log."""
    return any(
        isinstance(form.plan, ColumnPlan) and form.plan.counting
        for each, form in _forms(draft)
        if each.is_change_log
    )


def _forgotten_in_columns(draft: Draft) -> bool:
    """Whether columns hold the groups of a change log that are forgotten after a time."""
    plans = [form.plan for each, form in _forms(draft) if each.is_change_log]
    return any(
        isinstance(plan, ColumnPlan)
        and plan.versions
        and isinstance(plan.window, Forever)
        and plan.window.ttl is not None
        for plan in plans
    )


def _whole_in_columns(draft: Draft) -> bool:
    """Whether columns hold whole records for the groups of some change log."""
    return any(
        isinstance(form.plan, ColumnPlan) and form.plan.versions and form.plan.whole
        for each, form in _forms(draft)
        if each.is_change_log
    )


def _first_in_columns(draft: Draft) -> bool:
    """Whether columns hold the first rows of some keys."""
    return any(not form.why for each, form in _forms(draft) if isinstance(each.work, TopSpec))


def _over_in_columns(draft: Draft) -> bool:
    """Whether columns hold the look-backs of some keys."""
    return any(not form.why for each, form in _forms(draft) if isinstance(each.work, OverSpec))


def _order_in_columns(draft: Draft) -> bool:
    """Whether records wait for their order in columns."""
    return any(form.plan is not None for each, form in _forms(draft) if each.ordered)


def _enrich_in_columns(draft: Draft) -> bool:
    """Whether records wait for their version in columns."""
    return any(isinstance(form.plan, EnrichPlan) for _, form in _forms(draft))


def _forms(draft: Draft) -> Iterator[tuple[ComputationSpec, ComputationForm]]:
    spec = load_tree(draft.tree)
    compiled = language_of(spec).compile
    for each in spec.computations:
        yield each, computation_form(each, spec, load_object, compiled)


_HELD: dict[str, Callable[[Draft], bool]] = {
    "versions_in_columns": _versions_in_columns,
    "taken_back_in_columns": _taken_back_in_columns,
    "counted_in_columns": _counted_in_columns,
    "forgotten_in_columns": _forgotten_in_columns,
    "whole_in_columns": _whole_in_columns,
    "first_in_columns": _first_in_columns,
    "over_in_columns": _over_in_columns,
    "order_in_columns": _order_in_columns,
    "enrich_in_columns": _enrich_in_columns,
}


def _draw(seed: int, number: int, wanted: frozenset[str], racing: bool) -> Case:
    rng = random.Random(f"{seed}/{number}")
    stated = rng.random() < 0.65
    if wanted & {"own_watermark", *_COLUMNS, "idle_after"} or racing:
        stated = False
    bundling = racing or (rng.random() < 0.7 and "past_timers" not in wanted)
    # Whether a stream will have several partitions is not known yet.
    several = frozenset(_STREAMS)
    free = Free(
        bundling=bundling, crashing=racing, racing=frozenset() if racing else None, several=several
    )
    columnar = not stated and (rng.random() < 0.3 or not wanted.isdisjoint(_COLUMNS))
    draft = Draft(
        rng,
        stated,
        free,
        wanted,
        columnar,
        {"pipeline": "p", "streams": {}, "computations": {}, "sinks": {}},
    )
    draft.features.add("stated" if stated else "own_watermark")
    now = pushes.NOW if not stated or rng.random() < 0.3 else None
    count = rng.choice([1, 1, 2])
    for name in _STREAMS[: 2 if "enrich_in_columns" in wanted else count]:
        draw_stream(draft, name, now)
    for index in range(rng.choice([2, 3] if "two_stages" in wanted else [1, 1, 2, 2, 3, 4])):
        draw_computation(draft, f"c{index}")
    # only where it is asked for: most would be letters
    if "timer_limit" in wanted and "timers" in draft.features:
        draft.features.add("timer_limit")
        draft.tree["limits"] = {"timers_per_key": 3}
    if "timers_after_end" in wanted and "timers" in draft.features:
        # More than those of one key ever set then: it must not be reached.
        draft.features.add("timers_after_end")
        draft.tree["limits"] = {"timers_after_end": 6}
    add_slices(draft, seed)
    leave_fields_undeclared(draft, seed)
    add_ids(draft, seed)
    add_batches(draft, seed)
    add_owners(draft, seed)
    add_lists(draft, seed)
    named = name_keys(draft, seed)
    draw_sinks(draft)
    refused = not racing and spoil(draft, "refused")
    if wanted & _CHAINED and not refused:
        draft.features |= wanted & _chains(draft)
    for name, is_one in _WHOLE_JOINS.items():
        if name in wanted and not refused and _joins_in_columns(draft, is_one):
            draft.features.add(name)
    for name, held in _HELD.items():
        if name in wanted and not refused and held(draft):
            draft.features.add(name)
    script = with_late_arrivals(draft, seed, pushes.draw(draft, now), now)
    script = change_types(draft, seed, own_orders(draft, seed, script))
    script = with_large_numbers(draft, seed, script)
    script = with_nulls(script, seed) if "null_key" in named else script
    script = script if refused else type_fields(draft, seed, script)
    yaml = emit(draft.tree)
    return Case(seed, yaml, tuple(script), stated, now, frozenset(draft.features), refused)
