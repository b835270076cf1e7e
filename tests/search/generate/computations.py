"""Draws a computation of any kind with its dials, anew while nothing of its results would be
determined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.errors import PipelineError
from tests.search.document import emit
from tests.search.facts import Facts, Level, Order
from tests.search.freedoms import promised
from tests.search.generate.draft import Draft, Flow
from tests.search.generate.inputs import take_third
from tests.search.generate.kinds import (
    LASTING_IN_COLUMNS,
    branched,
    deduplicated,
    enriched,
    free,
    joined,
    kept_join,
    looked_up,
    looking_back,
    orders,
    ranked,
    steps,
)
from tests.search.generate.visitors import numbered, visitors
from tests.search.generate.windows import CALCULATED, ROWS, calculation, spans, windowed
from tests.search.script import load_tree

_TRIES = 12


def draw_computation(draft: Draft, name: str) -> None:
    """A computation of any kind, drawn anew while nothing of it is determined."""
    for attempt in range(_TRIES):
        before = set(draft.features)
        maker = _maker(draft)
        made = maker(draft, name)
        if made is None or not _suits_columns(draft, made[0]):
            draft.features = before
            continue
        tree, fields, key = made
        _dials(draft, tree)
        draft.tree["computations"][name] = tree
        known = _known(draft)
        if known is not None and known.computations[name] is not Level.NOTHING:
            _enlist(draft, tree, known.streams, fields, key)
            return
        if known is not None and attempt == _TRIES - 1 and draft.rng.random() < 0.2:
            _enlist(draft, tree, known.streams, fields, key)
            return
        del draft.tree["computations"][name]
        draft.features = before


def _any_join(draft: Draft, name: str) -> Any:
    """A join without a window, of two inputs or three."""
    drawn = kept_join(draft, name)
    several = drawn is not None and drawn[0]["join"] in ("inner", "left", "outer")
    if several and draft.wanted.isdisjoint(LASTING_IN_COLUMNS):
        take_third(draft, drawn[0]["input"], drawn[2], "join_of_three")
    return drawn


_KINDS: tuple[tuple[Any, int], ...] = (
    (windowed, 9),
    (orders, 6),
    (free, 3),
    (spans, 3),
    (steps, 2),
    (deduplicated, 3),
    (branched, 2),
    (joined, 3),
    (enriched, 3),
)
_APART = (
    (looked_up, 0.04),
    (numbered, 0.04),
    (visitors, 0.04),
    (_any_join, 0.03),
    (ranked, 0.05),
    (looking_back, 0.04),
    (ranked, 0.03),
)


_OF_WINDOWS = """windowed two_stages rows_in_order aggregate side refire lateness trigger retracting
    of_window accumulating discarding early behind_global weak_count missing_field count_of_field
    sum min max mean count_distinct top_k collect first last stddev count_distinct_in_columns
    approx_count_distinct_in_columns output_time processing_time_trigger tumbling_window
    sliding_window changes_window session_window cumulative_window count_window global_window
    change_log results having versions_in_columns taken_back_in_columns
    counted_in_columns forgotten_in_columns whole_in_columns"""


_MAKERS: tuple[tuple[frozenset[str], Any], ...] = (
    (frozenset({"past_timers", "weak_past", "timers", "order_by", "ttl", "callback"}), orders),
    (
        frozenset({"enrich", "as_of_arrival", "enrich_of_changes", "enrich_in_columns"}),
        enriched,
    ),
    (frozenset({"lookup"}), looked_up),
    (frozenset({"dictionary", "dictionary_ttl"}), numbered),
    (frozenset({"uv", "uv_ttl"}), visitors),
    (frozenset({"join", "join_again", "other_join", "window_join_of_three"}), joined),
    (frozenset({"window_join_of_changes"}), joined),
    (frozenset({"kept_join", "kept_join_of_changes", "join_of_three"}), _any_join),
    (frozenset({"interval_join", "named_bounds", "near_in_columns"}), _any_join),
    (LASTING_IN_COLUMNS, _any_join),
    (frozenset({"deduplicate"}), deduplicated),
    (frozenset({"top", "places", "top_of_changes", "keep", "first_in_columns"}), ranked),
    (frozenset({"over", "rows_before", "range_of_time", "over_in_columns"}), looking_back),
    (frozenset({"branch"}), branched),
    (frozenset({"steps", "steps_in_columns", "passed_on", "chained", "chained_results"}), steps),
    (frozenset({"order_in_columns"}), steps),
    (frozenset({"window_callback"}), spans),
    (frozenset(_OF_WINDOWS.split()), windowed),
)
"""What kind of computation may have a feature that is wanted."""


def _maker(draft: Draft) -> Any:
    """A kind of computation; what is wanted, more often."""
    if draft.wanted and draft.rng.random() < 0.6:
        for words, kind in _MAKERS:
            if draft.wanted & words and not draft.wanted & words <= draft.features:
                return kind
    # drawn apart, so that nearly all seeds give the pipelines that they gave before
    if not draft.wanted:
        drawn = Random(repr(draft.tree)).random()
        for kind, share in _APART:
            if 0 <= drawn < share:
                return kind
            drawn -= share
    return draft.rng.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS])[0]


def _suits_columns(draft: Draft, tree: dict[str, Any]) -> bool:
    """Whether a computation leaves the sources in columns. Aggregates become such as columns
    know."""
    if not draft.columnar or not tree["input"].keys() & draft.tree["streams"].keys():
        return True
    if "dictionary" in tree or "uv" in tree:
        return len(tree["input"]) == 1
    if "top" in tree or "keep" in (tree.get("deduplicate") or {}):
        return len(tree["input"]) == 1
    # elsewhere seeds give the pipelines that they gave before
    if "join" in tree and "join" in draft.wanted:
        return "tumbling" in tree["window"]
    # only where it is asked for: elsewhere seeds give the pipelines that they gave before
    if "enrich" in tree and "enrich_in_columns" in draft.wanted:
        return True
    if "order_by" in tree and "callback" not in tree and "order_in_columns" in draft.wanted:
        return True
    passed_on = "branch" in tree or ("filter" in tree and not tree.keys() & {"map", "flat_map"})
    if passed_on and "passed_on" in draft.wanted and "order_by" not in tree:
        draft.features.add("passed_on")
        return True
    if isinstance(tree.get("map"), dict) and "order_by" not in tree:
        # drawn apart, so that other seeds give the pipelines that they gave before
        wanted = "steps_in_columns" in draft.wanted
        if wanted or Random(repr(("in columns", tree))).random() < 0.5:
            draft.features.add("steps_in_columns")
            return True
    if (
        "aggregate" not in tree
        or "over" in tree
        or len(tree["input"]) > 1
        or draft.rng.random() < 0.05
    ):
        return False
    # whole records only where they are asked for
    kept = "whole_in_columns" in draft.wanted
    names = [
        name
        for name, aggregate in tree["aggregate"].items()
        if name != "n" and not (kept and ROWS & {*_words(aggregate)})
    ]
    tree["aggregate"].update({name: _of_columns(draft, name, tree) for name in names})
    if "of_window" in draft.wanted:
        tree.pop("output_time", None)
    if draft.rng.random() < 0.7:
        for name, words in (
            ("trigger", ()),
            ("allowed_lateness", ("lateness",)),
            ("late", ("side", "refire")),
        ):
            if draft.wanted.isdisjoint(words):
                tree.pop(name, None)
    return True


_NAMED = frozenset(
    {"variance", "count", "sum", "min", "max", "mean", "stddev", "count_distinct", "top_k"}
)
_SKETCHES = frozenset({"quantile", "quantiles", "approx_count_distinct"})


def _words(aggregate: Any) -> list[str]:
    return [aggregate] if isinstance(aggregate, str) else [*aggregate]


def _further() -> list[str]:
    """Functions with a column form that are not named here."""
    there = {name for name, function in FUNCTIONS.items() if function.columns is not None}
    return sorted(there - _NAMED - _SKETCHES)


def _of_columns(draft: Draft, name: str, tree: dict[str, Any]) -> dict[str, Any]:
    function, own = draft.pick(["sum", "min", "max", "mean"]), Random(repr((name, tree)))
    if own.random() < 0.6:  # drawn apart, so that the rest of the pipeline is what it was
        function = own.choice(["stddev", "count_distinct", "top_k", "quantile", *_further()])
    if Random(repr((tree, name))).random() < (
        0.8 if "approx_count_distinct_in_columns" in draft.wanted else 0.1
    ):
        function = "approx_count_distinct"
    draft.features.add(f"{function}_in_columns")
    argument = calculation(own) if function in CALCULATED and own.random() < 0.3 else "n"
    return {
        function: "at" if function == "approx_count_distinct" else argument,
        **FUNCTIONS[function].example,
    }


def _known(draft: Draft) -> Any:
    """What is determined of the pipeline so far; None when the loader refuses it, for reasons that
    pages name."""
    try:
        return promised(load_tree(draft.tree), draft.stated, draft.free)
    except PipelineError as ex:
        if any(reason in str(ex) for reason in REFUSED):
            return None
        raise AssertionError(
            f"the generator made what the loader refuses: {ex}\n{emit(draft.tree)}"
        ) from ex


REFUSED = (
    "discarding would",  # windows.md: discarding over retractions
    "retract",
    "take back",
    "emit: changes",
    "comes from the change log",  # pipeline.md, Change logs: windows behind one
    "which the watermark may overtake",  # windows.md: windows of results
)
"""What the pages refuse, and the generator does not foresee."""


def _enlist(
    draft: Draft,
    tree: Mapping[str, Any],
    streams: Mapping[str, Facts],
    fields: frozenset[str],
    key: Any,
) -> None:
    for stream in _outputs(tree):
        draft.flows[stream] = Flow(
            stream,
            fields,
            streams[stream],
            key,
            weak="productions" in tree,
            last=_ends_with_time(draft, tree),
            versions=_has_versions(draft, tree),
        )
    if "dictionary" in tree:  # numbers may differ from run to run, so nobody takes them on
        made = draft.flows[tree["output"]]
        draft.flows[tree["output"]] = replace(
            made, final=True, facts=replace(made.facts, order=Order.NONE)
        )
    late = tree.get("late")
    if isinstance(late, dict):
        (source,) = list(tree["input"])[:1]
        flow = draft.flows[source]
        draft.flows[late["side"]] = Flow(
            late["side"], flow.fields, streams[late["side"]], key, flow.typed
        )


def _ends_with_time(draft: Draft, tree: Mapping[str, Any]) -> bool:
    window = tree.get("window")
    own = window == "global" or (isinstance(window, dict) and "count" in window)
    if own or window is not None or ("aggregate" in tree and "over" not in tree):
        return own
    return any(draft.flows[name].last for name in tree["input"])


def _has_versions(draft: Draft, tree: Mapping[str, Any]) -> bool:
    """Whether its rows are the versions of a change log."""
    if "aggregate" in tree:
        return not tree.keys() & {"window", "slices", "over"}
    passed = tree.keys() & {"map", "filter", "flat_map", "branch"}
    return bool(passed) and any(draft.flows[name].versions for name in tree["input"])


def _outputs(tree: Mapping[str, Any]) -> list[str]:
    if "branch" in tree:
        return list(tree["branch"])
    given = tree.get("output", [])
    return given if isinstance(given, list) else [given]


def _weak_words(tree: Mapping[str, Any]) -> Iterator[str]:
    """What a computation is called when its productions are weak. Ids must tell apart what is alike
    otherwise."""
    yield "weak"
    if isinstance(tree.get("window"), dict) and "count" in tree["window"]:
        yield "weak_count"
    if tree.get("options", {}).get("past"):
        yield "weak_past"


def _dials(draft: Draft, tree: dict[str, Any]) -> None:
    keeps = "keep" in tree.get("deduplicate", {})
    strong = "dictionary" in tree or "uv" in tree or "top" in tree or "over" in tree or keeps
    kept_join = "join" in tree and (
        "window" not in tree or bool(tree.keys() & {"trigger", "allowed_lateness"})
    )
    if not strong and draft.chance(0.3, *_weak_words(tree)) and not kept_join:
        tree["productions"] = "weak"
    # Of weak productions an at-least-once consumer knows neither number nor id.
    loose = "order_by" in tree and any(draft.flows[name].weak for name in tree["input"])
    if draft.chance(0.1, "at_least_once", *(["loose_order"] if loose else [])):
        tree["delivery"] = "at_least_once"
    if draft.chance(0.15):
        tree["max_attempts"] = draft.pick([1, 2])
