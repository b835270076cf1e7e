"""``aggregate:``: the fields of a pane, and how each is computed.

    hits: count
    bytes: {sum: size}
    clicks: {count: {where: "type == 'click'"}}
    p99: {quantile: size, q: 0.99, where: "status < 500"}

A field is the name of a function, or a map with the function, its argument (a field or an
expression), its options and ``where``. The argument may also be a map with ``of``, ``where`` and
the options. ``module:Class`` is a function of the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.aggregates.functions import FUNCTIONS, make_aggregator
from millwheel.core.pipeline.keys import Divided
from millwheel.core.pipeline.spec import InputSpec
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.language.spec.key_notation import key_names
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import Entries, ExpressionText, Field, Own, Text
from millwheel.language.spec.reading.problems import did_you_mean, unknown
from millwheel.language.spec.reading.reader import NodeReader

_EXAMPLE = "{hits: count, bytes: {sum: size}}"
WINDOW_FIELDS = ("window_start", "window_end")
"""The fields of every result of a window."""
MOST_INSTANCES = 64
"""Each instance of a key is a key with state of its own; two per core of a large machine."""
_DIVIDED = re.compile(r"([a-z-]+)(?:\((\d+)\))?")
_INSTANCES = 16
"""The instances of a hot key where no number is given: four times as many as four shards, so that
they lie evenly."""
AGGREGATE = Field(
    "",
    Own((Entries(Own(("aggregate",)), _EXAMPLE),)),
    "[what is computed](pipeline.md#aggregates) from the records: fields of the results, each with"
    " its function",
    default="a list of the records",
)
RESULTS = {
    "then": Field(
        "",
        Own((Entries(ExpressionText("total / n"), "{mean: total / n}", named=True),)),
        "[fields made of other fields](pipeline.md#results) of a result: its key, its aggregates",
        default="none",
    ),
    "having": Field(
        "",
        ExpressionText("n > 10"),
        "an [expression](expressions.md) over the fields of a result; those that do not satisfy it"
        " are [left out](pipeline.md#results)",
        default="all",
    ),
}
"""The options for results of aggregates."""
_WAYS = "|".join(each.value for each in Divided if each.by_tables)
_NAMES = ", ".join(f"`{each.value}`" for each in Divided if each not in (Divided.ALL, Divided.HOT))
SKEW = Field(
    "",
    Own((Text("scatter(4)", rf"^(hash|scatter\([0-9]+\)|({_WAYS})(\([0-9]+\))?)$"),)),
    "`scatter(4)`: each key is [divided over 4"
    " instances](skew.md#one-key-with-most-of-the-records). `auto`: only [hot"
    f" keys](skew.md#only-hot-keys) are. {_NAMES}, with or without a number as in `tag(12)`: a"
    " [grouping](skew.md#groupings) chooses the instance",
    default="`hash`",
)
_NEEDS_ORDER = ("collect", "first", "last")
_WHOLE_KEYS = ("output_time", "late")


def check_keys(
    reader: NodeReader, fields: Mapping[str, YamlNode], inputs: tuple[InputSpec, ...]
) -> None:
    """Refuses a key named like a bound of the window: results of windows and joins have both, so
    the bound would replace the key. Callbacks choose their own fields."""
    if not fields.keys() & {"window", "uv"} or "callback" in fields:
        return
    for name in WINDOW_FIELDS:
        if name in key_names(inputs):
            reader.bad(
                fields["input"].value[inputs[0].stream].value["key"],
                f"the results have the bounds of their own window as {' and '.join(WINDOW_FIELDS)},"
                f" which would replace the key {name!r}; give the key another name: write key:"
                f" {{of_window: {name}}}",
            )


def read_aggregates(
    reader: NodeReader, node: YamlNode | None, row_fields: tuple[str, ...]
) -> tuple[AggregateSpec, ...]:
    """All aggregates. ``row_fields`` are the names of fields that every row already has."""
    specs = []
    for name, child in reader.entries(node, _EXAMPLE).items():
        if _check_name(reader, name, child, row_fields):
            spec = _aggregate(reader, name, child)
            if spec is not None:
                specs.append(spec)
    return tuple(specs)


def _check_name(reader: NodeReader, name: str, node: YamlNode, row_fields: tuple[str, ...]) -> bool:
    if not name.isidentifier():
        reader.bad(
            node,
            f"{name[:80]!r} cannot be the name of a field: write letters, digits and _, not"
            " beginning with a digit",
        )
    elif name in row_fields:
        reader.bad(
            node,
            f"every row already has a field {name!r} ({', '.join(row_fields)}); choose another"
            " name",
        )
    else:
        return True
    return False


def _aggregate(reader: NodeReader, name: str, node: YamlNode) -> AggregateSpec | None:
    if isinstance(node.value, str):
        return _checked(reader, node, AggregateSpec(name, node.value))
    entries = reader.entries(node, "{sum: size}")
    function = _function(reader, node, entries)
    if function is None:
        return None
    options = {option: child for option, child in entries.items() if option != function}
    argument: YamlNode | None = entries[function]
    if argument is not None and isinstance(argument.value, dict):
        options.update(argument.value)
        argument = options.pop("of", None)
    where = options.pop("where", None)
    if function in FUNCTIONS and FUNCTIONS[function].of_rows:
        if argument is not None and argument.value is not None:
            if "by" not in FUNCTIONS[function].options:
                reader.bad(argument, f"{function} is a whole record; write nothing behind it")
                return None
            options["by"] = argument
        argument = None
    spec = AggregateSpec(
        name,
        function,
        _argument(reader, argument),
        reader.expression(where, "type == 'click'"),
        {option: child.data() for option, child in options.items()},
    )
    return _checked(reader, node, spec)


def _function(reader: NodeReader, node: YamlNode, entries: Mapping[str, YamlNode]) -> str | None:
    """The key that names the function. The other keys are its options, in any order."""
    functions = [name for name in entries if name in FUNCTIONS or OBJECT_NAME.fullmatch(name)]
    if len(functions) > 1:
        reader.bad(
            node,
            f"names {len(functions)} functions ({', '.join(functions)}); give each a field of"
            " its own",
        )
        return None
    others = [name for name in entries if name != "where"]
    if functions or others:
        return (functions or others)[0]
    if node.is_map or node.value is None:
        reader.bad(
            node,
            "names no function; write for example count or {sum: size}. Known:"
            f" {', '.join(sorted(FUNCTIONS))}",
        )
    return None


def _argument(reader: NodeReader, node: YamlNode | None) -> str:
    if node is None or node.value is None:
        return ""
    return reader.expression(node, "size")


def _checked(reader: NodeReader, node: YamlNode, spec: AggregateSpec) -> AggregateSpec | None:
    if OBJECT_NAME.fullmatch(spec.function):
        return spec
    if spec.function not in FUNCTIONS:
        reader.bad(node, unknown("function", spec.function, [*sorted(FUNCTIONS), "module:Class"]))
        return None
    aggregator: Any = reader.attempt(node, lambda: make_aggregator(spec.function, spec.options))
    if aggregator is None:
        return None
    if aggregator.of_rows:
        read = [
            reader.attempt(node, partial(reader.language.compile, t)) for t in aggregator.orders
        ]
        return None if None in read else spec
    if aggregator.needs_argument and not spec.argument and not reader.problems.concerns(node.path):
        reader.bad(
            node,
            f"{spec.function} needs a field or an expression; write for example {{{spec.function}:"
            " size}",
        )
        return None
    return spec


def read_results(
    reader: NodeReader,
    fields: Mapping[str, YamlNode],
    row_fields: tuple[str, ...],
    aggregates: tuple[AggregateSpec, ...],
) -> tuple[dict[str, str], str]:
    """``then`` and ``having``. ``row_fields`` are the fields that every row has beside the
    aggregates; each field of ``then`` may also read those before it."""
    for name in RESULTS:
        if name in fields and "aggregate" not in fields:
            reader.bad(
                fields[name], f"{name} is about the results of aggregate; this computation has none"
            )
            return {}, ""
        if name in fields and "queryable" in fields:
            reader.bad(
                fields[name],
                f"questions are answered with the aggregates as they are; leave out {name} or"
                " queryable",
            )
    names = [*row_fields, *(each.name for each in aggregates)]
    then: dict[str, str] = {}
    for name, child in reader.entries(fields.get("then"), "{mean: total / n}").items():
        if _check_name(reader, name, child, tuple(names)):
            then[name] = _over_results(reader, child, names)
            names.append(name)
    having = _over_results(reader, fields["having"], names) if "having" in fields else ""
    return {name: text for name, text in then.items() if text}, having


def _over_results(reader: NodeReader, node: YamlNode, names: list[str]) -> str:
    """An expression over the fields ``names``."""
    text = reader.expression(node, "n > 10")
    for name in reader.language.compile(text).fields if text else ():
        if name not in names:
            reader.bad(
                node,
                f"a result has no field {name!r}{did_you_mean(name, names)}; it has"
                f" {', '.join(names)}",
            )
    return text


# --- divided keys ---------------------------------------------------------------------------------


def read_skew(
    reader: NodeReader, fields: Mapping[str, YamlNode], inputs: tuple[InputSpec, ...]
) -> tuple[int, Divided]:
    """Over how many instances keys are divided, 1 for keys that are not; and how."""
    whole = 1, Divided.ALL
    node = fields.get("skew")
    text = reader.text(node, "scatter(4)")
    if node is None or text == "hash":
        return whole
    match = _DIVIDED.fullmatch(text)
    ways = {each.value: each for each in Divided}
    if (
        match is None
        or match[1] not in ways
        or (match[1] == Divided.ALL.value and match[2] is None)
    ):
        others = ", ".join(each.value for each in Divided if each.by_slots)
        fix = (
            "write scatter(4) to divide each key over 4 instances, auto to divide hot keys only, or"
            " hash"
        )
        reader.bad(
            node, f"{text[:40]!r} is not a grouping; {fix}; or one of the groupings {others}"
        )
        return whole
    way, instances = ways[match[1]], int(match[2] or _INSTANCES)
    if not 2 <= instances <= MOST_INSTANCES:
        reader.bad(
            node, f"keys can be divided over 2 to {MOST_INSTANCES} instances, not {instances}"
        )
        return whole
    return (instances, way) if _can_be_divided(reader, node, fields, inputs) else whole


def _can_be_divided(
    reader: NodeReader,
    node: YamlNode,
    fields: Mapping[str, YamlNode],
    inputs: tuple[InputSpec, ...],
) -> bool:
    reason = _why_not(fields, inputs)
    if reason:
        reader.bad(node, reason)
    return not reason


def _why_not(fields: Mapping[str, YamlNode], inputs: tuple[InputSpec, ...]) -> str:
    """Why the keys of a computation cannot be divided, "" where they can."""
    if (
        "aggregate" not in fields
        or not fields.keys() & {"window", "slices"}
        or "callback" in fields
    ):
        return (
            "only an aggregation in windows or slices divides its keys: all else sees a key's"
            " records in order"
        )
    if len(inputs) != 1:
        return (
            "keys of one input can be divided; bring the streams together in a computation before"
            " this one"
        )
    for name in _WHOLE_KEYS:
        if name in fields:
            return (
                f"{name} does not go with divided keys: each part would have its own; leave it out"
            )
    of_time = _slices_not_divided(fields) if "slices" in fields else _windows_not_divided(fields)
    return of_time or _ordered(fields["aggregate"])


def _slices_not_divided(fields: Mapping[str, YamlNode]) -> str:
    slices = fields["slices"].value
    if isinstance(slices, dict) and "ttl" in slices:
        return (
            "slices with a ttl forget a key by the times of all of its records, and a part"
            " of a key has some of them; leave ttl out"
        )
    return ""


def _windows_not_divided(fields: Mapping[str, YamlNode]) -> str:
    window = fields["window"].value
    kinds = set(window) if isinstance(window, dict) else {window}
    if "count" in kinds:
        return "a count window is full after so many records of a whole key, which no part counts"
    if "custom" in kinds:
        return "windows of your own may depend on all records of a key, and a part has some of them"
    for name in ("trigger", "allowed_lateness") if "session" in kinds else ():
        if name in fields:
            return (
                f"{name} does not go with divided keys in sessions, which fire once: parts have"
                " only pieces of them"
            )
    if "trigger" in fields and "cumulative" in kinds:
        return (
            "trigger does not go with divided keys in cumulative windows: parts have only the"
            " pieces between two steps, and emit one as its step ends"
        )
    if "trigger" in fields and not _divides(fields["trigger"].data()):
        return (
            "this trigger counts the records of a whole key, which no part has; with divided keys"
            " write {after_watermark: {early: {after_processing_time: 10s}}}, or leave trigger out"
        )
    return ""


def _divides(trigger: Any) -> bool:
    """Whether each part of a key can fire by itself: at the end, and before it by the wall
    clock."""
    after = (
        trigger.get("after_watermark") if isinstance(trigger, dict) and len(trigger) == 1 else None
    )
    early = after.get("early") if isinstance(after, dict) and len(after) == 1 else None
    return trigger == "default" or (
        isinstance(early, dict) and set(early) == {"after_processing_time"}
    )


def _ordered(aggregates: YamlNode) -> str:
    for name, child in (aggregates.value if isinstance(aggregates.value, dict) else {}).items():
        functions = child.value if isinstance(child.value, dict) else {child.value: None}
        for function in functions:
            if function in _NEEDS_ORDER:
                return (
                    f"{name}: {function} depends on the order of a key's records, which divided"
                    " keys do not keep"
                )
    return ""
