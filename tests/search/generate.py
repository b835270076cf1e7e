"""Draws a case from a seed: a valid pipeline of one to four computations, and a script of what is pushed to it.

``features`` are words for what was drawn: each kind of computation, each option, each form of input. A case can be
asked for by them: then seeds are drawn anew until all of them are there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millwheel.errors import PipelineError
from tests.search import inputs
from tests.search.document import emit
from tests.search.freedoms import Facts, Free, Level, Order, promised
from tests.search.script import Case, load_tree

_TRIES = 12
_DRAWS = 400


class Unlucky(Exception):
    """No case with these features was drawn."""


@dataclass(slots=True)
class Flow:
    """A stream as far as it is drawn: which fields its values have, and what is known of its order."""

    name: str
    fields: frozenset[str]
    facts: Facts
    key: Any
    typed: bool = False
    """Its values are structs."""

    @property
    def retracts(self) -> bool:
        """Whether it takes rows back."""
        return self.facts.retracts


@dataclass(slots=True)
class Draft:
    """A pipeline that grows."""

    rng: random.Random
    stated: bool
    free: Free
    """Something must be determined although runs differ in this."""
    wanted: frozenset[str]
    columnar: bool
    """The streams may be read into columns."""
    tree: dict[str, Any]
    flows: dict[str, Flow] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)

    def chance(self, share: float, *words: str) -> bool:
        """True so often; then the words are features. What is wanted is drawn more often."""
        if self.rng.random() >= (max(share, 0.7) if self.wanted.intersection(words) else share):
            return False
        self.features.update(words)
        return True

    def pick(self, options: Iterable[Any]) -> Any:
        """One of them."""
        return self.rng.choice(list(options))


def case(seed: int, features: Iterable[str] = (), without: Iterable[str] = (), racing: bool = False) -> Case:
    """The case of a seed, with all of these features and without those. ``racing``: something is determined although
    streams race each other, and there is no word but the timestamps' about the watermark."""
    wanted, unwanted = frozenset(features), frozenset(without)
    for number in range(_DRAWS if wanted or unwanted else 1):
        found = _draw(seed, number, wanted, racing)
        if wanted <= found.features and not unwanted & found.features:
            return found
    raise Unlucky(f"no case of seed {seed} has {', '.join(sorted(wanted))}")


def _draw(seed: int, number: int, wanted: frozenset[str], racing: bool) -> Case:
    rng = random.Random(f"{seed}/{number}")
    stated = rng.random() < 0.65
    if wanted & {"own_watermark", "columns", "idle_after"} or racing:
        stated = False
    bundling = racing or (rng.random() < 0.7 and "past_timers" not in wanted)
    free = Free(bundling=bundling, crashing=racing, racing=frozenset() if racing else None)
    columnar = not stated and (rng.random() < 0.3 or "columns" in wanted)
    draft = Draft(
        rng, stated, free, wanted, columnar, {"pipeline": "p", "streams": {}, "computations": {}, "sinks": {}}
    )
    draft.features.add("stated" if stated else "own_watermark")
    now = inputs.NOW if not stated or rng.random() < 0.3 else None
    for name in ["hits", "clicks"][: rng.choice([1, 1, 2])]:
        _stream(draft, name, now)
    for place in range(rng.choice([2, 3] if "two_stages" in wanted else [1, 1, 2, 2, 3, 4])):
        _computation(draft, f"c{place}")
    if "timer_limit" in wanted and "timers" in draft.features:  # only where it is asked for: most would be letters
        draft.features.add("timer_limit")
        draft.tree["limits"] = {"timers_per_key": 3}
    _sinks(draft)
    script = inputs.draw(draft, now)
    yaml = emit(draft.tree)
    return Case(seed, yaml, tuple(script), stated, now, frozenset(draft.features))


# --- streams -----------------------------------------------------------------------------------------------------


