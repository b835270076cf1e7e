"""Declares fields of sources as times and as decimals, with a random generator of its own, and
writes what is pushed as others write them. All else stays as it is without them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

from millwheel.errors import PipelineError
from tests.search.generate.draft import Draft
from tests.search.script import Action, Push, load_tree

_SHARE = 0.12
_FROM = 1_000
"""The seeds below stay as they were."""
_SCALES = (0, 2, 4)
_WITHOUT = frozenset({"mean", "stddev", "variance", "quantile", "quantiles", "median"})
"""Aggregates that take no decimal, in whose place others are drawn."""
_ZONES = (0, 0, 2, -3.5)  # hours
_UNITS = {"us": 1, "ms": 1_000}


def type_fields(draft: Draft, seed: int, script: Sequence[Action]) -> list[Action]:
    """The script with the fields as they are declared then."""
    made = list(script)
    for feature, declare, write in (
        ("times", _times, _with_times),
        ("decimals", _decimals, _with_decimals),
    ):
        rng = Random(f"{feature} {seed}")
        share = _SHARE if seed >= _FROM else 0
        if rng.random() < (1 if feature in draft.wanted else share):
            before = deepcopy(draft.tree)
            if declare(draft, rng) and _loads(draft):
                draft.features.add(feature)
                made = [write(draft, rng, each) for each in made]
            else:
                draft.tree.clear()
                draft.tree.update(before)
    return made


def _loads(draft: Draft) -> bool:
    try:
        load_tree(draft.tree)
    except PipelineError:  # such as code of the user's, which takes no decimal
        return False
    return True


# --- times ----------------------------------------------------------------------------------------


def _times(draft: Draft, rng: Random) -> bool:
    """Whether a stream has its time as a field that is declared as one."""
    found = False
    for options in draft.tree["streams"].values():
        stamp = options["timestamp"]
        if "fields" in options and stamp["field"] == "at":
            kinds = ["timestamp", {"type": "timestamp", "unit": stamp["unit"]}]
            options["fields"]["at"] = rng.choice(kinds)
            options["timestamp"] = "at"
            found = True
    return found


def _with_times(draft: Draft, rng: Random, action: Action) -> Action:
    if not isinstance(action, Push):
        return action
    kind = draft.tree["streams"][action.stream].get("fields", {}).get("at")
    if kind in (None, "int"):
        return action
    values = [{**each, "at": _time(rng, each["at"], kind)} if "at" in each else each
              for each in action.values]  # fmt: skip
    return replace(action, values=tuple(values))


def _time(rng: Random, given: Any, kind: Any) -> Any:
    """A number of the unit, or a text; of a field without a unit always a text."""
    unit = "us" if kind == "timestamp" else kind["unit"]
    if type(given) is not int or (kind != "timestamp" and rng.random() < 0.4):
        return given
    zone = timezone(timedelta(hours=rng.choice(_ZONES)))
    try:
        moment = datetime.fromtimestamp(0, zone) + timedelta(microseconds=given * _UNITS[unit])
    except OverflowError:
        return given
    text = moment.isoformat()
    return text.replace("+00:00", rng.choice(["Z", "", "+00:00"]))


# --- decimals -------------------------------------------------------------------------------------


def _decimals(draft: Draft, rng: Random) -> bool:
    """Whether ``n`` is a decimal in all streams."""
    scale = rng.choice(_SCALES)
    for options in draft.tree["streams"].values():
        if "fields" not in options:
            return False
        options["fields"]["n"] = f"decimal(9, {scale})"
    for tree in draft.tree["computations"].values():
        aggregates = tree.get("aggregate", {})
        for name, each in aggregates.items():
            if isinstance(each, dict) and _WITHOUT & each.keys() and _WITHOUT - draft.wanted:
                aggregates[name] = {rng.choice(["sum", "min", "max"]): "n"}
    return True


def _with_decimals(draft: Draft, rng: Random, action: Action) -> Action:
    if not isinstance(action, Push):
        return action
    values = [{**each, "n": _decimal(rng, each["n"])} if type(each.get("n")) is int else each
              for each in action.values]  # fmt: skip
    return replace(action, values=tuple(values))


def _decimal(rng: Random, number: int) -> Any:
    """Mostly one that has room."""
    if rng.random() < 0.06:
        return rng.choice([0.5, "x", "0.00001", "1e9", "NaN", True])
    return rng.choice([number, number, str(number), f"{number}.00", f"{number}e0", f"-{number}.0"])
