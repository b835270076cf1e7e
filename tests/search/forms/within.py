"""Draws steps over the records within the pairs of a join, of which one may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.search.forms import steps
from tests.search.forms.values import NAMES

_SIDES = ("one", "two")


def steps_within(
    rng: Random, tree: dict[str, Any], fields: Mapping[str, Mapping[str, str]]
) -> None:
    """Adds a filter, a projection or both behind the join ``c0``, and perhaps branches."""
    known = {
        f"{side}.{name}": kind for side in _SIDES for name, kind in fields[side].items() if kind
    }
    known |= {name: kind for name, kind in fields["c0"].items() if kind}
    step: dict[str, Any] = {"input": "c0"}
    if rng.random() < 0.6:
        step["filter"] = _test(rng, known)
    if rng.random() < 0.7 or "filter" not in step:
        plain = rng.random() < 0.3  # only passed on
        made = {
            given: (name := rng.choice(sorted(known)), known[name])
            if plain
            else steps.value(rng, known)
            for given in rng.sample(NAMES, 3)
        }
        step["map"] = {given: text for given, (text, _) in made.items()}
        if rng.random() < 0.4:
            step["map"] |= {"whole": "two", "is_there": "one != null"}
        known = {given: kind for given, (_, kind) in made.items()}
    _add(tree, "within", step)
    if rng.random() < 0.4:
        ways = {f"within_{way}": _test(rng, known) for way in ("a", "b")}
        _add(tree, "within_ways", {"input": "within", "branch": {**ways, "within_c": "otherwise"}})


def _test(rng: Random, known: Mapping[str, str]) -> str:
    plain = steps.test(rng, known)
    if "one." in plain and rng.random() < 0.3:
        return f"one != null and {plain}"
    return plain


def _add(tree: dict[str, Any], name: str, step: dict[str, Any]) -> None:
    tree["computations"][name] = step if "branch" in step else {**step, "output": name}
    for stream in step.get("branch", [name]):
        tree["sinks"][stream] = {"stdout": {}}
