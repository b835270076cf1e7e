"""Draws computations that are no windows: callbacks, steps, joins and their like. Each function
gives the tree of the options, the fields of the results, and their key; or None, where no stream
suits it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.search.generate.draft import Draft, Flow
from tests.search.generate.inputs import linked, take_input, take_pair, take_third
from tests.search.generate.windows import draw_window, of_input
from tests.search.questions import SECOND, START
from tests.search.script import Action, Push

_TOGETHER = ("callbacks:Orders", "callbacks:Brief", "callbacks:Mixed", "callbacks:Free")
"""Those that can."""


def orders(draft: Draft, name: str) -> Any:
    found = take_input(draft, lambda flow: not flow.retracts, 2)
    if found is None:
        return None
    given, flows, key = found
    kind = draft.pick(["Orders", "Brief", "Mixed"])
    tree = {
        "input": given,
        "callback": f"callbacks:{kind}",
        "options": {"out": name},
        "output": name,
    }
    draft.features.update({"callback", "timers"} | ({"ttl"} if kind != "Orders" else set()))
    if draft.chance(0.15, "past_timers"):
        tree["options"]["past"] = True
    unpaced = not all(flow.facts.paced for flow in flows)
    if draft.chance(0.85 if unpaced else 0.2, "order_by"):
        tree["order_by"] = "timestamp"
        # How far the watermark is beyond a record that waited for it depends on its steps: nothing
        # may be set by it.
        tree["options"]["past"] = True
    if not draft.stated or "order_by" in tree:
        tree["options"]["clock"] = False
    return tree, frozenset({"k", "u", "n", "t", "total"}), key


def free(draft: Draft, name: str) -> Any:
    found = take_input(draft, None, 2)
    if found is None:
        return None
    given, _, key = found
    options: dict[str, Any] = {"out": name}
    if draft.chance(0.4, "timers"):
        options["wait"] = draft.pick([0, 1_000_000, 20_000_000])
    draft.features.add("callback")
    tree = {"input": given, "callback": "callbacks:Free", "options": options, "output": name}
    return tree, frozenset({"k", "u", "n"}), key


_OWN_FROM = 1_000
"""The seeds below stay as they were."""
_OWN_ORDERS = (["change"], ["change"], ["twice"], ["keep"], ["keep"], ["raise"])


def add_owners(draft: Draft, seed: int) -> None:
    """Callbacks that change what they get in place, and remember values of many types, with a
    random generator of their own."""
    own_rng = random.Random(f"owning {seed}")
    wanted = "owning" in draft.wanted
    if not wanted and (seed < _OWN_FROM or own_rng.random() >= 0.15):
        return
    for tree in draft.tree["computations"].values():
        if tree.get("callback") == "callbacks:Orders":
            tree["callback"] = "callbacks:Owning"
            draft.features.add("owning")


def add_lists(draft: Draft, seed: int) -> None:
    """Steps that make several records of one by a list, with a random generator of their own."""
    wanted = "lists" in draft.wanted
    if not wanted and (seed < _OWN_FROM or random.Random(f"lists {seed}").random() < 0.5):
        return
    for tree in draft.tree["computations"].values():
        if tree.get("flat_map") == "callbacks:doubled":
            tree["flat_map"] = {"n": "[n, n + 10] if n != 3 else []"}
            draft.features.add("lists")


def own_orders(draft: Draft, seed: int, script: Sequence[Action]) -> list[Action]:
    """The same script; in a case with such callbacks, records tell them what to change."""
    if "owning" not in draft.features:
        return list(script)
    own_rng = random.Random(f"own orders {seed}")
    return [
        replace(each, values=tuple(_ordered(own_rng, each.values)))
        if isinstance(each, Push)
        else each
        for each in script
    ]


def _ordered(rng: random.Random, values: Sequence[Any]) -> Iterator[Any]:
    for record in values:
        found = [list(rng.choice(_OWN_ORDERS)) for _ in range(rng.choice([0, 1, 1, 2]))]
        yield {**record, "do": [*record.get("do", ()), *found]} if found else record


def add_batches(draft: Draft, seed: int) -> None:
    """Callbacks that take the records of a key together, sometimes, with a random generator of
    their own: all else stays as it is without them. Not where timers are due at once: those fire
    behind all that came together."""
    own_rng = random.Random(f"batches {seed}")
    for tree in draft.tree["computations"].values():
        past = tree.get("options", {}).get("past") and "order_by" not in tree
        if (
            tree.get("callback") in _TOGETHER
            and not past
            and (own_rng.random() < 0.4 or "batches" in draft.wanted)
        ):
            tree["callback"] += "Together"
            draft.features.add("batches")


def steps(draft: Draft, name: str) -> Any:
    found = take_input(draft, lambda flow: not flow.typed and {"k", "u", "n"} <= flow.fields, 2)
    if found is None:
        return None
    given, flows, key = found
    given, flows, key = linked(draft, given, flows, key)
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
    seldom = 0.9 if "order_in_columns" in draft.wanted else 0.2
    if not any(flow.retracts for flow in flows) and draft.chance(seldom, "order_by"):
        tree["order_by"] = "timestamp"
    return {**tree, "output": name}, fields, key


def deduplicated(draft: Draft, name: str) -> Any:
    found = take_input(draft, lambda flow: not flow.retracts and not flow.typed, 2)
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


def ranked(draft: Draft, name: str) -> Any:
    """The first rows of a key by an order, or the first or the last by time."""
    found = take_input(draft, lambda flow: not flow.typed and "n" in flow.fields)
    if found is None:
        return None
    given, (flow,), key = found
    if not flow.retracts and draft.chance(0.3, "keep"):
        draft.features.add("keep")
        tree = {"input": given, "deduplicate": {"keep": draft.pick(["first", "last"])}}
        return {**tree, "output": name}, flow.fields, key
    by = draft.pick([["n desc"], ["n"]])
    if "u" in flow.fields:
        by = draft.pick([by, ["n", "u desc"], ["u"], ["n + u desc", "u"]])
    if draft.chance(0.2, "nulls_in_order"):
        nulls = draft.pick(["first", "last"])
        by = [f"nullif(n, 2){draft.pick(['', ' desc'])} nulls {nulls}", *by]
        draft.features.add("nulls_in_order")
    top: dict[str, Any] = {"by": by, "k": draft.pick([1, 2, 3])}
    if draft.chance(0.5, "places"):
        top["rank"] = "place"
        draft.features.add("places")
    draft.features.update({"top"} | ({"top_of_changes"} if flow.retracts else set()))
    return {"input": given, "top": top, "output": name}, flow.fields, key


def looking_back(draft: Draft, name: str) -> Any:
    """Each record with aggregates of those before it."""
    found = take_input(
        draft, lambda flow: not flow.retracts and not flow.versions and "n" in flow.fields, 2
    )
    if found is None:
        return None
    given, flows, key = found
    over: dict[str, Any] = {"rows": draft.pick([1, 2, 3, 5, "all"])}
    if draft.chance(0.5, "range_of_time"):
        over = {"range": draft.pick(["0s", "3s", "20s", "60s", "all"])}
    else:
        draft.features.add("rows_before")
    if ("rows" in over or over["range"] == "all") and draft.chance(0.3):
        over["ttl"] = draft.pick(["2s", "20s"])
    made: dict[str, Any] = {"m": draft.pick(["count", {"sum": "n"}])}
    for place in range(draft.pick([0, 1, 2])):
        functions = ["min", "max", "mean", "first", "last", "collect", "count_distinct", "sum"]
        made[f"o{place}"] = {draft.pick(functions): "n"}
        if draft.chance(0.3):
            made[f"o{place}"]["where"] = "n > 1"
    tree = {"input": given, "over": over, "aggregate": made, "output": name}
    if draft.chance(0.2):
        tree["where"] = "n > 2"
    draft.features.add("over")
    fields = frozenset.intersection(*(flow.fields for flow in flows))
    return tree, frozenset({*fields, *made}), key


def branched(draft: Draft, name: str) -> Any:
    found = take_input(draft, lambda flow: not flow.typed and "n" in flow.fields, 2)
    if found is None:
        return None
    given, flows, key = linked(draft, *found)
    tree: dict[str, Any] = {
        "input": given,
        "branch": {f"{name}_few": "n < 4", f"{name}_many": "n > 2"},
    }
    if draft.chance(0.5):
        tree["branch"][f"{name}_rest"] = "otherwise"
    if draft.chance(0.5):
        tree["match"] = draft.pick(["first", "all"])
    draft.features.add("branch")
    return tree, frozenset.intersection(*(flow.fields for flow in flows)), key


def joined(draft: Draft, name: str) -> Any:
    # drawn apart, so that nearly all seeds give the pipelines that they gave before
    of_changes = random.Random(repr(("changes", draft.tree))).random()
    of_changes = of_changes < (0.9 if "window_join_of_changes" in draft.wanted else 0.1)
    found = take_pair(draft, of_changes)
    if found is None:
        return None
    given, one, other, key = found
    kinds = {"sliding", "tumbling", "session", "cumulative", "count", "global"}
    if one.retracts or other.retracts:
        kinds -= {"count"}
        draft.features.add("window_join_of_changes")
    if one.versions or other.versions:
        kinds = {"global"}
    window = draw_window(draft, kinds, changes=False)
    tree = {
        "input": given,
        "window": of_input(draft, (one, other), window),
        "join": draft.pick(["inner", "left", "outer"]),
        "output": name,
    }
    if draft.chance(0.4, "side"):
        tree["late"] = {"side": f"{name}_late"}
    draft.features.add("join")
    tree |= _firing_again(draft, tree["window"])
    apart = random.Random(repr((draft.tree, "kind")))
    if apart.random() < (0.9 if "other_join" in draft.wanted else 0.2):
        tree["join"] = apart.choice(["right", "semi", "anti"])
        draft.features.add("other_join")
    elif tree["window"] != {"of": "input"}:
        take_third(draft, given, key, "window_join_of_three")
    if tree["join"] not in ("semi", "anti"):
        return tree, frozenset(key), key
    if tree["window"] != {"of": "input"}:  # its results may be too late for their own windows
        return tree, one.fields - _BOUNDS, key
    return tree, one.fields, key


_BOUNDS = frozenset({"window_start", "window_end"})
_AGAIN: tuple[dict[str, Any], ...] = (
    {"allowed_lateness": "20s"},
    {"allowed_lateness": "1m"},
    {"trigger": {"repeat": {"after_count": 1}}},
    {"trigger": {"repeat": {"after_count": 2}}, "allowed_lateness": "20s"},
    {"trigger": {"every": "5s"}},
    {"trigger": {"after_watermark": {"early": {"after_count": 2}}}, "allowed_lateness": "20s"},
    {"trigger": {"after_watermark": {"early": {"after_count": 1}, "late": {"after_count": 2}}}},
)
"""What lets the windows of a join fire more than once."""


def _firing_again(draft: Draft, window: Any) -> dict[str, Any]:
    """Drawn apart, so that the rest of the pipeline is what it was."""
    apart = random.Random(repr((draft.tree, "again")))
    if "count" in window or apart.random() >= (0.9 if "join_again" in draft.wanted else 0.3):
        return {}
    draft.features.add("join_again")
    return apart.choice(_AGAIN)


def _within(draft: Draft, one: Flow, other: Flow) -> dict[str, Any]:
    """Bounds of one length, and times that records name."""
    within = {"before": draft.pick(["0s", "9s"]), "after": draft.pick(["4s", "40s"])}
    for flow, replaced in ((one, "after"), (other, "before")):
        if "n" in flow.fields and draft.chance(0.3, "named_bounds"):
            draft.features.add("named_bounds")
            name, step = draft.pick(["until", "until", "from"]), draft.pick([4, 30]) * SECOND
            within[name] = f"{START} + {flow.name}.n * {step}"
            if name == "until" and draft.chance(0.5):
                del within[replaced]
            break
    return within


LASTING_IN_COLUMNS = frozenset({"all_in_columns", "alone_in_columns"})
"""Joins of all records that take whole bundles: of pairs, and of others."""


def kept_join(draft: Draft, name: str) -> Any:
    lasting = not draft.wanted.isdisjoint(LASTING_IN_COLUMNS)
    found = take_pair(draft, changing=not lasting)
    if found is None:
        return None
    given, one, other, key = found
    kind = draft.pick(["inner", "left", "right", "outer", "semi", "anti"])
    in_columns = draft.wanted & {"near_in_columns", *LASTING_IN_COLUMNS}
    if in_columns and (kind == "inner") == ("alone_in_columns" in in_columns):
        kind = "left" if "alone_in_columns" in in_columns else "inner"
    fields = one.fields - _BOUNDS if kind in ("semi", "anti") else frozenset(key)
    if one.retracts or other.retracts:
        draft.features.add("kept_join_of_changes")
    join: Any = kind
    if (
        not one.retracts
        and not other.retracts
        and not lasting
        and draft.chance(0.9 if in_columns else 0.5, "interval_join")
    ):
        join = {"kind": kind, "within": _within(draft, one, other)}
        draft.features.add("interval_join")
    draft.features.add("kept_join")
    return {"input": given, "join": join, "output": name}, fields, key


def enriched(draft: Draft, name: str) -> Any:
    # drawn apart, so that nearly all seeds give the pipelines that they gave before
    apart = random.Random(repr(("changes", draft.tree))).random()
    changing = apart < (0.8 if "enrich_of_changes" in draft.wanted else 0.2)
    found = take_pair(draft, changing)
    if found is None:
        return None
    given, one, other, key = found
    if one.retracts or other.retracts:
        draft.features.add("enrich_of_changes")
    tree = {"input": given, "enrich": {"with": other.name, "as": "other"}, "output": name}
    if draft.chance(0.6):
        tree["enrich"]["missing"] = draft.pick(["keep", "drop", "dead_letter"])
    if draft.chance(0.3, "as_of_arrival"):
        tree["enrich"]["as_of"] = "arrival"
    draft.features.add("enrich")
    return tree, one.fields, key


def looked_up(draft: Draft, name: str) -> Any:
    found = take_input(
        draft, lambda flow: not flow.retracts and not flow.typed and "u" in flow.fields, 2
    )
    if found is None:
        return None
    given, flows, key = found
    target = {"redis": {"url": "redis://127.0.0.1:1/0", "key": "item:{u}"}}
    enrich: dict[str, Any] = {
        "lookup": target,
        "missing": draft.pick(["keep", "drop", "dead_letter"]),
    }
    enrich.update(draft.pick([{"as": "found"}, {"fields": {"v": "value"}}]))
    if draft.chance(0.5):
        enrich["cache"] = {"size": draft.pick([1, 2, 50]), "ttl": "10s"}
    if draft.chance(0.5):
        enrich["batch"] = draft.pick([1, 2])
    draft.features.add("lookup")
    return (
        {"input": given, "enrich": enrich, "output": name},
        frozenset.intersection(*(f.fields for f in flows)),
        key,
    )