def _stream(draft: Draft, name: str, now: int | None) -> None:
    rng, options = draft.rng, dict[str, Any](source={"injection": {}})
    options["timestamp"] = draft.pick(["at", "at", "at", {"field": "at", "unit": "ms"}, "callbacks:stamp"])
    typed = not draft.columnar and draft.chance(0.1, "schema")
    if draft.columnar:
        draft.features.add("columns")
        options["fields"] = {"at": "int", "k": "str", "u": "int", "n": "int"}
        options["timestamp"] = draft.pick(["at", {"field": "at", "unit": "ms"}])
    elif typed:
        options["schema"], options["timestamp"] = "callbacks:Hit", "at"
    elif draft.chance(0.3, "fields"):
        options["fields"] = {"at": "int", "k": "str", "u": "int", "n": "int"}
        if options["timestamp"] == "callbacks:stamp":
            options["timestamp"] = "at"
    if not draft.columnar and draft.chance(0.35, "id"):
        options["id"] = {"field": "id", "horizon": draft.pick(["30s", "2m", "1h"])}
    watermark: dict[str, Any] = {}
    if not draft.stated:
        watermark["max_delay"] = draft.pick(["0s", "5s", "20s"])
        watermark["idle_after"] = draft.pick(["5s", "20s", "never", "never"])
        if watermark["idle_after"] != "never":
            draft.features.add("idle_after")
    if now is not None:
        watermark["max_future"] = draft.pick(["1m", "5m", "never"])
        if watermark["max_future"] != "never":
            draft.features.add("max_future")
    if watermark:
        options["watermark"] = watermark
    draft.tree["streams"][name] = options
    facts = Facts(paced=draft.stated)
    draft.flows[name] = Flow(name, frozenset({"at", "k", "u", "n", "id"}), facts, None, typed)
    rng.random()


# --- computations ------------------------------------------------------------------------------------------------


def _computation(draft: Draft, name: str) -> None:
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


def _maker(draft: Draft) -> Any:
    """A kind of computation; what is wanted, more often."""
    if draft.wanted and draft.rng.random() < 0.6:
        for words, kind in _MAKERS:
            if draft.wanted & words and not draft.wanted & words <= draft.features:
                return kind
    return draft.rng.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS])[0]


def _suits_columns(draft: Draft, tree: dict[str, Any]) -> bool:
    """Whether a computation leaves the sources in columns. Aggregates become such as columns know."""
    if not draft.columnar or not tree["input"].keys() & draft.tree["streams"].keys():
        return True
    if "aggregate" not in tree or len(tree["input"]) > 1 or draft.rng.random() < 0.05:
        return False
    names = [name for name in tree["aggregate"] if name != "n"]
    tree["aggregate"].update({name: {draft.pick(["sum", "min", "max", "mean"]): "n"} for name in names})
    if draft.rng.random() < 0.7:
        for name in ("trigger", "allowed_lateness", "late"):
            tree.pop(name, None)
    return True


def _known(draft: Draft) -> Any:
    """What is determined of the pipeline so far; None when the loader refuses it, for reasons that pages name."""
    try:
        return promised(load_tree(draft.tree), draft.stated, draft.free)
    except PipelineError as ex:
        if any(reason in str(ex) for reason in REFUSED):
            return None
        raise AssertionError(f"the generator made what the loader refuses: {ex}\n{emit(draft.tree)}") from ex


REFUSED = (
    "discarding would",  # windows.md: discarding over retractions
    "retract",
    "take back",
    "emit: changes",
)
"""What the pages refuse, and the generator does not foresee."""


def _enlist(
    draft: Draft, tree: Mapping[str, Any], streams: Mapping[str, Facts], fields: frozenset[str], key: Any
) -> None:
    for stream in _outputs(tree):
        draft.flows[stream] = Flow(stream, fields, streams[stream], key)
    late = tree.get("late")
    if isinstance(late, dict):
        (source,) = list(tree["input"])[:1]
        flow = draft.flows[source]
        draft.flows[late["side"]] = Flow(late["side"], flow.fields, streams[late["side"]], key, flow.typed)


