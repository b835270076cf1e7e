"""Draws windows: their kind, aggregates, triggers, accumulation and lateness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from millwheel.core.aggregates.functions import FUNCTIONS
from tests.search.generate.draft import Draft, Flow
from tests.search.generate.inputs import take_input
from tests.search.reference import expressions

_WINDOWS: Mapping[str, tuple[Any, ...]] = {
    "tumbling": ({"tumbling": "10s"}, {"tumbling": "10s", "offset": "3s"}, {"tumbling": "1m"}),
    "empty": (
        {"tumbling": "10s", "emit": "empty"},
        {"tumbling": "5s", "offset": "3s", "emit": "empty"},
    ),
    "sliding": (
        {"sliding": "20s", "every": "10s"},
        {"sliding": "30s", "every": "10s", "offset": "5s"},
    ),
    "changes": (
        {"sliding": "20s", "every": "1s", "emit": "changes"},
        {"sliding": "10s", "every": "5s", "emit": "changes"},
    ),
    "session": ({"session": "5s"}, {"session": "15s"}),
    "cumulative": (
        {"cumulative": "30s", "every": "10s"},
        {"cumulative": "1m", "every": "20s", "emit": "changes"},
    ),
    "count": ({"count": 2}, {"count": 3}),
    "global": ("global",),
}


def draw_window(draft: Draft, kinds: set[str], changes: bool = True) -> Any:
    weights = {
        "tumbling": 4,
        "session": 4,
        "sliding": 2,
        "changes": 1,
        "cumulative": 1,
        "count": 2,
        "global": 1,
    }
    names = sorted(
        {each for each in kinds if f"{each}_window" in draft.wanted} or kinds - {"empty"}
    )
    if "behind_global" in draft.wanted and not any(flow.last for flow in draft.flows.values()):
        names = ["global"]
    kind = draft.rng.choices(names, [weights.get(name, 1) for name in names])[0]
    if kind == "tumbling" and "empty" in kinds and _coin(draft):
        kind = "empty"
    window = draft.pick(w for w in _WINDOWS[kind] if changes or "emit" not in w or kind == "empty")
    draft.features.add(f"{kind}_window")
    return window


def of_input(draft: Draft, flows: Sequence[Flow], window: Any) -> Any:
    """The windows of results, in place of others that were drawn. Drawn apart, so that the rest of
    the pipeline is what it was."""
    share = 0.9 if "of_window" in draft.wanted else 0.25
    bounds = {"window_start", "window_end"}
    suits = all(bounds <= flow.fields for flow in flows) and "emit" not in str(window)
    if not suits or Random(repr((draft.tree, "of"))).random() >= share:
        return window
    draft.features.add("of_window")
    return {"of": "input"}


def _coin(draft: Draft) -> bool:
    """True for one in five. It looks at the next draw without taking it."""
    ahead = Random()
    ahead.setstate(draft.rng.getstate())
    return ahead.random() < 0.2


_ELSEWHERE = frozenset({"count", "variance", "quantile", "quantiles", "approx_count_distinct"})
"""Drawn in other ways; ``variance`` is the square of what is drawn."""


OF_ONE_SIZE = frozenset({"count", "sum", "mean", "min", "max", "stddev"})
"""Aggregates of which columns hold the groups of a change log."""
_SUBTRACTING = OF_ONE_SIZE - {"min", "max"}
"""Those of which they do where records are taken back."""
_VERSIONS = frozenset(
    {
        "versions_in_columns",
        "taken_back_in_columns",
        "counted_in_columns",
        "forgotten_in_columns",
        "whole_in_columns",
    }
)
_WHOLE = frozenset({"rows_in_order", "whole_in_columns"})
ROWS = frozenset(name for name, function in FUNCTIONS.items() if function.of_rows)
"""Aggregates of whole records."""


def functions() -> frozenset[str]:
    """What is drawn among the aggregate functions: whatever a family registers is."""
    return frozenset({"count_of_field", *FUNCTIONS} - _ELSEWHERE - ROWS)


def _row(draft: Draft, made: dict[str, Any]) -> Any:
    """An aggregate of whole records, in place of one in ten. Drawn apart, so that the rest of the
    pipeline is what it was."""
    own = Random(repr((made, "row")))
    if own.random() >= (0.1 if draft.wanted.isdisjoint(_WHOLE) else 0.8):
        return None
    draft.features.add("rows_in_order")
    condition = {"where": "n > 1"} if own.random() < 0.2 else {}
    by = own.choice(["n", "n", "-n", "n * n"])
    return own.choice(
        [
            {"max_by": by, **condition},
            {"min_by": by, **condition},
            {"first_row": condition} if condition else "first_row",
            {"last_row": condition} if condition else "last_row",
            {
                "top_rows": own.sample([f"{by} desc", "n asc", "n // 2"], own.choice([1, 2])),
                "k": own.choice([1, 2, 3]),
                **({"rank": "place"} if own.random() < 0.5 else {}),
                **condition,
            },
        ]
    )


CALCULATED = frozenset({"sum", "min", "max", "mean", "stddev", "quantile"})
CALCULATIONS = ("n * 2 - 3", "-n", "n / 4", "(n + 1) * 0.5", "12 / (n - 2)")


def _argument(draft: Draft, function: str) -> str:
    """The field, or sometimes a calculation over it, which may divide by zero. It looks at the
    draws behind the next one without taking them."""
    ahead = Random()
    ahead.setstate(draft.rng.getstate())
    ahead.random()
    if function not in CALCULATED or ahead.random() >= 0.25:
        return "n"
    return calculation(ahead)


def calculation(rng: Random) -> str:
    """Operators alone, or functions too."""
    return rng.choice(CALCULATIONS if rng.random() < 0.5 else list(expressions.CALCULATIONS))


def _drawn(draft: Draft, retracts: bool) -> frozenset[str]:
    if draft.wanted.isdisjoint(_VERSIONS):
        return functions()
    if "counted_in_columns" in draft.wanted and not retracts:
        return frozenset({"count_distinct", "max"})
    return functions() & (_SUBTRACTING if retracts else OF_ONE_SIZE)


def _aggregate(draft: Draft, pushed: bool, retracts: bool) -> dict[str, Any]:
    if pushed and not draft.columnar and draft.chance(0.05, "missing_field"):
        return {
            "n": "count",
            "a0": {"count": "n"},
            "a1": {draft.pick(["first", "last", "min", "collect"]): "n"},
        }
    made: dict[str, Any] = {"n": draft.pick(["count", {"sum": "n"}])}
    drawn = _drawn(draft, retracts)
    wanted = draft.wanted & drawn
    for index in range(draft.rng.choice([1, 2] if wanted else [0, 1, 1, 2])):
        function = draft.pick(sorted(wanted) if index == 0 and wanted else sorted(drawn))
        draft.features.add(function)
        function = function.removesuffix("_of_field")
        if function == "stddev" and _coin(draft):
            draft.features.add("quantile")
            function = "quantile"
        made[f"a{index}"] = {function: _argument(draft, function), **FUNCTIONS[function].example}
        if draft.chance(0.2):
            made[f"a{index}"]["where"] = Random(repr(made)).choice(
                ["n > 1", "n > 1", *expressions.CONDITIONS]
            )
        made[f"a{index}"] = _row(draft, made) or made[f"a{index}"]
    return made


def windowed(draft: Draft, name: str) -> Any:
    found = take_input(draft, lambda flow: not flow.typed and "n" in flow.fields, 2)
    if found is None:
        return None
    given, flows, key = found
    retracts = any(flow.retracts for flow in flows)
    if any("window_end" in flow.fields for flow in flows):
        draft.features.add("two_stages")
    if any(flow.last for flow in flows):
        draft.features.add("behind_global")
    kinds = {"tumbling", "sliding", "session", "cumulative", "global"}
    kinds |= set() if retracts else {"changes", "count", "empty"}
    if any(flow.versions for flow in flows):
        kinds = {"global"}
        draft.features.add("behind_change_log")
    if not draft.wanted.isdisjoint(_VERSIONS) and not retracts:
        kinds = {"global"}
    window = draw_window(draft, kinds, changes=not retracts)
    window = of_input(draft, flows, window)
    tree: dict[str, Any] = {"input": given, "window": window}
    if draft.chance(0.9, "aggregate"):
        tree["aggregate"] = _aggregate(
            draft, all(flow.name in draft.tree["streams"] for flow in flows), retracts
        )
        if draft.chance(0.2):
            tree["where"] = "n != 5"
    _timing(draft, tree, retracts)
    if draft.columnar and "of" in window and Random(repr((tree, "plain"))).random() < 0.6:
        for word in ("trigger", "allowed_lateness", "late", "output_time", "accumulation"):
            tree.pop(word, None)  # so that it may be in columns
        for flow in flows:
            if isinstance(flow.key, str) and flow.key in flow.fields and not given[flow.name]:
                given[flow.name] = {"key": flow.key}
    if window == "global" and "aggregate" in tree:
        _without_window(draft, tree)
    made = _results(draft, tree)
    tree["output"] = name
    # without one the row says "key", whatever the producer took it from
    named = next(iter(given.values())).get("key")
    names = (
        [named]
        if isinstance(named, str) and ":" not in named
        else named
        if isinstance(named, list)
        else ["key"]
    )
    bounds = ("window_start", "window_end") if "window" in tree else ()
    fields = frozenset({*names, *bounds, *tree.get("aggregate", {}), *made})
    draft.features.add("windowed")
    if tree.get("late") == {"side": "?"}:
        tree["late"] = {"side": f"{name}_late"}
    return tree, fields, key


def _without_window(draft: Draft, tree: dict[str, Any]) -> None:
    """Half of the aggregations in one window for all of time become change logs. Drawn apart, so
    that other seeds give the pipelines that they gave before."""
    own = Random(repr(("change log", tree)))
    in_columns = not draft.wanted.isdisjoint(_VERSIONS)
    if own.random() >= (0.9 if in_columns or "change_log" in draft.wanted else 0.5):
        return
    for word in ("window", "trigger", "allowed_lateness", "late", "output_time", "accumulation"):
        tree.pop(word, None)
    draft.features.add("change_log")
    if "taken_back_in_columns" in draft.wanted and own.random() < 0.5:
        tree["accumulation"] = "retracting"
    if "forgotten_in_columns" in draft.wanted:
        tree["ttl"] = own.choice(["1s", "5s", "20s", "1d"])
        for stream in draft.tree["streams"].values():
            if "watermark" in stream:
                stream["watermark"] |= {"max_delay": "1d", "idle_after": "never"}
        if own.random() < 0.5:
            tree["accumulation"] = "retracting"
    if in_columns:
        return
    if own.random() < 0.4:
        tree["trigger"] = {"every": own.choice(["5s", "10s"])}
        draft.features.add("processing_time_trigger")
    if own.random() < 0.5:
        tree["accumulation"] = "retracting"
    if own.random() < 0.3:
        tree["ttl"] = "1d"


def _results(draft: Draft, tree: dict[str, Any]) -> dict[str, str]:
    """Something is made of the results of one in five. Drawn apart, as above."""
    own = Random(repr(("results", tree)))
    if "aggregate" not in tree or own.random() >= (0.9 if "results" in draft.wanted else 0.2):
        return {}
    then = {"t0": own.choice(["n * 2", "n + 1", "-n"])} if own.random() < 0.6 else {}
    again = "trigger" in tree or "allowed_lateness" in tree
    stays = again and tree.get("accumulation") == "accumulating"
    if not stays and (not then or own.random() < 0.6):
        tree["having"] = own.choice(
            ["n > 3", "n < 8", "n % 2 == 0", *(["t0 != 6"] if then else [])]
        )
        draft.features.add("having")
    if then:
        tree["then"] = then
    draft.features.add("results")
    return then


def spans(draft: Draft, name: str) -> Any:
    found = take_input(draft, lambda flow: not flow.retracts, 2)
    if found is None:
        return None
    given, flows, key = found
    kinds = {"tumbling", "sliding", "session", "cumulative", "global", "count", "empty"}
    window = of_input(draft, flows, draw_window(draft, kinds, changes=False))
    tree: dict[str, Any] = {"input": given, "window": window}
    tree["callback"] = "callbacks:Spans"
    tree["options"] = {"out": name, "sort": draft.chance(0.5)}
    _timing(draft, tree, True)
    if tree.get("accumulation") == "retracting":
        tree["accumulation"] = "accumulating"
    if tree.get("late") == "refire" and tree.get("accumulation", "discarding") != "discarding":
        del tree["late"]
    if tree.get("late") == {"side": "?"}:
        tree["late"] = {"side": f"{name}_late"}
    tree["output"] = name
    draft.features.update({"callback", "window_callback"})
    return tree, frozenset({"k", "u", "n", "window_start", "window_end"}), key


_TRIGGERS: tuple[Any, ...] = (
    "default",
    "after_watermark",
    {"after_watermark": {"early": {"after_processing_time": "7s"}}},
    {
        "after_watermark": {
            "early": {"after_processing_time": "5s"},
            "late": {"after_processing_time": "3s"},
        }
    },
    {"after_watermark": {"early": {"after_count": 2}, "late": {"after_count": 1}}},
    {"after_watermark": {"early": {"after_count": 1}}},
    {"repeat": {"after_processing_time": {"delay": "5s", "align": "10s"}}},
    {"repeat": {"after_count": 2}},
    {"after_count": 2},
    {"repeat": {"any": [{"after_count": 3}, {"after_processing_time": "9s"}]}},
    {
        "or_finally": {
            "main": {"repeat": {"after_processing_time": "5s"}},
            "until": "after_watermark",
        }
    },
    {"each": [{"after_processing_time": "5s"}, "after_watermark"]},
    {"all": ["after_watermark", {"after_processing_time": "10s"}]},
    {"after_watermark": {"early": {"after_percentile_watermark": 0.5}, "late": {"after_count": 1}}},
    {"repeat": {"after_bytes": 40}},
    "never",
)


_EARLY = [trigger for trigger in _TRIGGERS if "early" in str(trigger) or "repeat" in str(trigger)]


def _timing(draft: Draft, tree: dict[str, Any], retracts: bool) -> None:
    """Trigger, accumulation, lateness and the time of results."""
    window = tree["window"]
    kind = "global" if window == "global" else next(iter(window))
    changes = isinstance(window, dict) and "emit" in window
    if kind == "count":
        return
    if changes and window["emit"] == "empty":
        if draft.chance(0.35, *draft.wanted & {"side"}):
            tree["late"] = {"side": "?"}
            draft.features.add("side")
        return
    if draft.chance(0.45 if kind != "global" else 0.9, "trigger") and not changes:
        tree["trigger"] = draft.pick(_EARLY if "early" in draft.wanted else _TRIGGERS)
        if "after_processing_time" in str(tree["trigger"]):
            draft.features.add("processing_time_trigger")
    if draft.chance(0.4, "lateness"):
        tree["allowed_lateness"] = draft.pick(["5s", "20s", "1m"])
    discarding = [] if retracts and "early" in draft.wanted else ["discarding"]
    accumulation = draft.pick([*discarding, "accumulating", "retracting", "retracting"])
    if changes and "allowed_lateness" in tree and accumulation == "discarding":
        accumulation = "accumulating"
    if accumulation != "discarding" or draft.chance(0.1):
        tree["accumulation"] = accumulation
        draft.features.add(accumulation)
    if retracts and accumulation == "discarding":
        tree.pop("trigger", None)
        tree.pop("allowed_lateness", None)
    if tree.get("trigger") in _EARLY:
        draft.features.add("early")
    if draft.chance(0.3, "output_time") and not changes:
        tree["output_time"] = draft.pick(["end_of_window", "earliest", "latest"])
    if draft.chance(0.35, *draft.wanted & {"side", "refire"}):
        words = {"side": {"side": "?"}, "refire": "refire"}
        tree["late"] = draft.pick(
            [words[word] for word in sorted(draft.wanted & words.keys())]
            or [*words.values(), "drop"]
        )
        if tree["late"] == "refire" and (
            tree.get("accumulation", "discarding") != "discarding" or retracts or changes
        ):
            del tree["late"]
        elif tree["late"] != "drop":
            draft.features.add("refire" if tree["late"] == "refire" else "side")
