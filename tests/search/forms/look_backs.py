"""Draws look-backs over what steps make of a source: such may lie in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.search.forms import steps
from tests.search.forms.values import NAMES, START
from tests.search.script import Push

_NUMBERS = ("sum", "mean", "min", "max", "variance", "stddev")
_SINGLY = ("count_distinct", "approx_count_distinct", "first", "last", "quantile")
"""Those of which the column form of a range does not follow from its parts, or that have none."""
_FAR = 2**31


def looked_back(
    rng: Random, tree: dict[str, Any], fields: Mapping[str, str], keys: Sequence[str]
) -> bool:
    """Adds look-backs, sometimes: over the fields of a source, perhaps with others made of them."""
    if rng.random() >= 0.35:
        return False
    known = dict(fields)
    made = {name: name for name in known}
    for name in rng.sample([each for each in NAMES if each not in known], rng.choice([0, 1, 2])):
        made[name], known[name] = steps.value(rng, fields)
    tree["computations"]["passed"] = {"input": "one", "map": made, "output": "passed"}
    by_rows = rng.random() < 0.5
    size = rng.choice([1, 2, 3, 5, 64, 100]) if by_rows else rng.choice(["0s", "2s", "30s", "1d"])
    key = rng.choice([keys[0], [*keys], [keys[0], rng.choice(sorted(known))]])
    look: dict[str, Any] = {"input": {"passed": {"key": key}}}
    look["over"] = {"rows" if by_rows else "range": size}
    if rng.random() < 0.2:
        look["where"] = steps.test(rng, known)
    names = rng.sample([*NAMES[:8], *sorted(known)], rng.choice([1, 2, 3]))
    look["aggregate"] = {name: _aggregate(rng, known) for name in names}
    tree["computations"]["looked"] = {**look, "output": "looked"}
    tree["sinks"]["looked"] = {"stdout": {}}
    return True


def tamed(rng: Random, action: Any) -> Any:
    """What is pushed, mostly without what columns leave to rows: sums may be as large as theirs."""
    if not isinstance(action, Push) or rng.random() < 0.25:
        return action
    return replace(action, values=tuple(map(_tame, action.values)))


def _tame(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _near(value) for name, value in record.items()}


def _near(value: Any) -> Any:
    if value is None:
        return 0.5
    if type(value) is int and _FAR < abs(value) < START // 2:
        return value % 7
    return value


def _aggregate(rng: Random, fields: Mapping[str, str]) -> Any:
    of = rng.choice([name for name, kind in sorted(fields.items()) if kind != "bool"])
    function = (
        rng.choice(_NUMBERS) if fields[of] in ("int", "float") else rng.choice(["min", "max"])
    )
    if rng.random() < 0.15:
        function = rng.choice(_SINGLY[:4] if fields[of] == "str" else _SINGLY)
    if rng.random() < 0.1:
        return "count"
    options: dict[str, Any] = {"q": 0.5} if function == "quantile" else {}
    if rng.random() < 0.3:
        return {function: of, **options, "where": steps.test(rng, fields)}
    return {function: of, **options}
