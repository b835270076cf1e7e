"""The ``computations:`` part: the records that each processes, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    Delivery,
    InputSpec,
    KeyKind,
    KeySpec,
    Productions,
    WindowSpec,
)
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.python_objects import OBJECT_NAME
from millwheel.spec.parts.aggregates import (
    WINDOW_FIELDS,
    check_keys,
    key_names,
    read_aggregates,
    read_skew,
)
from millwheel.spec.parts.branches import FIELDS as SORT_FIELDS
from millwheel.spec.parts.branches import read_branches, read_deduplicate, read_match, read_order
from millwheel.spec.parts.joins import FIELDS as JOIN_FIELDS
from millwheel.spec.parts.joins import read_enrich, read_join
from millwheel.spec.parts.lookups import read_lookup
from millwheel.spec.parts.on_error import read_on_error
from millwheel.spec.parts.slices import ANSWER_FIELDS, check_slices, read_slices
from millwheel.spec.parts.steps import FIELDS as STEP_FIELDS
from millwheel.spec.parts.steps import read_steps
from millwheel.spec.parts.windows import read_late, read_trigger, read_window
from millwheel.spec.reading.nodes import YamlNode
from millwheel.spec.reading.reader import NodeReader, is_expression
from millwheel.spec.visitors.counts import FIELDS as UV_FIELDS
from millwheel.spec.visitors.counts import UniqueVisitors, check_visitors, read_visitors
from millwheel.spec.visitors.dictionaries import FIELDS as DICTIONARY_FIELDS
from millwheel.spec.visitors.dictionaries import check_dictionary, partitioned_inputs, read_dictionary

_WINDOW_FIELDS = (
    "window",
    "aggregate",
    "where",
    "trigger",
    "accumulation",
    "allowed_lateness",
    "output_time",
    "late",
    "queryable",
)
_CALLBACK_FIELDS = ("callback", "options")
_DIALS = ("delivery", "productions", "max_attempts", "on_error", "shards", "standby", "skew")
_OTHER_FORMS = (*STEP_FIELDS, *SORT_FIELDS, *JOIN_FIELDS, "slices", *DICTIONARY_FIELDS, *UV_FIELDS)
FIELDS = ("input", "output", *_CALLBACK_FIELDS, *_OTHER_FORMS, "order_by", *_WINDOW_FIELDS, *_DIALS)
_EXAMPLE = "{input: {hits: {key: path}}, callback: callbacks:Detector, output: alerts}"
_INPUT = "{hits: {key: path}}"
_TWO_COMPUTATIONS = "make two computations of it, one that consumes the output of the other"
_BY_RECORD = KeySpec(KeyKind.RECORD)


def read_computation(reader: NodeReader, name: str, node: YamlNode, load: Callable[[str], Any]) -> ComputationSpec:
    """A computation, as far as it can be read. ``load`` imports the classes of custom triggers."""
    reader.check_name(node, name, "computation")
    fields = reader.fields(node, FIELDS, _EXAMPLE)
    inputs = _inputs(reader, node, fields)
    branches = read_branches(reader, fields.get("branch"))
    _check_form(reader, node, fields, inputs)
    check_keys(reader, fields, inputs)
    dictionary = read_dictionary(reader, fields.get("dictionary"))
    counted = read_visitors(reader, fields.get("uv"), inputs)
    scatter, divided = read_skew(reader, fields, inputs)
    return ComputationSpec(
        name=name,
        inputs=partitioned_inputs(inputs, dictionary),
        outputs=_outputs(reader, node, fields) if "branch" not in fields else tuple(each.stream for each in branches),
        callback=reader.object_name(fields.get("callback"), "callbacks:Detector"),
        options={key: child.data() for key, child in reader.entries(fields.get("options"), "{threshold: 4}").items()},
        steps=read_steps(reader, fields),
        deduplicate=read_deduplicate(reader, fields.get("deduplicate")),
        branches=branches,
        match_all=read_match(reader, fields),
        ordered=read_order(reader, fields),
        join=read_join(reader, node, fields, inputs),
        enrich=read_enrich(reader, fields, inputs),
        lookup=read_lookup(reader, fields, inputs),
        dictionary=dictionary,
        window=_window(reader, fields, counted),
        slices=read_slices(reader, node, fields),
        aggregates=read_aggregates(reader, fields.get("aggregate"), _taken(fields, inputs))
        if counted is None
        else (counted.aggregate,),
        numbered=counted.partitions if counted is not None else 0,
        numbered_ttl_us=counted.ttl_us if counted is not None else None,
        condition=reader.expression(fields.get("where"), "type == 'click'"),
        trigger=read_trigger(reader, fields.get("trigger"), load),
        accumulation=reader.choice(fields.get("accumulation"), [kind.value for kind in Accumulation], "discarding"),
        allowed_lateness_us=reader.duration(fields.get("allowed_lateness"), 0),
        output_time=reader.choice(fields.get("output_time"), [kind.value for kind in OutputTime], "end_of_window"),
        late=read_late(reader, fields.get("late")),
        queryable=_queryable(reader, fields),
        delivery=Delivery(reader.choice(fields.get("delivery"), [kind.value for kind in Delivery], "exactly_once")),
        productions=Productions(
            reader.choice(fields.get("productions"), [kind.value for kind in Productions], "strong")
        ),
        max_attempts=reader.number(fields.get("max_attempts"), 3, 1, 1_000) or 3,
        on_error=read_on_error(reader, fields.get("on_error")),
        shards=reader.number(fields.get("shards"), None, 1, 4_096),
        standby=reader.number(fields.get("standby"), 0, 0, 1) or 0,
        where=reader.where(node),
        scatter=scatter,
        divided=divided,
    )


def _window(reader: NodeReader, fields: Mapping[str, YamlNode], counted: UniqueVisitors | None) -> WindowSpec | None:
    if counted is not None:
        return counted.window
    return read_window(reader, fields["window"]) if "window" in fields else None


def _queryable(reader: NodeReader, fields: Mapping[str, YamlNode]) -> str:
    given = fields.get("queryable")
    if given is not None and "aggregate" not in fields:
        reader.bad(given, "only results of aggregates can be asked; add aggregate, or leave queryable out")
    return reader.choice(given, ["latest"], "")


def _taken(fields: Mapping[str, YamlNode], inputs: tuple[InputSpec, ...]) -> tuple[str, ...]:
    """The names that an aggregate cannot have: the results have them already."""
    return ANSWER_FIELDS if "slices" in fields else (*key_names(inputs), *WINDOW_FIELDS)


def _check_form(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], inputs: tuple[InputSpec, ...]
) -> None:
    """A computation is a callback (with or without a window), steps, or a window, and has no fields of the other
    forms."""
    if "callback" in fields:
        _check_callback(reader, fields)
        return
    if "options" in fields:
        reader.bad(
            fields["options"], "options are the arguments of a callback's constructor; this computation has no callback"
        )
    steps = [name for name in fields if name in (*STEP_FIELDS, *SORT_FIELDS)]
    joins = [name for name in fields if name in JOIN_FIELDS]
    if "slices" in fields:
        check_slices(reader, fields, [*joins, *steps])
    elif "dictionary" in fields:
        check_dictionary(
            reader, node, fields, inputs, [*joins, *steps, *(name for name in _WINDOW_FIELDS if name in fields)]
        )
    elif "uv" in fields:
        windowed = [name for name in _WINDOW_FIELDS if name in fields and name != "where"]
        check_visitors(reader, fields, inputs, [*joins, *steps, *windowed, *(["skew"] if "skew" in fields else [])])
        if "output" not in fields:
            reader.missing(node, "output", "nobody could see the counts; write output: STREAM")
    elif joins:
        for name in [*joins[1:], *steps]:
            reader.bad(fields[name], f"a computation does one of {joins[0]} and {name}; {_TWO_COMPUTATIONS}")
        if "output" not in fields:
            reader.missing(node, "output", "nobody could see the results; write output: STREAM")
    elif steps:
        _check_steps(reader, node, fields, steps)
    elif "window" not in fields and node.is_map:
        if "aggregate" in fields:
            reader.missing(node, "window", "aggregates need one; write for example window: {tumbling: 1m}")
        else:
            reader.bad(
                node,
                "does nothing; write callback: module:Class, or window: {tumbling: 1m} and aggregate: {hits: count}, "
                "or map, flat_map, filter, deduplicate, branch, join, enrich, slices, dictionary or uv",
            )


def _check_callback(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    windowed = "window" in fields
    for name in (*_OTHER_FORMS, *(() if windowed else _WINDOW_FIELDS)):
        if name in fields:
            form = "with a window" if name in _WINDOW_FIELDS else "with steps" if name in STEP_FIELDS else "without one"
            reader.bad(fields[name], f"{name} is for computations {form}; a callback does this in its own code")
    if not windowed:
        return
    if "aggregate" in fields:
        reader.bad(
            fields["aggregate"],
            "a callback with a window gets the records themselves (process_window); leave out aggregate or callback",
        )
    if "accumulation" in fields and fields["accumulation"].value == Accumulation.RETRACTING.value:
        reader.bad(
            fields["accumulation"],
            "the productions of a callback cannot be taken back; write accumulating (every pane has all records so "
            "far) or discarding",
        )


def _check_steps(reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], steps: list[str]) -> None:
    for name in _WINDOW_FIELDS:
        if name in fields:
            fix = f"leave out {steps[0]} and write its condition as where" if steps == ["filter"] else _TWO_COMPUTATIONS
            reader.bad(fields[name], f"{name} is for computations with a window, not for {', '.join(steps)}; {fix}")
    kinds = [name for name in ("deduplicate", "branch") if name in fields]
    others = [name for name in steps if name not in (*kinds, "match")]
    if len(kinds) > 1 or (kinds and others):
        first, second = [*kinds, *others][:2]
        reader.bad(fields[second], f"a computation does one of {first} and {second}; {_TWO_COMPUTATIONS}")
    if "branch" in fields:
        if "output" in fields:
            reader.bad(fields["output"], "the streams of branch are the outputs; leave out output")
    elif "output" not in fields:
        reader.missing(node, "output", "nobody could see the results; write output: STREAM")


# --- inputs and outputs ----------------------------------------------------------------------------------------


def _inputs(reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode]) -> tuple[InputSpec, ...]:
    given = fields.get("input")
    if given is None or not (given.value or given.is_scalar):
        if node.is_map:
            reader.missing(node, "input", f"write for example input: {_INPUT}")
        return ()
    if isinstance(given.value, dict):
        return tuple(
            InputSpec(stream, _key_of(reader, child))
            for stream, child in given.value.items()
            if reader.check_name(child, stream, "stream")
        )
    names = [reader.name(item, "stream") for item in reader.items(given)]
    return tuple(InputSpec(stream, _BY_RECORD) for stream in dict.fromkeys(names) if stream)


def _key_of(reader: NodeReader, node: YamlNode) -> KeySpec:
    if isinstance(node.value, str):
        reader.bad(node, f"must be a map; write {{key: {node.value[:60]}}} to take the key from there")
        return _BY_RECORD
    key = reader.fields(node, ("key",), "{key: path}").get("key")
    if key is None:
        return _BY_RECORD
    if isinstance(key.value, list):
        names = tuple(reader.text(item, "path") for item in key.value)
        if not names or "" in names:
            reader.bad(key, "names no fields; write for example [country, path]")
            return _BY_RECORD
        return KeySpec(KeyKind.FIELDS if len(names) > 1 else KeyKind.FIELD, names)
    text = reader.text(key, "path, [country, path] or keys:by_user")
    if is_expression(text):
        reader.bad(
            key,
            f"{text[:80]!r} is an expression, and keys are not computed here: name a field, add one to the records "
            "in a computation before this one, or name a function of yours, module:function",
        )
        return _BY_RECORD
    if ":" not in text:
        return KeySpec(KeyKind.FIELD, (text,)) if text else _BY_RECORD
    if not OBJECT_NAME.fullmatch(text):
        reader.bad(key, f"{text[:80]!r} is neither a field nor module:function")
        return _BY_RECORD
    return KeySpec(KeyKind.FUNCTION, (text,))


def _outputs(reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode]) -> tuple[str, ...]:
    given = fields.get("output")
    if given is None:
        if "window" in fields and "callback" not in fields:
            reader.missing(node, "output", "nobody could see the results; write output: STREAM")
        return ()
    if given.is_map:
        reader.bad(given, "must be the name of a stream or a list of names, not a map")
        return ()
    names = []
    for item in reader.items(given):
        name = reader.name(item, "stream")
        if name == DEAD_LETTERS:
            reader.bad(
                item,
                f"{DEAD_LETTERS!r} is filled by the system (with records that fail); choose another name",
            )
        elif name:
            names.append(name)
    if len(names) > 1 and "window" in fields and "callback" not in fields:
        reader.bad(given, "a computation with a window has one output; its consumers may be many")
    return tuple(dict.fromkeys(names))
