"""Adds slices to a drawn pipeline, with a random generator of their own: all else stays as it is
without them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.search.facts import Level
from tests.search.generate.draft import Draft
from tests.search.generate.inputs import take_input

_SLICES: tuple[dict[str, Any], ...] = (
    {"every": "10s", "keep": "1h", "levels": ["10s", "1m"]},
    {"every": "5s", "keep": "1h", "levels": ["5s", "10s", "40s", "2m"]},
    {"every": "7s", "keep": "1h"},
    {"every": "10s", "keep": "40s", "levels": ["10s", "20s"]},
    {"every": "10s", "keep": "20s"},
)
_LASTING = {"every": "10s", "keep": "100d", "levels": ["10s", "1m", "1h"]}
_AGGREGATES: tuple[dict[str, Any], ...] = (
    {"n": "count"},
    {"n": "count", "total": {"sum": "n"}},
    {"low": {"min": "n"}, "high": {"max": "n"}, "kinds": {"count_distinct": "n"}},
    {"n": {"count": {"where": "n > 1"}}, "mean": {"mean": "n"}},
)
NAME = "asked"


def add_slices(draft: Draft, seed: int) -> None:
    """A computation with slices beside the others, sometimes. It makes nothing, so nothing else
    changes."""
    own_rng = random.Random(f"slices {seed}")
    if own_rng.random() >= 0.2 and "slices" not in draft.wanted:
        return
    own = replace(draft, rng=own_rng, features=set())

    def fits(flow: Any) -> bool:
        plain = (
            not flow.typed
            and not flow.retracts
            and not flow.last
            and not flow.versions
            and "n" in flow.fields
        )
        return plain and flow.facts.level is Level.ALL

    # Of several inputs slices take rows, and so would all other consumers of a stream whose records
    # come as columns.
    found = take_input(own, fits, 1 if draft.columnar else 2)
    if found is None:
        return
    tree: dict[str, Any] = {
        "input": found[0],
        "slices": dict(_LASTING if draft.columnar else own_rng.choice(_SLICES)),
    }
    tree["aggregate"] = dict(own_rng.choice(_AGGREGATES))
    if own_rng.random() < 0.2:
        tree["where"] = "n != 5"
    draft.tree["computations"][NAME] = tree
    draft.features.add("slices")
