"""Draws change logs over the pairs of a join, and over their versions: types go through both, and
records are taken back in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.search.forms import steps
from tests.search.forms.values import NAMES
from tests.search.script import Action, Push

_SIDES = {"one": "left", "two": "right"}
_NUMBERS = ("sum", "mean", "min", "max", "variance", "stddev", "count")
_LARGE = 1e150
_SUBTRACTING = ("sum", "mean", "variance", "stddev", "count")


def over_pairs(
    rng: Random, tree: dict[str, Any], fields: Mapping[str, Mapping[str, str]], key: str
) -> bool:
    """Adds a join of both sources and two change logs behind it, sometimes."""
    if rng.random() >= 0.3:
        return False
    made = tree["computations"]
    for stream, side in _SIDES.items():
        made[side] = {"input": stream, "map": {name: name for name in fields[stream]}}
    pairs = {side: {"key": key} for side in _SIDES.values()}
    made["paired"] = {"input": pairs, "join": "inner"}
    known = {
        f"{side}.{name}": kind
        for stream, side in _SIDES.items()
        for name, kind in fields[stream].items()
    }
    names = rng.sample([name for name in NAMES if name != key], 5)
    by: Any = key
    if rng.random() < 0.6:
        plain = [name for name, kind in sorted(known.items()) if kind in ("int", "str")]
        by = {names[0]: rng.choice(plain), key: key}
    log = {name: _aggregate(rng, known, _NUMBERS) for name in names[1:3]}
    made["log"] = {"input": {"paired": {"key": by}}, "aggregate": {**log, names[3]: "count"}}
    if rng.random() < 0.2:
        made["log"]["where"] = steps.test(rng, {key: fields["one"][key]})
    results = {names[3]: "int"} | {
        name: _result(known, each) for name, each in log.items() if _result(known, each)
    }
    again = rng.choice([key, key, names[3]])
    rest = [name for name in NAMES if name not in (again, *results)]
    totals = {name: _aggregate(rng, results, _SUBTRACTING) for name in rng.sample(rest, 2)}
    made["logged"] = {"input": {"log": {"key": again}}, "aggregate": totals}
    if rng.random() < 0.5:
        made["logged"]["accumulation"] = "retracting"
    logs = ["log", "logged"]
    own = Random(repr(("whole", tree)))
    if own.random() < 0.5:  # drawn apart, so that the rest is what it was
        made["whole"] = {"input": {"paired": {"key": by}}, "aggregate": _whole(own, known)}
        logs.append("whole")
    for name in (*_SIDES.values(), "paired", *logs):
        made[name]["output"] = name
    for name in logs:
        tree["sinks"][name] = {"stdout": {"mode": "changelog"}}
    return True


def tamed(action: Action) -> Action:
    """What is pushed, without floats whose sum may leave their range: then the order decides which
    record is refused, and which versions there are is chance."""
    if not isinstance(action, Push):
        return action
    return replace(action, values=tuple(map(_tame, action.values)))


def _tame(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: 1.5 if type(value) is float and abs(value) > _LARGE else value
        for name, value in record.items()
    }


def _aggregate(rng: Random, fields: Mapping[str, str], functions: tuple[str, ...]) -> Any:
    of = rng.choice(sorted(fields))
    number = fields[of] in ("int", "float")
    function = rng.choice(functions) if number else rng.choice(["count", *{"min"} & {*functions}])
    condition = {}
    if rng.random() < 0.3:
        name = rng.choice([name for name, kind in sorted(fields.items()) if kind == "int"])
        condition = {"where": f"{name} {rng.choice(['>', '<=', '!='])} {rng.choice([0, 2, 7])}"}
    return {function: of, **condition}


def _whole(rng: Random, fields: Mapping[str, str]) -> dict[str, Any]:
    """An aggregate of whole pairs."""
    ordered = [name for name, kind in sorted(fields.items()) if kind != "bool"]
    way = rng.choice(["", " desc"])
    chosen = rng.choice(
        [
            {"max_by": rng.choice(ordered)},
            "last_row",
            {"top_rows": [rng.choice(ordered) + way, rng.choice(ordered)], "k": rng.choice([1, 2])},
        ]
    )
    return {"pairs": "count", "kept": chosen}


def _result(fields: Mapping[str, str], aggregate: Mapping[str, str]) -> str:
    """The type of a result, "" for a sum of floats, which may be whole."""
    function, of = next(iter(aggregate.items()))
    if function == "count":
        return "int"
    if function in ("sum", "min", "max"):
        return "" if (function, fields[of]) == ("sum", "float") else fields[of]
    return "float"
