"""Whether a computation with other settings goes on with the state that it has: keys, windows, and
what it keeps by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millwheel.control.savepoints.blueprint import NodeBlueprint
from millwheel.control.savepoints.comparing.readable_forms import unreadable_form
from millwheel.control.savepoints.rules.verdicts import (
    NEW_NAME,
    Compatibility,
    Found,
    Rule,
    changed_names,
    free,
)

_BY_NUMBER = ("join", "callback with a window")
_KEYLESS = frozenset({"steps", "branches"})


def inputs_changed(old: NodeBlueprint, new: NodeBlueprint) -> Found:
    """What windows hold has the numbers of inputs. A join has spoken without a new one."""
    if new.form not in _BY_NUMBER:
        return
    before, after = list(old.facets["keys"]), list(new.facets["keys"])
    if before != (after if new.form == "join" else after[: len(before)]):
        text = f"its inputs were {_order(before)} and are {_order(after)}, by whose numbers its"
        yield Compatibility.REFUSED, f"{text} windows keep records; {NEW_NAME}"


def _order(names: list[str]) -> str:
    return " and then ".join(map(repr, names))


def _keys(before: Mapping[str, str], after: Mapping[str, str], node: NodeBlueprint) -> Found:
    for stream in changed_names(before, after):
        if stream not in before:
            yield (
                Compatibility.SAVEPOINT,
                f"it also consumes the stream {stream!r}, from the savepoint on",
            )
        elif stream not in after:
            yield Compatibility.SAVEPOINT, f"it no longer consumes the stream {stream!r}"
        else:
            change = f"its key for {stream!r} was {before[stream]} and is {after[stream]}"
            if node.form in _KEYLESS:
                yield Compatibility.SAVEPOINT, f"{change}; it keeps no state by key"
            else:
                yield (
                    Compatibility.REFUSED,
                    f"{change}: its state is stored under the old keys; {NEW_NAME}",
                )


def _divided(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None, node: NodeBlueprint
) -> Found:
    """Where one of them has none, the key itself differs."""
    if not before or not after:
        return
    for stream in changed_names(before, after):
        if stream in before and stream in after:
            yield (
                Compatibility.REFUSED,
                (
                    f"its keys for {stream!r} were divided by skew: {before[stream]} and are by"
                    f" skew: {after[stream]}, so records that are read again would go to another"
                    " instance and count twice; keep skew as it was, or give the computation"
                    " another name to start it empty"
                ),
            )


def _states(before: Mapping[str, Any], after: Mapping[str, Any], node: NodeBlueprint) -> Found:
    for name in changed_names(before, after):
        if name not in before:
            yield Compatibility.FREE, f"state {name!r} is new and empty for every key"
        elif name not in after:
            yield Compatibility.FREE, f"state {name!r} is removed: its values are not read any more"
        else:
            yield from _state(name, before[name], after[name])


def _state(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Found:
    fix = "give the state another name to start it empty"
    if before["kind"] != after["kind"]:
        yield (
            Compatibility.REFUSED,
            f"state {name!r} was a {before['kind']} and is a {after['kind']}; {fix}",
        )
        return
    old_ttl, new_ttl = before["ttl_us"], after["ttl_us"]
    if (old_ttl is None) != (new_ttl is None):
        yield (
            Compatibility.REFUSED,
            f"state {name!r} {'got' if old_ttl is None else 'lost'} its time to live; {fix}",
        )
    elif old_ttl != new_ttl:
        yield (
            Compatibility.FREE,
            f"state {name!r} has another time to live, for values written from now on",
        )
    if (before["schema"], before["stored"]) != (after["schema"], after["stored"]):
        if why := unreadable_form(before["stored"], after["stored"]):
            yield (
                Compatibility.REFUSED,
                f"the type of state {name!r} cannot read the old values: {why}; or {fix}",
            )
        else:
            yield (
                Compatibility.FREE,
                f"the type of state {name!r} has changed and reads the old values",
            )


def _windows(what: str) -> Rule:
    def rule(before: Any, after: Any, node: NodeBlueprint) -> Found:
        names = ", ".join(changed_names(before or {}, after or {}))
        yield (
            Compatibility.REFUSED,
            f"{what} changed ({names}), and its open windows are of the old form; {NEW_NAME}",
        )

    return rule


def _columns(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, node: NodeBlueprint
) -> Found:
    old, new = dict(before or {}), dict(after or {})
    changed = {
        facet for name in changed_names(old, new) for facet in _facets_changed(name, old, new)
    }
    if changed:
        if changed == {"groups"}:
            yield (
                Compatibility.REFUSED,
                f"its groups are stored as parts, and this version has them whole; {NEW_NAME}",
            )
            return
        made = changed == {"follows"}
        what = "what steps make of the types" if made else "the declared fields"
        yield from _windows(f"{what} of its input")(old, new, node)


def _facets_changed(stream: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return changed_names(old.get(stream, {}), new.get(stream, {}))


def _slices(before: list[Any], after: list[Any], node: NodeBlueprint) -> Found:
    (old, *old_rest), (new, *new_rest) = before, after
    names = [name for name in changed_names(old, new) if name != "keep_us"]
    names += ["where"] if old_rest[0] != new_rest[0] else []
    if names:
        text = (
            f"its slices changed ({', '.join(names)}), and those that are kept are of the old form;"
            f" {NEW_NAME}"
        )
        yield Compatibility.REFUSED, text
    elif old["keep_us"] != new["keep_us"]:
        yield (
            Compatibility.FREE,
            (
                "its slices are kept for another time, from now on: what has expired does not come"
                " back"
            ),
        )
    if old_rest[1] != new_rest[1]:
        yield (
            Compatibility.FREE,
            "records of expired slices go another way, from the next record on",
        )


def _dictionary(before: Mapping[str, Any], after: Mapping[str, Any], node: NodeBlueprint) -> Found:
    old_ttl, new_ttl = before["ttl_us"], after["ttl_us"]
    if (old_ttl is None) != (new_ttl is None):
        change = "got" if old_ttl is None else "lost"
        yield (
            Compatibility.REFUSED,
            f"its dictionary {change} a time to live, and keeps its values otherwise; {NEW_NAME}",
        )
    elif old_ttl != new_ttl:
        yield Compatibility.FREE, "its dictionary has another time to live, from the next record on"
    if changed_names({**before, "ttl_us": None}, {**after, "ttl_us": None}):
        yield Compatibility.FREE, "the fields of its output have changed, from the next record on"


def _productions(before: str, after: str, node: NodeBlueprint) -> Found:
    change = f"its productions were {before} and are {after}"
    if "window" in node.facets:
        yield (
            Compatibility.REFUSED,
            f"{change}, which decides the form of open windows; {NEW_NAME}",
        )
    else:
        yield Compatibility.SAVEPOINT, change


def _delivery(before: str, after: str, node: NodeBlueprint) -> Found:
    change = f"its delivery guarantee was {before} and is {after}"
    if node.facets["productions"] == "strong":
        yield Compatibility.FREE, f"{change}, from the next record on"
    elif "window" in node.facets:
        yield (
            Compatibility.REFUSED,
            (
                f"{change}, which decides the form of open windows, as its productions are weak;"
                f" {NEW_NAME}"
            ),
        )
    else:
        yield (
            Compatibility.SAVEPOINT,
            f"{change}, which decides how its weak productions in flight are told apart",
        )


def _outputs(before: list[str], after: list[str], node: NodeBlueprint) -> Found:
    yield (
        Compatibility.SAVEPOINT,
        f"its outputs were {', '.join(before) or 'none'} and are {', '.join(after) or 'none'}",
    )


def _shards(before: int | None, after: int | None, node: NodeBlueprint) -> Found:
    yield (
        Compatibility.FREE,
        "it requests another number of shards; only a start without state changes that",
    )


COMPUTATION_RULES: dict[str, Rule] = {
    "keys": _keys,
    "divided": _divided,
    "outputs": _outputs,
    "productions": _productions,
    "delivery": _delivery,
    "steps": free("its steps or branches have changed, from the next record on"),
    "settings": free("its callback or its options have changed, from the next record on"),
    "shards": _shards,
    "states": _states,
    "window": _windows("its window"),
    "aggregates": _windows("its aggregates"),
    "speaking": _windows("when it fires, or on which records,"),
    "slices": _slices,
    "dictionary": _dictionary,
    "columns": _columns,
    "pairing": lambda before, after, node: iter(
        [
            (
                Compatibility.REFUSED,
                (
                    "how it pairs or orders records has changed, and its state has the old form;"
                    f" {NEW_NAME}"
                ),
            )
        ]
    ),
}
