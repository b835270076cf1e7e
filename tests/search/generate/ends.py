"""Draws the streams that are pushed to, with the options of their sources, and the sinks of what
was made."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.graph import retracting_streams
from tests.search.facts import Facts, Order
from tests.search.generate.draft import Draft, Flow
from tests.search.script import Action, Push, load_tree


def add_ids(draft: Draft, seed: int) -> None:
    """Ids for records in columns, sometimes, with a random generator of their own: all else stays
    as it is without them."""
    own_rng = random.Random(f"ids {seed}")
    for options in draft.tree["streams"].values():
        if (
            draft.columnar
            and "fields" in options
            and (own_rng.random() < 0.35 or "id" in draft.wanted)
        ):
            options["fields"]["id"] = "str"
            options["id"] = {"field": "id", "horizon": own_rng.choice(["30s", "2m", "1h"])}
            draft.features.add("id")


def leave_fields_undeclared(draft: Draft, seed: int) -> None:
    """Streams that are read into columns declare no fields, sometimes, with a random generator of
    their own. Keys that are divided and dictionaries need declared ones."""
    own_rng = random.Random(f"undeclared {seed}")
    asked = draft.wanted & {"undeclared", "changing_types"}
    if not draft.columnar or "dictionary" in draft.features:
        return
    # what else is asked for stays as it was
    if asked or (own_rng.random() < 0.3 and draft.wanted <= {"columns"}):
        for options in draft.tree["streams"].values():
            options.pop("fields", None)
        draft.features.add("undeclared")


_LARGE_SHARE = 0.12  # of the records; with more of them few keys stay in columns
_LARGE = 1 << 62


def change_types(draft: Draft, seed: int, script: list[Action]) -> list[Action]:
    """Where no fields are declared, whole numbers become others from some push on, sometimes, and
    again whole ones."""
    own_rng = random.Random(f"types {seed}")
    if "undeclared" not in draft.features or (
        own_rng.random() < 0.5 and "changing_types" not in draft.wanted
    ):
        return script
    draft.features.add("changing_types")
    first, last = sorted(own_rng.randrange(len(script) + 1) for _ in range(2))
    return [
        replace(action, values=tuple(map(_with_half, action.values)))
        if isinstance(action, Push) and first <= index <= last
        else action
        for index, action in enumerate(script)
    ]


def _with_half(value: Any) -> Any:
    return {**value, "n": value["n"] + 0.5} if type(value.get("n")) is int else value


def with_large_numbers(draft: Draft, seed: int, script: list[Action]) -> list[Action]:
    """Some whole numbers are so large that columns do not hold the sum of two. Only where
    it is asked for: columns have few windows then."""
    if "large_numbers" not in draft.wanted:
        return script
    rng = random.Random(f"large numbers {seed}")
    draft.features.add("large_numbers")
    return [
        replace(each, values=tuple(_perhaps_large(rng, value) for value in each.values))
        if isinstance(each, Push)
        else each
        for each in script
    ]


def _perhaps_large(rng: random.Random, value: Any) -> Any:
    large = rng.random() < _LARGE_SHARE and type(value.get("n")) is int
    return {**value, "n": value["n"] + _LARGE} if large else value


# The unit is stated: the times of the cases are minutes of 1970.
_US, _MS = {"field": "at", "unit": "us"}, {"field": "at", "unit": "ms"}
_BY_CODE = {"field": "callbacks:stamp", "unit": "us"}


def draw_stream(draft: Draft, name: str, now: int | None) -> None:
    rng, options = draft.rng, dict[str, Any](source={"injection": {}})
    options["timestamp"] = draft.pick([_US, _US, _US, _MS, _BY_CODE])
    typed = not draft.columnar and draft.chance(0.1, "schema")
    if draft.columnar:
        draft.features.add("columns")
        options["fields"] = {"at": "int", "k": "str", "u": "int", "n": "int"}
        options["timestamp"] = draft.pick([_US, _MS])
    elif typed:
        options["schema"], options["timestamp"] = "callbacks:Hit", _US
    elif draft.chance(0.3, "fields"):
        options["fields"] = {"at": "int", "k": "str", "u": "int", "n": "int"}
        if options["timestamp"] == _BY_CODE:
            options["timestamp"] = _US
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


def draw_sinks(draft: Draft) -> None:
    consumed = {stream for tree in draft.tree["computations"].values() for stream in tree["input"]}
    # A change log takes back what it replaces as soon as a consumer would count both.
    back = retracting_streams(load_tree({**draft.tree, "sinks": {}}))
    for flow in draft.flows.values():
        if flow.name in draft.tree["streams"]:
            continue
        if flow.name in consumed and draft.rng.random() < 0.6:
            continue
        if flow.facts.order is not Order.NONE and draft.chance(0.3, "upsert"):
            draft.tree["sinks"][flow.name] = {"files": {"path": flow.name, "mode": "upsert"}}
            _write_modes(draft)
            if "k" in flow.fields and flow.key == "k" and draft.rng.random() < 0.3:
                draft.tree["sinks"][flow.name]["files"]["by"] = "k"
        elif flow.name in back:
            draft.tree["sinks"][flow.name] = {"stdout": {"mode": "changelog"}}
        else:
            draft.tree["sinks"][flow.name] = {"stdout": {}}


def _write_modes(draft: Draft) -> None:
    """Where rows are replaced, windows that can fire again must say what their panes contain."""
    for tree in draft.tree["computations"].values():
        if (
            {"trigger", "allowed_lateness", "late"} & tree.keys()
            and "window" in tree
            and "join" not in tree
        ):
            tree.setdefault("accumulation", "discarding")