def _outputs(tree: Mapping[str, Any]) -> list[str]:
    if "branch" in tree:
        return list(tree["branch"])
    given = tree.get("output", [])
    return given if isinstance(given, list) else [given]


def _dials(draft: Draft, tree: dict[str, Any]) -> None:
    if draft.chance(0.3, "weak"):
        tree["productions"] = "weak"
    if draft.chance(0.1, "at_least_once"):
        tree["delivery"] = "at_least_once"
    if draft.chance(0.15):
        tree["max_attempts"] = draft.pick([1, 2])


_KEYS: tuple[Any, ...] = ("k", "k", "u", ["k", "u"], "callbacks:by_k")


def _keys(draft: Draft, flow: Flow) -> list[Any]:
    """Keys that may be taken of a stream; None is the one its producer gave."""
    found: list[Any] = [] if flow.key is None and flow.name in ("hits", "clicks") and not flow.typed else [None]
    if flow.name in ("hits", "clicks"):
        found = [] if draft.rng.random() < 0.9 else [None]
    for key in _KEYS:
        needs = {"k"} if key == "callbacks:by_k" else set(key if isinstance(key, list) else [key])
        if needs <= flow.fields and (not flow.retracts or ":" not in key):
            found.append(key)
    return found or [None]


def _input(draft: Draft, fits: Any = None, most: int = 1) -> tuple[dict[str, Any], list[Flow], Any] | None:
    """(input, its streams, its key). The last streams are taken more often than the first."""
    flows = [flow for flow in draft.flows.values() if fits is None or fits(flow)]
    if len(flows) < 1:
        return None
    count = 1 if most == 1 or len(flows) == 1 or draft.rng.random() < 0.75 else 2
    chosen: list[Flow] = []
    while len(chosen) < count:
        flow = flows[-1] if draft.rng.random() < 0.4 else draft.pick(flows)
        if flow not in chosen:
            chosen.append(flow)
    keys = [key for key in _keys(draft, chosen[0]) if all(key in _keys(draft, flow) for flow in chosen)]
    if not keys:
        return None
    key = draft.pick(keys)
    if flow_key := (chosen[0].key if count == 1 else None):
        key = draft.pick([key, flow_key, None]) if flow_key in _KEYS and flow_key in keys else draft.pick([key, None])
    given = {flow.name: {} if key is None else {"key": key} for flow in chosen}
    if key is None:
        draft.features.add("producers_key")
    if count > 1:
        draft.features.add("two_inputs")
    return given, chosen, key if key is not None else chosen[0].key


def _orders(draft: Draft, name: str) -> Any:
    found = _input(draft, lambda flow: not flow.retracts, 2)
    if found is None:
        return None
    given, flows, key = found
    kind = draft.pick(["Orders", "Brief", "Mixed"])
    tree = {"input": given, "callback": f"callbacks:{kind}", "options": {"out": name}, "output": name}
    draft.features.update({"callback", "timers"} | ({"ttl"} if kind != "Orders" else set()))
    if draft.chance(0.15, "past_timers"):
        tree["options"]["past"] = True
    unpaced = not all(flow.facts.paced for flow in flows)
    if draft.chance(0.85 if unpaced else 0.2, "order_by"):
        tree["order_by"] = "timestamp"
        # How far the watermark is beyond a record that waited for it depends on its steps: nothing may be set by it.
        tree["options"]["past"] = True
    if not draft.stated or "order_by" in tree:
        tree["options"]["clock"] = False
    return tree, frozenset({"k", "u", "n", "t", "total"}), key


def _free(draft: Draft, name: str) -> Any:
    found = _input(draft, None, 2)
    if found is None:
        return None
    given, _, key = found
    options: dict[str, Any] = {"out": name}
    if draft.chance(0.4, "timers"):
        options["wait"] = draft.pick([0, 1_000_000, 20_000_000])
    draft.features.add("callback")
    tree = {"input": given, "callback": "callbacks:Free", "options": options, "output": name}
    return tree, frozenset({"k", "u", "n"}), key


