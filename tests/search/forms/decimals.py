"""Draws decimals: a field of a source, and what steps and aggregates make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

from tests.search.forms.values import NAMES
from tests.search.script import Action, Push

_OF_DECIMALS = (
    "COST + 1.5",
    "COST - 3",
    "COST * 2.25",
    "COST * COST",
    "-COST",
    "COST / 3",
    "COST // 0.5",
    "COST % 0.3",
    "float(COST)",
    "max(COST, 1.125)",
    "coalesce(COST, 0)",
    "COST if COST > 1.25 else 0",
    "1 < COST <= 2.5",
)
_ALSO_OF_DECIMALS = (
    "round(COST, 1)",
    "round(COST * 1.25, -1)",
    "round(COST)",
    "floor(COST)",
    "ceil(COST)",
    "mod(COST, 0.3)",
    "case(COST > 1.5, COST, 0.125)",
    "str(COST)",
    "cast(COST, 'text')",
    "cast(COST, 'int')",
    "cast(COST, 'float')",
)
_ROWS = ("max_by", "min_by", "top_rows", "top_k")
_SUMS = ("sum", "min", "max", "count", "count_distinct", "first", "last")
_CASTS = (
    "cast(COST, 'decimal(9, 1)', null)",
    "cast(COST, 'decimal(4, 3)', 0.125)",
    "cast(INT, 'decimal(6, 2)', null)",
    "cast(STR, 'decimal(6, 2)', -1)",
    "cast(FLOAT, 'decimal(6, 2)', null)",
    "cast(concat(str(INT), '.25'), 'decimal(12, 3)', null)",
    "cast(str(COST), 'decimal(9, 2)', null)",
)


def priced(
    document: dict[str, Any], fields: Mapping[str, str], rng: Random, script: list[Action]
) -> list[Action]:
    """One more field of the first stream, a decimal: in what steps make, and in an aggregate."""
    scale, known = rng.choice([0, 2, 6]), set(NAMES) - set(fields)
    cost = rng.choice(sorted(known))
    stream = document["streams"]["one"]
    stream["fields"] = {**stream["fields"], cost: f"decimal(9, {scale})"}
    for tree in document["computations"].values():
        made = tree.get("map", tree.get("aggregate"))
        if made is None or "one" not in tree["input"] or cost in made or "join" in tree:
            continue
        free = [name for name in NAMES if name not in (*made, *fields)]
        if "map" in tree:
            made[rng.choice(free)] = rng.choice(_OF_DECIMALS).replace("COST", cost)
        else:
            made[rng.choice(free)] = {rng.choice(_SUMS): cost}
        taken = _key(tree["input"]["one"]) if "map" not in tree else ()
        _priced_apart(made, cost, "map" in tree, taken)
        _cast(made, cost, fields, "map" in tree, taken)
    return [
        replace(
            action,
            values=tuple({**each, cost: _price(rng, scale)} for each in action.values),
        )
        if isinstance(action, Push) and action.stream == "one"
        else action
        for action in script
    ]


def _key(given: Mapping[str, Any]) -> Sequence[str]:
    key = given["key"]
    return [key] if isinstance(key, str) else [*key]


def _chosen(rng: Random, names: Sequence[str], taken: Sequence[str]) -> str:
    """One of the names. Results have the fields of the key already; the others are drawn as they
    would be without it."""
    name = rng.choice(names)
    return name if name not in taken else next(each for each in names if each not in taken)


def _priced_apart(made: dict[str, Any], cost: str, steps: bool, taken: Sequence[str]) -> None:
    """One more field, sometimes."""
    rng = Random(repr(("more of decimals", made)))
    free = [name for name in NAMES if name not in made and name != cost]
    if rng.random() < 0.4:
        return
    if steps:
        made[_chosen(rng, free, taken)] = rng.choice(_ALSO_OF_DECIMALS).replace("COST", cost)
    else:
        function = rng.choice(_ROWS)
        options = {"k": 2} if function.startswith("top") else {}
        made[_chosen(rng, free, taken)] = {function: cost, **options}


def _cast(
    made: dict[str, Any], cost: str, fields: Mapping[str, str], steps: bool, taken: Sequence[str]
) -> None:
    """One more field, sometimes, which something else is made a decimal for."""
    rng = Random(repr(("casts to decimals", made)))
    free = [name for name in NAMES if name not in made and name != cost]
    given = {"COST": cost, **{kind.upper(): name for name, kind in fields.items()}}
    texts = [each for each in _CASTS if any(name in each for name in given)]
    if rng.random() < 0.7:
        return
    text = rng.choice(texts)
    for kind, name in given.items():
        text = text.replace(kind, name)
    made[_chosen(rng, free, taken)] = text if steps else {rng.choice(_SUMS): text}


def _price(rng: Random, scale: int) -> Any:
    """A decimal as others write it, mostly one that has room."""
    if rng.random() < 0.03:
        return rng.choice([None, True, "x", 0.5, "1e3", "0.0000001", "1" * 12])
    if rng.random() < 0.3:
        return rng.randint(-9, 99)
    number = Decimal(rng.randint(-(10**6), 10**8)).scaleb(-rng.randint(0, scale))
    return str(number) if abs(number) < 10 ** (9 - scale) else 0
