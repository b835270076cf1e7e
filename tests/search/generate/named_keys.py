"""Makes other keys of those that are drawn, with a random generator of their own: named
expressions, one group of everything, and groups of nulls. All else stays as it is without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from millwheel.errors import PipelineError
from tests.search.generate.draft import Draft
from tests.search.reference.keys import CALCULATED
from tests.search.script import Action, Push, load_tree

_SHARE = 0.3
_NULLS = 0.25
_FEATURES = ("key_expressions", "key_all", "null_key")


def name_keys(draft: Draft, seed: int) -> set[str]:
    """Keys of another kind for some computations, sometimes; and which kinds there are then."""
    rng = Random(f"named keys {seed}")
    if rng.random() >= _SHARE and draft.wanted.isdisjoint(_FEATURES):
        return set()
    made: set[str] = set()
    for name, tree in draft.tree["computations"].items():
        features = _changed(draft, rng, name, tree)
        made |= features
    draft.features |= made
    return made


def _changed(draft: Draft, rng: Random, name: str, tree: dict[str, Any]) -> set[str]:
    given = tree["input"]
    if "join" in tree or "enrich" in tree or "dictionary" in tree or not isinstance(given, dict):
        return set()
    keys = {repr(each.get("key")): each.get("key") for each in given.values()}
    key = next(iter(keys.values()))
    if len(keys) > 1 or key is None or ":" in key:
        return set()
    fields = frozenset.intersection(*(draft.flows[stream].fields for stream in given))
    written, features = _drawn(draft, rng, key, fields, tree)
    if not features:
        return set()
    before = dict(given)
    tree["input"] = dict.fromkeys(given, written)
    try:
        load_tree(draft.tree)
    except PipelineError:  # such as a result that has a name of the key
        tree["input"] = before
        return set()
    for stream in _outputs(tree):
        flow = draft.flows[stream]
        lost = {"k", "u"} if written["key"] == "all" and "window" in tree else set()
        draft.flows[stream] = replace(flow, key=None, fields=flow.fields - lost)
    return features


def _drawn(
    draft: Draft, rng: Random, key: Any, fields: frozenset[str], tree: dict[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """The key of an input, and its features."""
    names = [key] if isinstance(key, str) else key
    wanted = [each for each in _FEATURES if each in draft.wanted]
    kind = rng.choice([*wanted, *wanted, *_FEATURES[:2], "key_expressions"])
    taken = any(
        stream in other["input"]
        for stream in _outputs(tree)
        for other in draft.tree["computations"].values()
    )
    written: dict[str, Any] = {"key": key}
    features: set[str] = set()
    if kind == "key_all" and not taken and "uv" not in tree:
        return {"key": "all"}, {"key_all"}
    if kind == "key_expressions":
        texts = [text for text, (needs, _) in CALCULATED.items() if needs in fields]
        if texts and names[0] in ("k", "u"):
            written["key"] = {name: rng.choice(texts) for name in names}
            features.add("key_expressions")
    if rng.random() < 0.5 or kind == "null_key":
        written["null_key"] = "group"
        features.add("null_key")
    return written, features


def _outputs(tree: dict[str, Any]) -> list[str]:
    if "branch" in tree:
        return list(tree["branch"])
    found = tree.get("output", [])
    return found if isinstance(found, list) else [found]


def with_nulls(script: Sequence[Action], seed: int) -> list[Action]:
    """The same, with nulls in some of the fields that are keys."""
    rng = Random(f"nulls {seed}")
    return [
        replace(each, values=tuple(_with_null(value, rng) for value in each.values))
        if isinstance(each, Push)
        else each
        for each in script
    ]


def _with_null(value: Any, rng: Random) -> Any:
    name = rng.choice("ku")
    if rng.random() >= _NULLS or not isinstance(value, dict) or name not in value:
        return value
    return {**value, name: None}