def _steps(draft: Draft, name: str) -> Any:
    found = _input(draft, lambda flow: not flow.typed and {"k", "u", "n"} <= flow.fields, 2)
    if found is None:
        return None
    given, flows, key = found
    tree: dict[str, Any] = {"input": given}
    fields = frozenset.intersection(*(flow.fields for flow in flows))
    made = {"k": "k", "u": "u + 1", "n": "n * 2"}
    kinds = draft.pick([["filter"], ["map"], ["filter", "map"], ["flat_map"], ["map", "filter"]])
    if any(flow.retracts for flow in flows):
        kinds = [kind for kind in kinds if kind != "flat_map"] or ["filter"]
    for kind in kinds:
        tree[kind] = {"filter": "n < 7", "map": made, "flat_map": "callbacks:doubled"}[kind]
    if "map" in kinds or "flat_map" in kinds:
        fields = frozenset({"k", "u", "n"})
    draft.features.add("steps")
    if not any(flow.retracts for flow in flows) and draft.chance(0.2, "order_by"):
        tree["order_by"] = "timestamp"
    return {**tree, "output": name}, fields, key


def _deduplicate(draft: Draft, name: str) -> Any:
    found = _input(draft, lambda flow: not flow.retracts and not flow.typed, 2)
    if found is None:
        return None
    given, flows, key = found
    fields = frozenset.intersection(*(flow.fields for flow in flows))
    by = draft.pick([["u"], ["n"], ["u", "n"]])
    tree = {"input": given, "deduplicate": {"within": draft.pick(["10s", "30s"])}, "output": name}
    if set(by) <= fields and draft.chance(0.8):
        tree["deduplicate"]["by"] = by
    draft.features.update({"deduplicate", "ttl"})
    return tree, fields, key


def _branch(draft: Draft, name: str) -> Any:
    found = _input(draft, lambda flow: not flow.typed and "n" in flow.fields, 2)
    if found is None:
        return None
    given, flows, key = found
    tree: dict[str, Any] = {"input": given, "branch": {f"{name}_few": "n < 4", f"{name}_many": "n > 2"}}
    if draft.chance(0.5):
        tree["branch"][f"{name}_rest"] = "otherwise"
    if draft.chance(0.5):
        tree["match"] = draft.pick(["first", "all"])
    draft.features.add("branch")
    return tree, frozenset.intersection(*(flow.fields for flow in flows)), key


def _pair(draft: Draft) -> Any:
    def fits(flow: Flow) -> bool:
        return not flow.retracts and not flow.typed

    flows = [flow for flow in draft.flows.values() if fits(flow)]
    if len(flows) < 2:
        return None
    one, other = draft.rng.sample(flows, 2)
    keys = [key for key in ("k", "u", ["k", "u"]) if all(set(key) <= flow.fields for flow in (one, other))]
    if not keys:
        return None
    key = draft.pick(keys)
    return {one.name: {"key": key}, other.name: {"key": key}}, one, other, key


def _join(draft: Draft, name: str) -> Any:
    found = _pair(draft)
    if found is None:
        return None
    given, _, _, key = found
    window = _window(draft, {"sliding", "tumbling", "session", "cumulative", "count", "global"}, changes=False)
    tree = {"input": given, "window": window, "join": draft.pick(["inner", "left", "outer"]), "output": name}
    if draft.chance(0.4, "side"):
        tree["late"] = {"side": f"{name}_late"}
    draft.features.add("join")
    return tree, frozenset(key), key


def _enrich(draft: Draft, name: str) -> Any:
    found = _pair(draft)
    if found is None:
        return None
    given, one, other, key = found
    tree = {"input": given, "enrich": {"with": other.name, "as": "other"}, "output": name}
    if draft.chance(0.6):
        tree["enrich"]["missing"] = draft.pick(["keep", "drop", "dead_letter"])
    if draft.chance(0.3, "as_of_arrival"):
        tree["enrich"]["as_of"] = "arrival"
    draft.features.add("enrich")
    return tree, one.fields, key


