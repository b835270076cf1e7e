"""Draws which streams a computation takes, and by which key."""

from __future__ import annotations

import random
from typing import Any

from tests.search.generate.draft import Draft, Flow

_KEYS: tuple[Any, ...] = ("k", "k", "u", ["k", "u"], "callbacks:by_k")


def _keys(draft: Draft, flow: Flow) -> list[Any]:
    """Keys that may be taken of a stream; None is the one its producer gave."""
    found: list[Any] = (
        [] if flow.key is None and flow.name in ("hits", "clicks") and not flow.typed else [None]
    )
    if flow.name in ("hits", "clicks"):
        found = [] if draft.rng.random() < 0.9 else [None]
    for key in _KEYS:
        needs = {"k"} if key == "callbacks:by_k" else set(key if isinstance(key, list) else [key])
        if needs <= flow.fields and (not flow.retracts or ":" not in key):
            found.append(key)
    return found or [None]


def _is_likely(draft: Draft, flow: Flow) -> bool:
    """Whether a computation that is wanted must have such an input."""
    return (
        (flow.last and "behind_global" in draft.wanted)
        or (flow.weak and "loose_order" in draft.wanted)
        or (flow.facts.retracts and "top_of_changes" in draft.wanted)
    )


def take_input(
    draft: Draft, fits: Any = None, most: int = 1
) -> tuple[dict[str, Any], list[Flow], Any] | None:
    """(input, its streams, its key). The last streams are taken more often than the first."""
    flows = [
        flow for flow in draft.flows.values() if not flow.final and (fits is None or fits(flow))
    ]
    if len(flows) < 1:
        return None
    count = 1 if most == 1 or len(flows) == 1 or draft.rng.random() < 0.75 else 2
    chosen: list[Flow] = []
    while len(chosen) < count:
        likely = [flow for flow in flows if _is_likely(draft, flow)] or flows[-1:]
        flow = draft.pick(likely) if draft.rng.random() < 0.4 else draft.pick(flows)
        if flow not in chosen:
            chosen.append(flow)
    keys = [
        key for key in _keys(draft, chosen[0]) if all(key in _keys(draft, flow) for flow in chosen)
    ]
    if not keys:
        return None
    key = draft.pick(keys)
    if flow_key := (chosen[0].key if count == 1 else None):
        key = (
            draft.pick([key, flow_key, None])
            if flow_key in _KEYS and flow_key in keys
            else draft.pick([key, None])
        )
    given = {flow.name: {} if key is None else {"key": key} for flow in chosen}
    if key is None:
        draft.features.add("producers_key")
    if count > 1:
        draft.features.add("two_inputs")
    return given, chosen, key if key is not None else chosen[0].key


def linked(draft: Draft, given: dict[str, Any], flows: list[Flow], key: Any) -> Any:
    """The same where chains are wanted, under the key of the producer if that is a computation."""
    if (
        not draft.wanted & {"chained", "chained_results"}
        or len(flows) > 1
        or flows[0].name in draft.tree["streams"]
    ):
        return given, flows, key
    return {flows[0].name: {}}, flows, flows[0].key


def take_pair(draft: Draft, changing: bool = False) -> Any:
    """Two streams with a key that both have. ``changing``: they may take back what they said."""

    def fits(flow: Flow) -> bool:
        return (changing or not flow.retracts) and not flow.typed and not flow.final

    flows = [flow for flow in draft.flows.values() if fits(flow)]
    if len(flows) < 2:
        return None
    one, other = draft.rng.sample(flows, 2)
    keys = [
        key
        for key in ("k", "u", ["k", "u"])
        if all(set(key) <= flow.fields for flow in (one, other))
    ]
    if not keys:
        return None
    key = draft.pick(keys)
    return {one.name: {"key": key}, other.name: {"key": key}}, one, other, key


def take_third(draft: Draft, given: dict[str, Any], key: Any, word: str) -> None:
    """Adds a third input to those of a join, if there is one, and then the ``word``."""
    # drawn apart, so that nearly all seeds give the pipelines that they gave before
    apart = random.Random(repr(("third", draft.tree)))
    if apart.random() >= (0.9 if word in draft.wanted else 0.3):
        return
    flows = [
        flow
        for flow in draft.flows.values()
        if flow.name not in given
        and not (flow.typed or flow.final or flow.retracts)
        and set(key) <= flow.fields
    ]
    if flows:
        given[apart.choice(flows).name] = {"key": key}
        draft.features.add(word)
