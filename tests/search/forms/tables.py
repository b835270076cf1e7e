"""Draws an enrichment with a table that each worker holds whole: by a field, by two or by an
expression, under any name, and with rows that are alike or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tests.search.forms import steps
from tests.search.forms.values import NAMES, drawn
from tests.search.script import Action, Finish, Push

STREAM = "events.held"
_KINDS = (["int"], ["float"], ["str"], ["int", "float"])
"""Of the values of a field of the rows."""


def enriched(
    rng: Random, tree: dict[str, Any], fields: Mapping[str, str], names: Sequence[str]
) -> list[Action]:
    """Adds the table, and what gets its rows, to a pipeline; then all of the table. ``fields`` are
    those of the stream ``one``, in the order of ``names``."""
    key, _, _, n, s = names
    by, of = rng.choice(
        [(key, [key]), ([key, s], [key, s]), ({"rest": f"{n} % 3"}, [n]), ([n, key], [n, key])]
    )
    own = [f"of{index}" for index in range(len(of))]
    tree["streams"]["held"] = {
        "source": {"files": {"path": "held.jsonl", "format": "jsonl"}},
        "table": own,
    }
    name = rng.choice([each for each in ("held", *NAMES, *names[2:]) if each not in of])
    tree["computations"]["found"] = {
        "input": {"one": {"key": by}, "held": {"key": own}},
        "enrich": {
            "with": "held",
            "as": name,
            "missing": rng.choice(["keep", "drop", "dead_letter"]),
            "broadcast": True,
        },
        "output": "found",
    }
    tree["sinks"]["found"] = {"stdout": {}}
    if rng.random() < 0.5:
        same = {each: kind for each, kind in fields.items() if each != name}
        tree["computations"]["picked"] = {
            "input": "found",
            "filter": steps.test(rng, same),
            "output": "picked",
        }
        tree["sinks"]["picked"] = {"stdout": {}}
    kinds = [fields[each] for each in of]
    values = {given: rng.choice(_KINDS) for given in rng.sample(NAMES, rng.randint(0, 3))}
    pushes = [
        Push(STREAM, tuple(_rows(rng, dict(zip(own, kinds, strict=True)), values)), part)
        for part in ("pushed", "other")
        if rng.random() < 0.8
    ]
    return [*pushes, Finish(STREAM)]


def _rows(
    rng: Random, own: Mapping[str, str], values: Mapping[str, list[str]]
) -> list[dict[str, Any]]:
    nulls = rng.choice([0.0, 0.2])
    rows: list[dict[str, Any]] = []
    for _ in range(rng.choice([1, 4, 12])):
        key = {
            name: rng.choice([-2, -1, 0, 1, 2] if kind == "int" else ["a", "b", "é"])
            for name, kind in own.items()
        }
        made = {name: drawn(rng, rng.choice(some), nulls) for name, some in values.items()}
        rows.append(key | made)
    if rng.random() < 0.1:
        rows.append({**rows[0], "more": [1, {"a": None}]})
    return rows