# --- windows -----------------------------------------------------------------------------------------------------

_WINDOWS: Mapping[str, tuple[Any, ...]] = {
    "tumbling": ({"tumbling": "10s"}, {"tumbling": "10s", "offset": "3s"}, {"tumbling": "1m"}),
    "sliding": ({"sliding": "20s", "every": "10s"}, {"sliding": "30s", "every": "10s", "offset": "5s"}),
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


def _window(draft: Draft, kinds: set[str], changes: bool = True) -> Any:
    weights = {"tumbling": 4, "session": 4, "sliding": 2, "changes": 1, "cumulative": 1, "count": 2, "global": 1}
    names = sorted({each for each in kinds if f"{each}_window" in draft.wanted} or kinds)
    kind = draft.rng.choices(names, [weights[name] for name in names])[0]
    window = draft.pick(w for w in _WINDOWS[kind] if changes or "emit" not in w)
    draft.features.add(f"{kind}_window")
    return window


def _aggregate(draft: Draft) -> dict[str, Any]:
    functions = ("count", "sum", "min", "max", "mean", "count_distinct", "top_k", "collect", "first", "last", "stddev")
    made: dict[str, Any] = {"n": draft.pick(["count", {"sum": "n"}])}
    for place in range(draft.rng.choice([0, 1, 1, 2])):
        function = draft.pick(functions)
        made[f"a{place}"] = {function: "n", **({"k": 2} if function == "top_k" else {})}
        if draft.chance(0.2):
            made[f"a{place}"]["where"] = "n > 1"
    return made


def _windowed(draft: Draft, name: str) -> Any:
    found = _input(draft, lambda flow: not flow.typed and "n" in flow.fields, 2)
    if found is None:
        return None
    given, flows, key = found
    retracts = any(flow.retracts for flow in flows)
    if any("window_end" in flow.fields for flow in flows):
        draft.features.add("two_stages")
    kinds = {"tumbling", "sliding", "session", "cumulative", "global"}
    kinds |= set() if retracts else {"changes", "count"}
    window = _window(draft, kinds, changes=not retracts)
    tree: dict[str, Any] = {"input": given, "window": window}
    if draft.chance(0.9, "aggregate"):
        tree["aggregate"] = _aggregate(draft)
        if draft.chance(0.2):
            tree["where"] = "n != 5"
    _timing(draft, tree, retracts)
    tree["output"] = name
    names = [key] if isinstance(key, str) and ":" not in key else key if isinstance(key, list) else ["key"]
    fields = frozenset({*names, "window_start", "window_end", *tree.get("aggregate", {})})
    draft.features.add("windowed")
    if tree.get("late") == {"side": "?"}:
        tree["late"] = {"side": f"{name}_late"}
    return tree, fields, key


def _spans(draft: Draft, name: str) -> Any:
    found = _input(draft, lambda flow: not flow.retracts, 2)
    if found is None:
        return None
    given, _, key = found
    kinds = {"tumbling", "sliding", "session", "cumulative", "global", "count"}
    tree: dict[str, Any] = {"input": given, "window": _window(draft, kinds, changes=False)}
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
    {"after_watermark": {"early": {"after_processing_time": "5s"}, "late": {"after_processing_time": "3s"}}},
    {"after_watermark": {"early": {"after_count": 2}, "late": {"after_count": 1}}},
    {"after_watermark": {"early": {"after_count": 1}}},
    {"repeat": {"after_processing_time": {"delay": "5s", "align": "10s"}}},
    {"repeat": {"after_count": 2}},
    {"after_count": 2},
    {"repeat": {"any": [{"after_count": 3}, {"after_processing_time": "9s"}]}},
    {"or_finally": {"main": {"repeat": {"after_processing_time": "5s"}}, "until": "after_watermark"}},
    {"each": [{"after_processing_time": "5s"}, "after_watermark"]},
    {"all": ["after_watermark", {"after_processing_time": "10s"}]},
    {"after_watermark": {"early": {"after_percentile_watermark": 0.5}, "late": {"after_count": 1}}},
    {"repeat": {"after_bytes": 40}},
    "never",
)


