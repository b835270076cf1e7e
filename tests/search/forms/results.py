"""Draws what is made of the results of windows: fields, and a condition."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.search.forms import steps
from tests.search.forms.values import NAMES


def of_results(rng: Random, tree: dict[str, Any], fields: Mapping[str, Mapping[str, str]]) -> bool:
    """Adds ``then`` and ``having`` to some aggregations over windows; whether it did."""
    added = False
    for name, computation in tree["computations"].items():
        windowed = name in fields and {"aggregate", "window"} <= computation.keys()
        if not windowed or rng.random() < 0.5:
            continue
        known = {given: kind for given, kind in fields[name].items() if kind}
        taken = {*fields[name], *computation["aggregate"], "window_start"}
        free = [given for given in NAMES if given not in taken]
        then = {}
        for given in rng.sample(free, rng.choice([0, 1, 2])):
            plain = rng.random() < 0.5  # which mostly has a value
            then[given], kind = ("window_end // 7 + 1", "int") if plain else steps.value(rng, known)
            known[given] = kind
        if then:
            computation["then"] = then
        again = computation.get("accumulation") == "accumulating"
        if not again and (not then or rng.random() < 0.6):
            plain = rng.random() < 0.6
            computation["having"] = "window_end % 7 < 4" if plain else steps.test(rng, known)
        added = True
    return added
