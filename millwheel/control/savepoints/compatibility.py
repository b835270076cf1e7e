"""Decides whether a pipeline can continue with the state of another one: compares two blueprints,
change by change.

``millwheel explain-upgrade``, a start from a savepoint, and a start of a changed pipeline on its
root use the same function and the same messages. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from millwheel.control.savepoints.blueprint import Blueprint, NodeBlueprint
from millwheel.control.savepoints.comparing.readable_forms import unreadable_form


class Compatibility(Enum):
    """The requirement of a change. FREE: the same root may continue. SAVEPOINT: a savepoint and a
    new root are needed, because nothing may be in flight during the change. REFUSED: the state does
    not fit."""

    FREE = "compatible"
    SAVEPOINT = "migrates"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, at a node ("" for the pipeline), in a sentence."""

    node: str
    verdict: Compatibility
    sentence: str
    correctable: bool = False
    """Refused only because of what the node keeps in the old form: open windows, and groups on
    their way to it."""

    def __str__(self) -> str:
        return f"{self.node}: {self.sentence}" if self.node else self.sentence


_CORRECTABLE = frozenset({"window", "aggregates", "speaking", "slices", "columns"})
_BY_NUMBER = ("join", "callback with a window")
Found = Iterator[tuple[Compatibility, str]]
_NEW_NAME = "give it another name to start it empty"


def compare(old: Blueprint, new: Blueprint) -> list[Change]:
    """All differences, in the order of the nodes; [] for the same pipeline with other code."""
    changes: list[Change] = []
    if old.pipeline != new.pipeline:
        text = f"the pipeline's name was {old.pipeline!r} and is {new.pipeline!r}; keep the name"
        changes.append(Change("", Compatibility.REFUSED, text))
    for name, node in new.nodes.items():
        before = old.nodes.get(name)
        if before is None:
            changes.append(Change(name, *_added(node, old)))
        elif before.form != node.form:
            text = (
                f"it was of the form {before.form!r} and is {node.form!r}, whose state is"
                f" different; {_NEW_NAME}"
            )
            changes.append(Change(name, Compatibility.REFUSED, text))
        else:
            changes += [
                Change(
                    name,
                    *difference,
                    correctable=facet in _CORRECTABLE and difference[0] is Compatibility.REFUSED,
                )
                for facet, difference in _differences(before, node)
            ]
            changes += [Change(name, *difference) for difference in _inputs(before, node)]
    for name in old.nodes.keys() - new.nodes.keys():
        changes.append(Change(name, Compatibility.SAVEPOINT, _removed(old.nodes[name])))
    order = {name: index for index, name in enumerate([*new.nodes, *old.nodes])}
    return sorted(changes, key=lambda change: order.get(change.node, -1))


def corrected(changes: list[Change], keeps: Callable[[str], bool]) -> list[Change]:
    """The same, where a node that ``keeps`` nothing in the form of its settings may be corrected,
    such as an aggregation that has failed on every record."""
    return [
        (
            replace(
                each,
                verdict=Compatibility.FREE,
                sentence=f"{each.sentence.partition(',')[0]}; it keeps nothing yet",
            )
            if each.correctable and not keeps(each.node)
            else each
        )
        for each in changes
    ]


def worst(changes: list[Change]) -> Compatibility:
    """The strictest requirement of all changes."""
    verdicts = {change.verdict for change in changes}
    return next(
        (each for each in (Compatibility.REFUSED, Compatibility.SAVEPOINT) if each in verdicts),
        Compatibility.FREE,
    )


def _added(node: NodeBlueprint, old: Blueprint) -> tuple[Compatibility, str]:
    if node.form == "source":
        return Compatibility.SAVEPOINT, "it is new and is read from its beginning"
    if node.form == "table" and f"source.{node.facets['pairing'][0]}" in old.nodes:
        text = (
            "it is new, and would begin with the first change, whose rows the state behind it has"
            " counted already; start without a savepoint on a new root, which reads the changes"
            " from their beginning"
        )
        return Compatibility.REFUSED, text
    return Compatibility.SAVEPOINT, "it is new: it starts empty, with records after the savepoint"


def _removed(node: NodeBlueprint) -> str:
    what = {"source": "its positions are", "sink": "the list of its files is"}
    return (
        f"it is removed: {what.get(node.form, 'its state, timers and open windows are')} left"
        " behind"
    )


def _differences(
    old: NodeBlueprint, new: NodeBlueprint
) -> Iterator[tuple[str, tuple[Compatibility, str]]]:
    for facet in [*new.facets, *(name for name in old.facets if name not in new.facets)]:
        before, after = old.facets.get(facet), new.facets.get(facet)
        if before != after:
            for difference in _RULES[facet](before, after, new):
                yield facet, difference


def _inputs(old: NodeBlueprint, new: NodeBlueprint) -> Found:
    """What windows hold has the numbers of inputs. A join has spoken without a new one."""
    if new.form not in _BY_NUMBER:
        return
    before, after = list(old.facets["keys"]), list(new.facets["keys"])
    if before != (after if new.form == "join" else after[: len(before)]):
        text = f"its inputs were {_order(before)} and are {_order(after)}, by whose numbers its"
        yield Compatibility.REFUSED, f"{text} windows keep records; {_NEW_NAME}"


def _order(names: list[str]) -> str:
    return " and then ".join(map(repr, names))


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


# --- sources and sinks

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


