"""Draws steps over the records within the pairs of a join, of which one may be missing, and over
those of a source that are passed on with undeclared fields, records among
them; and what is made of the results of windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.search.forms import steps
from tests.search.forms.values import NAMES, drawn
from tests.search.script import Push

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


def passed_on(rng: Random, tree: dict[str, Any], fields: Mapping[str, str], key: str) -> None:
    """Adds what passes on the records of ``one`` as they are: a filter, and perhaps
    branches and windows."""
    known = {**fields, "more.i": "int", "more.deep.s": "str"}
    _add(tree, "alone", {"input": "one", "filter": _test(rng, known)})
    if rng.random() < 0.5:
        conditions = {f"alone_{way}": _test(rng, known) for way in ("a", "b")}
        _add(tree, "alone_ways", {"input": "one", "branch": {**conditions, "alone_c": "otherwise"}})
    if Random(repr(tree)).random() < 0.4:
        grouped = {"input": {"alone": {"key": key}}, "window": {"tumbling": "10s"}}
        _add(tree, "grouped", {**grouped, "aggregate": {"n": "count", "sum": {"sum": "more.i"}}})


def with_more(rng: Random, action: Any) -> Any:
    """What is pushed, with more fields: the same in all of a push, or not."""
    if not isinstance(action, Push):
        return action
    odd = rng.random() < 0.3
    return replace(action, values=tuple(_with_more(rng, each, odd) for each in action.values))


def _with_more(rng: Random, record: Mapping[str, Any], odd: bool) -> dict[str, Any]:
    deep: dict[str, Any] = {"s": drawn(rng, "str", 0), "x": drawn(rng, "float", 0.1)}
    more: dict[str, Any] = {"i": drawn(rng, "int", 0), "deep": deep}
    made: dict[str, Any] = {**record, "more": more, "null": rng.choice([None, 1])}
    if odd and rng.random() < 0.1:
        wrong: list[Any] = [None, [1], {}, {"i": 1}, {"deep": deep, "i": 3}, {**more, "i": 1.0}]
        made["more"] = rng.choice(wrong)
    if odd and rng.random() < 0.05:
        return dict(reversed(made.items()))
    return made


def _test(rng: Random, known: Mapping[str, str]) -> str:
    plain = steps.test(rng, known)
    if "one." in plain and rng.random() < 0.3:
        return f"one != null and {plain}"
    return plain


def _add(tree: dict[str, Any], name: str, step: dict[str, Any]) -> None:
    tree["computations"][name] = step if "branch" in step else {**step, "output": name}
    for stream in step.get("branch", [name]):
        tree["sinks"][stream] = {"stdout": {}}


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
