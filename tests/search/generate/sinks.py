"""Draws the sinks of what was made."""

from __future__ import annotations

from millwheel.core.pipeline.graph import retracting_streams
from tests.search.facts import Order
from tests.search.generate.draft import Draft
from tests.search.script import load_tree


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
