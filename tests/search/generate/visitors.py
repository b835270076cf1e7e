"""Draws dictionaries, and unique visitors."""

from __future__ import annotations

from typing import Any

from tests.search.generate.draft import Draft, Flow
from tests.search.generate.inputs import take_input


def _fits(flow: Flow) -> bool:
    return not flow.retracts and not flow.typed and {"k", "u", "n"} <= flow.fields


def numbered(draft: Draft, name: str) -> Any:
    found = take_input(draft, _fits, 2)
    if found is None:
        return None
    given, _, _ = found
    dictionary = {
        "of": draft.pick(["k", "u", "n"]),
        "as": "number",
        "partitions": draft.pick([1, 3, 64]),
    }
    if draft.chance(0.6, "dictionary_ttl"):
        dictionary["ttl"] = draft.pick(["2s", "5s", "10s"])
    draft.features.add("dictionary")
    return (
        {"input": {stream: {} for stream in given}, "dictionary": dictionary, "output": name},
        frozenset(),
        None,
    )


def visitors(draft: Draft, name: str) -> Any:
    found = take_input(draft, _fits)
    if found is None:
        return None
    given, _, key = found
    named = next(iter(given.values())).get("key")
    if named is None or ":" in named:
        return None
    size = draft.pick(["10s", "20s", "60s"])
    uv = {"of": draft.pick(["u", "n"]), "every": draft.pick(["5s", "10s"]), "per": size}
    uv["partitions"] = draft.pick([1, 3, 64])
    if draft.chance(0.5, "uv_ttl"):
        uv["ttl"] = size
    if draft.chance(0.3):
        uv["emit"] = "changes"
    tree = {"input": given, "uv": uv, "output": name}
    if draft.chance(0.2):
        tree["where"] = "n != 5"
    draft.features.add("uv")
    names = [named] if isinstance(named, str) else named
    return tree, frozenset({*names, "window_start", "window_end", "visitors"}), key
