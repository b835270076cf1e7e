"""Whether a source, a computation or a sink can continue with other settings from the state that it
has: the requirements of each change, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from millwheel.control.savepoints.blueprint import NodeBlueprint
from millwheel.control.savepoints.stored_forms import unreadable_form


class Compatibility(Enum):
    """The requirement of a change. FREE: the same root may continue. SAVEPOINT: a savepoint and a
    new root are needed, because nothing may be in flight during the change. REFUSED: the state does
    not fit."""

    FREE = "compatible"
    SAVEPOINT = "migrates"
    REFUSED = "refused"


Verdicts = Iterator[tuple[Compatibility, str]]
Rule = Callable[[Any, Any, NodeBlueprint], Verdicts]
"""(a facet of a node before, after, the node as it is) -> the requirement of the difference, with
the reason."""
NEW_NAME = "give it another name to start it empty"


def changed_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names whose values differ between two settings."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def free(what: str) -> Rule:
    """The same root may continue."""

    def rule(before: Any, after: Any, node: NodeBlueprint) -> Verdicts:
        yield Compatibility.FREE, what

    return rule


def at_rest(what: str) -> Rule:
    """Nothing may be in flight."""

    def rule(before: Any, after: Any, node: NodeBlueprint) -> Verdicts:
        yield Compatibility.SAVEPOINT, what

    return rule


_BY_NUMBER = ("join", "callback with a window")
_KEYLESS = frozenset({"steps", "branches"})


def inputs_changed(old: NodeBlueprint, new: NodeBlueprint) -> Verdicts:
    """State of windows has the numbers of inputs. A join has fired without a new one."""
    if new.form not in _BY_NUMBER:
        return
    before, after = list(old.facets["keys"]), list(new.facets["keys"])
    if before != (after if new.form == "join" else after[: len(before)]):
        text = f"its inputs were {_order(before)} and are {_order(after)}, by whose numbers its"
        yield Compatibility.REFUSED, f"{text} windows keep records; {NEW_NAME}"


def _order(names: list[str]) -> str:
    return " and then ".join(map(repr, names))


def _keys(before: Mapping[str, str], after: Mapping[str, str], node: NodeBlueprint) -> Verdicts:
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
) -> Verdicts:
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


def _states(before: Mapping[str, Any], after: Mapping[str, Any], node: NodeBlueprint) -> Verdicts:
    for name in changed_names(before, after):
        if name not in before:
            yield Compatibility.FREE, f"state {name!r} is new and empty for every key"
        elif name not in after:
            yield Compatibility.FREE, f"state {name!r} is removed: its values are not read any more"
        else:
            yield from _state(name, before[name], after[name])


def _state(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Verdicts:
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
    def rule(before: Any, after: Any, node: NodeBlueprint) -> Verdicts:
        names = ", ".join(changed_names(before or {}, after or {}))
        yield (
            Compatibility.REFUSED,
            f"{what} changed ({names}), and its open windows are of the old form; {NEW_NAME}",
        )

    return rule


def _columns(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, node: NodeBlueprint
) -> Verdicts:
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


def _slices(before: list[Any], after: list[Any], node: NodeBlueprint) -> Verdicts:
    (old, *old_rest), (new, *new_rest) = before, after
    names = [name for name in changed_names(old, new) if name != "keep_us"]
    names += ["where"] if old_rest[0] != new_rest[0] else []
    if names:
        text = (
            f"its slices changed ({', '.join(names)}), and the kept ones are of the old form;"
            f" {NEW_NAME}"
        )
        yield Compatibility.REFUSED, text
    elif old["keep_us"] != new["keep_us"]:
        yield (
            Compatibility.FREE,
            ("its slices are kept for another time, from now on: expired ones do not come back"),
        )
    if old_rest[1] != new_rest[1]:
        yield (
            Compatibility.FREE,
            "records of expired slices go another way, from the next record on",
        )


def _dictionary(
    before: Mapping[str, Any], after: Mapping[str, Any], node: NodeBlueprint
) -> Verdicts:
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


def _productions(before: str, after: str, node: NodeBlueprint) -> Verdicts:
    change = f"its productions were {before} and are {after}"
    if "window" in node.facets:
        yield (
            Compatibility.REFUSED,
            f"{change}, which decides the form of open windows; {NEW_NAME}",
        )
    else:
        yield Compatibility.SAVEPOINT, change


def _delivery(before: str, after: str, node: NodeBlueprint) -> Verdicts:
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
            f"{change}, which decides how its weak productions in flight are distinguished",
        )


def _outputs(before: list[str], after: list[str], node: NodeBlueprint) -> Verdicts:
    yield (
        Compatibility.SAVEPOINT,
        f"its outputs were {', '.join(before) or 'none'} and are {', '.join(after) or 'none'}",
    )


def _shards(before: int | None, after: int | None, node: NodeBlueprint) -> Verdicts:
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


_FREE_OPTIONS = {
    "files": {
        "max_line_bytes": "takes effect at once",
        "path": (
            "files are identified by their path below the folder that its globs share: reading"
            " continues in files of the same name; others are read from their beginning"
        ),
    },
    "generator": {"rate": "takes effect at once", "count": "takes effect at once"},
}


def _source_kind(before: str, after: str, node: NodeBlueprint) -> Verdicts:
    yield (
        Compatibility.REFUSED,
        (
            f"its source was of kind {before!r} and is {after!r}, for which the positions have no"
            " meaning; give the stream another name to read it from its beginning"
        ),
    )


def _options(before: Any, after: Any, node: NodeBlueprint) -> Verdicts:
    if node.form == "sink":
        yield from _sink_options(before, after, node)
        return
    harmless = _FREE_OPTIONS.get(node.facets["kind"], {})
    for name in changed_names(before, after):
        change = f"option {name!r} was {before.get(name)!r} and is {after.get(name)!r}"
        if name in harmless:
            yield Compatibility.FREE, f"{change}: {harmless[name]}"
        else:
            fix = "give the stream another name to read it from its beginning"
            yield (
                Compatibility.REFUSED,
                f"{change}, which changes the meaning of its positions; {fix}",
            )


def _sink_options(before: Any, after: Any, node: NodeBlueprint) -> Verdicts:
    for name in changed_names(before, after):
        change = f"option {name!r} was {before.get(name)!r} and is {after.get(name)!r}"
        if name in ("flush", "cut_records"):
            yield Compatibility.FREE, f"{change}: takes effect at once"
        elif name in ("mode", "by"):
            text = (
                f"{change}: the current rows are not known in the new form; start without state, on"
                " a new root"
            )
            yield Compatibility.REFUSED, text
        else:
            yield Compatibility.SAVEPOINT, f"{change}: for files written after the savepoint"


def _kind(before: str, after: str, node: NodeBlueprint) -> Verdicts:
    if node.form == "source":
        yield from _source_kind(before, after, node)
    else:
        yield (
            Compatibility.SAVEPOINT,
            f"its kind was {before!r} and is {after!r}: for files written after the savepoint",
        )


def _sink_key(before: str, after: str, node: NodeBlueprint) -> Verdicts:
    upsert = node.facets["options"].get("mode") == "upsert"
    change = f"its key was {before} and is {after}"
    if upsert:
        text = "the current rows are identified by the old one; start without state, on a new root"
        yield Compatibility.REFUSED, f"{change}: {text}"
    else:
        yield Compatibility.SAVEPOINT, f"{change}: for files written after the savepoint"


END_RULES: dict[str, Rule] = {
    "kind": _kind,
    "options": _options,
    "key": _sink_key,
    "timestamp": free("its timestamps are read differently, from the next record on"),
    "id": free(
        "its ids are read differently, from the next record on: copies of older records are not"
        " recognized"
    ),
    "schema": at_rest("its records are decoded differently"),
    "fields": at_rest("its declared fields have changed"),
    "watermark": free("its watermark settings have changed, from the next record on"),
}
