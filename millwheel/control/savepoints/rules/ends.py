"""Whether a source or a sink with other settings goes on where it was."""

from __future__ import annotations

from typing import Any

from millwheel.control.savepoints.blueprint import NodeBlueprint
from millwheel.control.savepoints.rules.verdicts import (
    Compatibility,
    Found,
    Rule,
    at_rest,
    changed_names,
    free,
)

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
    for name in changed_names(before, after):
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


def _kind(before: str, after: str, node: NodeBlueprint) -> Found:
    if node.form == "source":
        yield from _source_kind(before, after, node)
    else:
        yield (
            Compatibility.SAVEPOINT,
            f"its kind was {before!r} and is {after!r}: for files written after the savepoint",
        )


def _sink_key(before: str, after: str, node: NodeBlueprint) -> Found:
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
