"""``window:``, ``trigger:`` and their options. core/machines/specs.py decides which windows are valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.pipeline.spec import WindowSpec
from millwheel.core.triggers.trees import trigger_from_tree
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.problems import did_you_mean, unknown
from millwheel.spec.reading.reader import NAME, NodeReader

KINDS: Mapping[str, tuple[str, ...]] = {
    "tumbling": ("offset", "time_zone", "emit"),
    "sliding": ("every", "offset", "emit"),
    "session": (),
    "global": (),
    "count": (),
    "cumulative": ("every", "offset", "time_zone", "emit"),
    "custom": ("with",),
}
"""Kinds of windows, and the settings beside the kind itself."""
_SIZES = {"tumbling": "size_us", "sliding": "size_us", "cumulative": "size_us", "session": "gap_us"}
_EXAMPLE = "{tumbling: 1m}"
LATE = ("drop", "refire")


def read_window(reader: NodeReader, node: YamlNode) -> WindowSpec | None:
    """The window as a valid spec. (The code of a custom window is checked later.)"""
    if isinstance(node.value, str) and node.value == "global":
        return WindowSpec("global")
    entries = reader.entries(node, _EXAMPLE)
    kinds = [kind for kind in KINDS if kind in entries]
    if len(kinds) != 1:
        _no_kind(reader, node, entries, kinds)
        return None
    kind = kinds[0]
    before = len(reader.problems.found)
    fields = reader.fields(node, (kind, *KINDS[kind]), _EXAMPLE)
    spec = WindowSpec(kind, _options(reader, node, kind, fields))
    if len(reader.problems.found) > before:
        return None
    if kind != "custom" and reader.attempt(node, lambda: window_from_spec(spec)) is None:
        return None
    return spec


def _no_kind(reader: NodeReader, node: YamlNode, entries: Mapping[str, YamlNode], kinds: list[str]) -> None:
    if kinds:
        reader.bad(node, f"names {len(kinds)} kinds of windows ({', '.join(kinds)}); keep one")
    elif entries:
        name, first = next(iter(entries.items()))
        reader.bad(first, unknown("window", name, list(KINDS)))
    elif node.is_map or node.value is None:
        reader.bad(node, f"is empty; write for example window: {_EXAMPLE}")


def _options(reader: NodeReader, node: YamlNode, kind: str, fields: Mapping[str, YamlNode]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if kind not in fields:
        reader.bad(node, f"{kind} has no value; write for example window: {_EXAMPLE}")
    elif kind in _SIZES:
        options[_SIZES[kind]] = reader.duration(fields[kind], 1, 1)
    elif kind == "count":
        options["count"] = reader.number(fields[kind], 1, 1, 2**31)
    elif kind == "custom":
        options.update(_custom(reader, fields))
    elif not reader.flag(fields[kind], True):
        reader.bad(fields[kind], "must be true: {global: true} is one window for all of time")
    if "every" in KINDS[kind] and "every" not in fields:
        reader.missing(
            node, "every", f"{kind} windows need the time between their outputs; write for example every: 1m"
        )
    if "every" in fields:
        options["every_us"] = reader.duration(fields["every"], 1, 1)
    if "offset" in fields:
        options["offset_us"] = reader.duration(fields["offset"], 0)
    if "time_zone" in fields:
        options["time_zone"] = reader.text(fields["time_zone"], "Europe/Paris")
    if "emit" in fields:
        options.update(_emit(reader, kind, fields["emit"]))
    return options


def _emit(reader: NodeReader, kind: str, node: YamlNode) -> dict[str, Any]:
    """Tumbling windows know ``empty``, the others ``changes``: sliding ones then also emit the result
    of no records, when the last one has left."""
    if kind == "tumbling":
        return {"empty": True} if reader.choice(node, ("all", "empty"), "all") == "empty" else {}
    if node.value == "empty":
        advice = "emit: changes also emits when the last record has left" if kind == "sliding" else "leave out emit"
        reader.bad(node, f"empty is for tumbling windows; with {kind} ones, {advice}")
        return {}
    return {"changes": reader.choice(node, ("all", "changes"), "all") == "changes"}


def _custom(reader: NodeReader, fields: Mapping[str, YamlNode]) -> dict[str, Any]:
    settings = reader.entries(fields.get("with"), "{gap: 5m}")
    return {
        **{name: child.data() for name, child in settings.items()},
        "factory": reader.object_name(fields["custom"], "windows:market_days"),
    }


def read_trigger(reader: NodeReader, node: YamlNode | None, load: Callable[[str], Any]) -> Mapping[str, Any] | None:
    """The trigger as a plain tree that core/triggers/trees.py accepts; a bare name becomes a map."""
    if node is None:
        return None
    tree = node.data()
    try:
        trigger_from_tree(tree, load)
    except (
        Exception
    ) as ex:  # ours are ValueErrors and PipelineErrors; a custom trigger's constructor may raise anything
        wrong, text = _node_of(node, str(ex) or type(ex).__name__)
        reader.bad(wrong, text)
        return None
    return {tree: None} if isinstance(tree, str) else tree


def _node_of(node: YamlNode, text: str) -> tuple[YamlNode, str]:
    """The node that ``trigger.any.0: …`` names, and the rest of the sentence."""
    path, separator, rest = text.partition(": ")
    steps = path.split(".")
    if not separator or steps[0] != "trigger":
        return node, text
    for step in steps[1:]:
        inner = node.value
        if isinstance(inner, dict) and step in inner:
            node = inner[step]
        elif isinstance(inner, list) and step.isdigit() and int(step) < len(inner):
            node = inner[int(step)]
    return node, rest


def read_late(reader: NodeReader, node: YamlNode | None) -> str:
    """``drop``, ``refire`` or ``side:STREAM``, also written ``{side: STREAM}``."""
    if node is None:
        return "drop"
    if node.is_map:
        fields = reader.fields(node, ("side",), "{side: late_hits}")
        stream = reader.name(fields["side"], "stream") if "side" in fields else ""
        return f"side:{stream}" if stream else "drop"
    text = reader.text(node, "drop")
    policy, _, stream = text.partition(":")
    if text in LATE or (policy == "side" and NAME.fullmatch(stream.strip())):
        return text.replace(" ", "")
    if text:
        reader.bad(node, f"must be drop, refire or side:STREAM, not {text[:80]!r}{did_you_mean(text, LATE)}")
    return "drop"
