"""Draws what the pages refuse, now and then: the loader must refuse it, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.search.generate.draft import Draft, Flow

_TEN = {"tumbling": "10s"}


def spoil(draft: Draft, name: str) -> bool:
    """Add a computation that must be refused; False where none fits or none is drawn."""
    if not draft.chance(0.02, "refused"):
        return False
    flows = list(draft.flows.values())
    found = {
        word: made
        for word, make in _SPOILS.items()
        for flow in flows
        if (made := make(flow)) is not None
    }
    asked = sorted(found.keys() & draft.wanted) or sorted(found)
    if not asked:
        draft.features.discard("refused")
        return False
    word = draft.pick(asked)
    draft.features.add(word)
    draft.tree["computations"][name] = {**found[word], "output": name}
    return True


def _key_of_bounds(flow: Flow) -> dict[str, Any] | None:
    """windows.md, Results: a key with the name of a bound would be replaced by it."""
    if flow.typed or "window_end" not in flow.fields:
        return None
    return {
        "input": {flow.name: {"key": "window_start"}},
        "window": _TEN,
        "aggregate": {"n": "count"},
    }


def _refire_replaces(flow: Flow) -> dict[str, Any] | None:
    """windows.md, Late records: ``late: refire`` emits differences."""
    if flow.typed or "n" not in flow.fields or flow.retracts:
        return None
    tree = {"input": {flow.name: {"key": "n"}}, "window": _TEN, "aggregate": {"n": "count"}}
    return {**tree, "late": "refire", "accumulation": "accumulating"}


def _part_replaces(flow: Flow) -> dict[str, Any] | None:
    """windows.md, Firing again: a part of a window would be shown in place of it."""
    if flow.typed or "n" not in flow.fields or flow.retracts:
        return None
    tree = {"input": {flow.name: {"key": "n"}}, "window": _TEN, "aggregate": {"n": "count"}}
    return {**tree, "allowed_lateness": "5s", "queryable": "latest"}


def _copies_of_retractions(flow: Flow) -> dict[str, Any] | None:
    """pipeline.md, deduplicate: it cannot take back what it has passed."""
    if not flow.retracts or "n" not in flow.fields:
        return None
    return {"input": {flow.name: {"key": "n"}}, "deduplicate": {"within": "10s"}}


_SPOILS: dict[str, Callable[[Flow], dict[str, Any] | None]] = {
    "key_of_bounds": _key_of_bounds,
    "refire_replaces": _refire_replaces,
    "part_replaces": _part_replaces,
    "copies_of_retractions": _copies_of_retractions,
}