def _source_kind(before: str, after: str, node: NodeBlueprint) -> Found:
    yield (
        Compatibility.REFUSED,
        (
            f"its source was of kind {before!r} and is {after!r}, for which the positions have no"
            " meaning; give the stream another name to read it from its beginning"
        ),
    )


def _options(before: Any, after: Any, node: NodeBlueprint) -> Found:
    if node.form == "sink":
        yield from _sink_options(before, after, node)
        return
    free = _FREE_OPTIONS.get(node.facets["kind"], {})
    for name in _changed(before, after):
        change = f"option {name!r} was {before.get(name)!r} and is {after.get(name)!r}"
        if name in free:
            yield Compatibility.FREE, f"{change}: {free[name]}"
        else:
            fix = "give the stream another name to read it from its beginning"
            yield (
                Compatibility.REFUSED,
                f"{change}, which changes the meaning of its positions; {fix}",
            )


def _sink_options(before: Any, after: Any, node: NodeBlueprint) -> Found:
    for name in _changed(before, after):
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


def _kind(before: str, after: str, node: NodeBlueprint) -> Found:
    if node.form == "source":
        yield from _source_kind(before, after, node)
    else:
        yield (
            Compatibility.SAVEPOINT,
            f"its kind was {before!r} and is {after!r}: for files written after the savepoint",
        )


def _free(what: str) -> Callable[[Any, Any, NodeBlueprint], Found]:
    def rule(before: Any, after: Any, node: NodeBlueprint) -> Found:
        yield Compatibility.FREE, what

    return rule


def _at_rest(what: str) -> Callable[[Any, Any, NodeBlueprint], Found]:
    def rule(before: Any, after: Any, node: NodeBlueprint) -> Found:
        yield Compatibility.SAVEPOINT, what

    return rule


# --- computations

_KEYLESS = frozenset({"steps", "branches"})


def _sink_key(before: str, after: str, node: NodeBlueprint) -> Found:
    upsert = node.facets["options"].get("mode") == "upsert"
    change = f"its key was {before} and is {after}"
    if upsert:
        text = "the current rows are identified by the old one; start without state, on a new root"
        yield Compatibility.REFUSED, f"{change}: {text}"
    else:
        yield Compatibility.SAVEPOINT, f"{change}: for files written after the savepoint"


def _keys(before: Mapping[str, str], after: Mapping[str, str], node: NodeBlueprint) -> Found:
    for stream in _changed(before, after):
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
                    f"{change}: its state is stored under the old keys; {_NEW_NAME}",
                )


def _divided(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None, node: NodeBlueprint
) -> Found:
    """Where one of them has none, the key itself differs."""
    if not before or not after:
        return
    for stream in _changed(before, after):
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
    for name in _changed(before, after):
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


def _windows(what: str) -> Callable[[Any, Any, NodeBlueprint], Found]:
    def rule(before: Any, after: Any, node: NodeBlueprint) -> Found:
        names = ", ".join(_changed(before or {}, after or {}))
        yield (
            Compatibility.REFUSED,
            f"{what} changed ({names}), and its open windows are of the old form; {_NEW_NAME}",
        )

    return rule


def _columns(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, node: NodeBlueprint
) -> Found:
    old, new = dict(before or {}), dict(after or {})
    changed = {facet for name in _changed(old, new) for facet in _facets_changed(name, old, new)}
    if changed:
        made = changed == {"follows"}
        what = "what steps make of the types" if made else "the declared fields"
        yield from _windows(f"{what} of its input")(old, new, node)


def _facets_changed(stream: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return _changed(old.get(stream, {}), new.get(stream, {}))


def _slices(before: list[Any], after: list[Any], node: NodeBlueprint) -> Found:
    (old, *old_rest), (new, *new_rest) = before, after
    names = [name for name in _changed(old, new) if name != "keep_us"]
    names += ["where"] if old_rest[0] != new_rest[0] else []
    if names:
        text = (
            f"its slices changed ({', '.join(names)}), and those that are kept are of the old form;"
            f" {_NEW_NAME}"
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
            f"its dictionary {change} a time to live, and keeps its values otherwise; {_NEW_NAME}",
        )
    elif old_ttl != new_ttl:
        yield Compatibility.FREE, "its dictionary has another time to live, from the next record on"
    if _changed({**before, "ttl_us": None}, {**after, "ttl_us": None}):
        yield Compatibility.FREE, "the fields of its output have changed, from the next record on"


def _productions(before: str, after: str, node: NodeBlueprint) -> Found:
    change = f"its productions were {before} and are {after}"
    if "window" in node.facets:
        yield (
            Compatibility.REFUSED,
            f"{change}, which decides the form of open windows; {_NEW_NAME}",
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
                f" {_NEW_NAME}"
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


_RULES: dict[str, Callable[[Any, Any, NodeBlueprint], Found]] = {
    "kind": _kind,
    "options": _options,
    "key": _sink_key,
    "timestamp": _free("its timestamps are read differently, from the next record on"),
    "id": _free(
        "its ids are read differently, from the next record on: copies of older records are not"
        " recognized"
    ),
    "schema": _at_rest("its records are decoded differently"),
    "fields": _at_rest("its declared fields have changed"),
    "watermark": _free("its watermark settings have changed, from the next record on"),
    "keys": _keys,
    "divided": _divided,
    "outputs": _outputs,
    "productions": _productions,
    "delivery": _delivery,
    "steps": _free("its steps or branches have changed, from the next record on"),
    "settings": _free("its callback or its options have changed, from the next record on"),
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
                    f" {_NEW_NAME}"
                ),
            )
        ]
    ),
}