def _timing(draft: Draft, tree: dict[str, Any], retracts: bool) -> None:
    """Trigger, accumulation, lateness and the time of results."""
    window = tree["window"]
    kind = "global" if window == "global" else next(iter(window))
    changes = isinstance(window, dict) and "emit" in window
    if kind == "count":
        return
    if draft.chance(0.45 if kind != "global" else 0.9, "trigger") and not changes:
        tree["trigger"] = draft.pick(_TRIGGERS)
        if "after_processing_time" in str(tree["trigger"]):
            draft.features.add("processing_time_trigger")
    if draft.chance(0.4, "lateness"):
        tree["allowed_lateness"] = draft.pick(["5s", "20s", "1m"])
    accumulation = draft.pick(["discarding", "accumulating", "retracting", "retracting"])
    if changes and "allowed_lateness" in tree and accumulation == "discarding":
        accumulation = "accumulating"
    if accumulation != "discarding" or draft.chance(0.1):
        tree["accumulation"] = accumulation
        draft.features.add(accumulation)
    if retracts and accumulation == "discarding":
        tree.pop("trigger", None)
        tree.pop("allowed_lateness", None)
    if draft.chance(0.3, "output_time") and not changes:
        tree["output_time"] = draft.pick(["end_of_window", "earliest", "latest"])
    if draft.chance(0.35, *draft.wanted & {"side", "refire"}):
        words = {"side": {"side": "?"}, "refire": "refire"}
        tree["late"] = draft.pick(
            [words[word] for word in sorted(draft.wanted & words.keys())] or [*words.values(), "drop"]
        )
        if tree["late"] == "refire" and (tree.get("accumulation", "discarding") != "discarding" or retracts or changes):
            del tree["late"]
        elif tree["late"] != "drop":
            draft.features.add("refire" if tree["late"] == "refire" else "side")


_KINDS: tuple[tuple[Any, int], ...] = (
    (_windowed, 9),
    (_orders, 6),
    (_free, 3),
    (_spans, 3),
    (_steps, 2),
    (_deduplicate, 3),
    (_branch, 2),
    (_join, 3),
    (_enrich, 3),
)


_OF_WINDOWS = """windowed two_stages aggregate side refire lateness trigger retracting accumulating discarding
    output_time processing_time_trigger tumbling_window sliding_window changes_window session_window cumulative_window
    count_window global_window"""
_MAKERS: tuple[tuple[frozenset[str], Any], ...] = (
    (frozenset({"past_timers", "timers", "order_by", "ttl", "callback"}), _orders),
    (frozenset({"enrich", "as_of_arrival"}), _enrich),
    (frozenset({"join"}), _join),
    (frozenset({"deduplicate"}), _deduplicate),
    (frozenset({"branch"}), _branch),
    (frozenset({"steps"}), _steps),
    (frozenset({"window_callback"}), _spans),
    (frozenset(_OF_WINDOWS.split()), _windowed),
)
"""What kind of computation may have a feature that is wanted."""


# --- sinks -------------------------------------------------------------------------------------------------------


def _sinks(draft: Draft) -> None:
    consumed = {stream for tree in draft.tree["computations"].values() for stream in tree["input"]}
    for flow in draft.flows.values():
        if flow.name in draft.tree["streams"]:
            continue
        if flow.name in consumed and draft.rng.random() < 0.6:
            continue
        if flow.facts.order is not Order.NONE and draft.chance(0.3, "upsert"):
            draft.tree["sinks"][flow.name] = {"files": {"path": flow.name, "mode": "upsert"}}
            if "k" in flow.fields and flow.key == "k" and draft.rng.random() < 0.3:
                draft.tree["sinks"][flow.name]["files"]["by"] = "k"
        elif flow.retracts:
            draft.tree["sinks"][flow.name] = {"stdout": {"mode": "changelog"}}
        else:
            draft.tree["sinks"][flow.name] = {"stdout": {}}
