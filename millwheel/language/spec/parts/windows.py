"""``window:``, ``trigger:`` and their options. core/machines/specs.py decides which windows are
valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.machines.specs import window_from_spec
from millwheel.core.pipeline.work import WindowSpec
from millwheel.core.windows.kinds import WINDOW_KINDS, OptionForm, WindowKind, WindowOption
from millwheel.core.windows.trees import trigger_from_tree
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    MERGED,
    Anything,
    Choice,
    Duration,
    Entries,
    Field,
    FilePart,
    Flag,
    NameText,
    Number,
    ObjectName,
    Own,
    Text,
)
from millwheel.language.spec.reading.problems import did_you_mean, unknown
from millwheel.language.spec.reading.reader import NAME, NodeReader

_EXAMPLE = "{tumbling: 1m}"
_EXAMPLES = {OptionForm.DURATION: "1m", OptionForm.NUMBER: "10"}
_NEEDED = f"write for example window: {_EXAMPLE}"


def _true(reader: NodeReader, node: YamlNode) -> dict[str, Any]:
    if not reader.flag(node, True):
        reader.bad(node, "must be true: {global: true} is one window for all of time")
    return {}


def part_of(kind: WindowKind) -> FilePart:
    """The fields of a kind of windows, as its row has them."""
    needed = [option for option in kind.options if option.required]
    example = ", ".join(f"{each.word}: {_EXAMPLES[each.form]}" for each in needed)
    example = example or f"{kind.word}: {kind.behind or 'true'}"
    fields = {option.word: _field_of(kind.word, option) for option in kind.options}
    if kind.size is None:
        choice = Own((Flag(),), _true) if not kind.behind else Choice((kind.behind,), lambda _: {})
        fields = {kind.word: Field(MERGED, choice, kind.text, _NEEDED), **fields}
    return FilePart(f"{{{example}}}", fields)


def _field_of(kind: str, option: WindowOption) -> Field:
    text = f"{kind} windows need the time between their outputs; write for example"
    needed = f"{text} {option.word}: 1m" if option.required else ""
    needed = _NEEDED if option.word == kind else needed
    match option.form:
        case OptionForm.DURATION:
            return Field(option.setting, Duration(option.least), option.text, needed)
        case OptionForm.NUMBER:
            return Field(option.setting, Number(option.least, option.most), option.text, needed)
        case OptionForm.TIME_ZONE:
            return Field(option.setting, Text("Europe/Paris"), option.text, needed)
        case OptionForm.FIELD:
            return Field(option.setting, Text(option.default), option.text, needed, option.default)
        case OptionForm.EMIT:
            return Field(MERGED, _emit(kind, option.attribute), option.text, needed)


def _emit(kind: str, attribute: str) -> Choice:
    """Tumbling windows have ``empty``, the others ``changes``: sliding ones then also emit the
    result of no records, when the last one has left."""
    advice = (
        "emit: changes also emits when the last record has left"
        if kind == "sliding"
        else "leave out emit"
    )
    refused = {"empty": f"empty is for tumbling windows; with {kind} ones, {advice}"}
    words = ("all", attribute)
    made = {"all": {}, attribute: {attribute: True}}.__getitem__
    return Choice(words, made, {} if attribute == "empty" else refused)


KINDS: Mapping[str, FilePart] = {
    **{word: part_of(kind) for word, kind in WINDOW_KINDS.items()},
    "custom": FilePart(
        '{custom: "windows:market_days", with: {gap: 5m}}',
        {
            "custom": Field(
                "factory", ObjectName("windows:market_days"), "a function of yours of with", _NEEDED
            ),
            "with": Field(MERGED, Entries(Anything(), "{gap: 5m}"), "its settings"),
        },
    ),
}
"""Kinds of windows, each with the settings beside the kind itself."""
_WORDS = ("drop", "refire")
_SIDE = FilePart("{side: late_hits}", {"side": Field("stream", NameText("stream"), "the stream")})


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
    if entries[kind].value is None:
        reader.bad(node, f"{kind} has no value; {_NEEDED}")
        return None
    before = len(reader.problems.found)
    fields = KINDS[kind].nodes(reader, node)
    spec = WindowSpec(kind, KINDS[kind].values(reader, fields))
    if len(reader.problems.found) > before:
        return None
    if kind != "custom" and reader.attempt(node, lambda: window_from_spec(spec)) is None:
        return None
    return spec


def _no_kind(
    reader: NodeReader, node: YamlNode, entries: Mapping[str, YamlNode], kinds: list[str]
) -> None:
    if kinds:
        reader.bad(node, f"names {len(kinds)} kinds of windows ({', '.join(kinds)}); keep one")
    elif entries:
        name, first = next(iter(entries.items()))
        reader.bad(first, unknown("window", name, list(KINDS)))
    elif node.is_map or node.value is None:
        reader.bad(node, f"is empty; write for example window: {_EXAMPLE}")


def read_trigger(
    reader: NodeReader, node: YamlNode | None, load: Callable[[str], Any]
) -> Mapping[str, Any] | None:
    """The trigger as a plain tree that core/windows/trees.py accepts; a bare name becomes a
    map."""
    if node is None:
        return None
    tree = node.data()
    try:
        trigger_from_tree(tree, load)
    except (
        Exception
        # ours are ValueErrors and PipelineErrors; a custom trigger's constructor may raise anything
    ) as ex:
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


def _late(reader: NodeReader, node: YamlNode) -> str:
    """``drop``, ``refire`` or ``side:STREAM``, also written ``{side: STREAM}``."""
    if node.is_map:
        stream = _SIDE.read(reader, node).get("stream")
        return f"side:{stream}" if stream else "drop"
    text = reader.text(node, "drop")
    policy, _, stream = text.partition(":")
    if text in _WORDS or (policy == "side" and NAME.fullmatch(stream.strip())):
        return text.replace(" ", "")
    if text:
        meant = did_you_mean(text, _WORDS)
        reader.bad(node, f"must be drop, refire or side:STREAM, not {text[:80]!r}{meant}")
    return "drop"


LATE = Field(
    "late",
    Own((Choice(_WORDS), Text("side:late_hits", "^side:"), _SIDE), _late),
    "[what happens to records](pipeline.md#late-records) that are later than allowed",
)
TRIGGER = Field(
    "",
    Own(("trigger",)),
    "[when the window fires](pipeline.md#triggers)",
    default="once, as the watermark passes the end",
)
WINDOW = Field(
    "",
    Own((Choice(("global",)), *KINDS.values())),
    "[which records belong together](pipeline.md#windows)",
)
