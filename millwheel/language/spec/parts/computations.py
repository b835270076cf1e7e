"""The ``computations:`` part: the records that each processes, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.keys import OWN_KEY
from millwheel.core.pipeline.spec import (
    DEAD_LETTERS,
    ComputationSpec,
    InputSpec,
)
from millwheel.core.pipeline.work import (
    AggregationSpec,
    BranchesSpec,
    CallbackSpec,
    FiringSpec,
    IntervalJoinSpec,
    JoinKind,
    RegularJoinSpec,
    StepsSpec,
    WindowCallbackSpec,
    WindowSpec,
    Work,
)
from millwheel.core.windows.panes import Accumulation
from millwheel.language.spec.change_logs import change_log, check_change_log, is_change_log
from millwheel.language.spec.key_notation import key_names, read_input_key
from millwheel.language.spec.parts.aggregates import (
    WINDOW_FIELDS,
    check_keys,
    read_aggregates,
    read_results,
    read_skew,
)
from millwheel.language.spec.parts.computation_fields import (
    CALLBACK,
    COMPUTATION,
    DIALS,
    FIRING,
    INPUT,
    OF_GROUPS,
    OTHER_FORMS,
    WINDOWED,
)
from millwheel.language.spec.parts.joins import JOINS, join_in_windows, read_enrich, read_join
from millwheel.language.spec.parts.lookups import read_lookup
from millwheel.language.spec.parts.rows import (
    check_over,
    check_ranked,
    read_deduplicate,
    read_over,
    read_top,
)
from millwheel.language.spec.parts.slices import ANSWER_FIELDS, check_slices, read_slices
from millwheel.language.spec.parts.steps import (
    ORDER,
    SORTING,
    STEPS,
    check_sorting,
    read_branches,
    read_steps,
)
from millwheel.language.spec.parts.visitors import (
    UniqueVisitors,
    check_dictionary,
    check_visitors,
    partitioned_inputs,
    read_dictionary,
    read_visitors,
)
from millwheel.language.spec.parts.windows import read_trigger, read_window
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader

_TWO_COMPUTATIONS = "make two computations of it, one that consumes the output of the other"


def read_computation(
    reader: NodeReader, name: str, node: YamlNode, load: Callable[[str], Any]
) -> ComputationSpec:
    """A computation, as far as it can be read. ``load`` imports the classes of custom triggers."""
    reader.check_name(node, name, "computation")
    fields = COMPUTATION.nodes(reader, node)
    inputs = _inputs(reader, node, fields)
    branches = read_branches(reader, fields.get("branch"))
    _check_form(reader, node, fields, inputs)
    check_keys(reader, fields, inputs)
    dictionary = read_dictionary(reader, fields.get("dictionary"))
    scatter, divided = read_skew(reader, fields, inputs)
    check_sorting(reader, fields)
    check_ranked(reader, fields)
    match_all = SORTING["match"].value(reader, fields.get("match"), False)
    outputs = (
        _outputs(reader, node, fields)
        if "branch" not in fields
        else tuple(each.stream for each in branches)
    )
    others = (
        read_enrich(reader, fields, inputs),
        read_lookup(reader, fields, inputs),
        read_deduplicate(reader, fields.get("deduplicate")),
        read_top(reader, fields.get("top")),
        dictionary,
        BranchesSpec(branches, match_all) if branches else None,
    )
    steps = StepsSpec(read_steps(reader, fields))
    work = _kept_work(reader, node, fields, inputs, load) or next(
        (each for each in others if each is not None), steps
    )
    return ComputationSpec(
        name=name,
        inputs=partitioned_inputs(inputs, dictionary),
        outputs=outputs,
        work=work,
        ordered=ORDER.value(reader, fields.get("order_by"), False),
        where=reader.where(node),
        scatter=scatter,
        divided=divided,
        **DIALS.values(reader, fields),
    )


def _kept_work(
    reader: NodeReader,
    node: YamlNode,
    fields: Mapping[str, YamlNode],
    inputs: tuple[InputSpec, ...],
    load: Callable[[str], Any],
) -> Work | None:
    """The work with windows, slices or a callback; None for any other. Each part is read, to find
    all mistakes."""
    name = CALLBACK["callback"].value(reader, fields.get("callback"), "")
    options = CALLBACK["options"].value(reader, fields.get("options"), {})
    kind = read_join(reader, node, fields, inputs)
    counted = read_visitors(reader, fields.get("uv"), inputs)
    window = _window(reader, fields, counted)
    ttl_us = OF_GROUPS["ttl"].value(reader, fields.get("ttl"), None)
    slices = read_slices(reader, node, fields)
    taken = _taken(fields, inputs)
    aggregates = read_aggregates(reader, fields.get("aggregate"), taken)
    over = read_over(reader, fields.get("over"))
    declared = {} if "over" in fields else fields
    then, having = read_results(reader, declared, taken, aggregates)
    results: Any = {"aggregates": aggregates, "then": then, "having": having}
    condition = WINDOWED["where"].value(reader, fields.get("where"), "")
    trigger = read_trigger(reader, fields.get("trigger"), load)
    queryable = _queryable(reader, fields)
    firing = FiringSpec(trigger=trigger, **FIRING.values(reader, fields))
    if window is None and is_change_log(fields):
        log = change_log(trigger, ttl_us, fields)
        return replace(log, condition=condition, queryable=queryable, **results)
    if window is None:
        if isinstance(kind, RegularJoinSpec | IntervalJoinSpec):
            return kind
        if over is not None:
            return replace(over, aggregates=aggregates, condition=condition)
        if slices is not None:
            return replace(slices, aggregates=aggregates, condition=condition, late=firing.late)
        return CallbackSpec(name, options) if name else None
    if isinstance(kind, JoinKind):
        return join_in_windows(kind, window, firing)
    arguments: Any = {"window": window, "condition": condition, "firing": firing}
    if name:
        return WindowCallbackSpec(callback=CallbackSpec(name, options), **arguments)
    if counted is not None:
        return AggregationSpec(
            aggregates=(counted.aggregate,), numbered=counted.numbered, **arguments
        )
    return AggregationSpec(queryable=queryable, **results, **arguments)


def _window(
    reader: NodeReader, fields: Mapping[str, YamlNode], counted: UniqueVisitors | None
) -> WindowSpec | None:
    if counted is not None:
        return counted.window
    return read_window(reader, fields["window"]) if "window" in fields else None


def _queryable(reader: NodeReader, fields: Mapping[str, YamlNode]) -> str:
    queryable_node = fields.get("queryable")
    if queryable_node is not None and "aggregate" not in fields:
        reader.bad(
            queryable_node,
            "only results of aggregates can be asked; add aggregate, or leave queryable out",
        )
    queryable: str = WINDOWED["queryable"].value(reader, queryable_node, "")
    return queryable


def _taken(fields: Mapping[str, YamlNode], inputs: tuple[InputSpec, ...]) -> tuple[str, ...]:
    """The names that an aggregate cannot have: the results have them already."""
    if "slices" in fields:
        return ANSWER_FIELDS
    if "over" in fields:
        return ()
    bounds = () if is_change_log(fields) else WINDOW_FIELDS
    return (*key_names(inputs), *bounds)


def _check_form(
    reader: NodeReader,
    node: YamlNode,
    fields: Mapping[str, YamlNode],
    inputs: tuple[InputSpec, ...],
) -> None:
    """A computation is a callback (with or without a window), steps, or a window, and has no fields
    of the other forms."""
    for name in OF_GROUPS:
        if name in fields and not is_change_log(fields):
            reader.bad(
                fields[name],
                f"{name} is for change logs (an aggregate without a window), whose groups have no"
                f" end of their own; leave out {name}",
            )
    if "callback" in fields:
        _check_callback(reader, fields)
        return
    if "options" in fields:
        reader.bad(
            fields["options"],
            "options are the arguments of a callback's constructor; this computation has no"
            " callback",
        )
    steps = [name for name in fields if name in (*STEPS, *SORTING)]
    joins = [name for name in fields if name in JOINS]
    if "slices" in fields:
        check_slices(reader, fields, [*joins, *steps])
    elif "over" in fields:
        forms = [name for name in ("dictionary", "uv") if name in fields]
        check_over(reader, node, fields, [*joins, *steps, *forms])
    elif "dictionary" in fields:
        check_dictionary(
            reader,
            node,
            fields,
            inputs,
            [*joins, *steps, *(name for name in WINDOWED if name in fields)],
        )
    elif "uv" in fields:
        windowed = [name for name in WINDOWED if name in fields and name != "where"]
        check_visitors(
            reader,
            fields,
            inputs,
            [*joins, *steps, *windowed, *(["skew"] if "skew" in fields else [])],
        )
        if "output" not in fields:
            reader.missing(node, "output", "nothing could read the counts; write output: STREAM")
    elif joins:
        for name in [*joins[1:], *steps]:
            reader.bad(
                fields[name],
                f"a computation does one of {joins[0]} and {name}; {_TWO_COMPUTATIONS}",
            )
        if "output" not in fields:
            reader.missing(node, "output", "nothing could read the results; write output: STREAM")
    elif steps:
        _check_steps(reader, node, fields, steps)
    elif is_change_log(fields):
        check_change_log(reader, fields)
        if "output" not in fields:
            reader.missing(node, "output", "nothing could read the results; write output: STREAM")
    elif "window" not in fields and node.is_map:
        reader.bad(
            node,
            "does nothing; write callback: module:Class, or window: {tumbling: 1m} and"
            " aggregate: {hits: count}, or map, flat_map, filter, deduplicate, top, branch, join,"
            " enrich, over, slices, dictionary or uv",
        )


def _check_callback(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    windowed = "window" in fields
    for name in (*OTHER_FORMS, *(() if windowed else WINDOWED)):
        if name in fields:
            form = (
                "with a window"
                if name in WINDOWED
                else "with steps"
                if name in STEPS
                else "without one"
            )
            reader.bad(
                fields[name],
                f"{name} is for computations {form}; a callback does this in its own code",
            )
    if not windowed:
        return
    if "aggregate" in fields:
        reader.bad(
            fields["aggregate"],
            "a callback with a window gets the records themselves (process_window); leave out"
            " aggregate or callback",
        )
    if "accumulation" in fields and fields["accumulation"].value == Accumulation.RETRACTING.value:
        reader.bad(
            fields["accumulation"],
            "the productions of a callback cannot be taken back; write accumulating (every pane has"
            " all records so far) or discarding",
        )


def _check_steps(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], steps: list[str]
) -> None:
    for name in WINDOWED:
        if name in fields:
            fix = (
                "leave out filter and write its condition as where if it is about records, as"
                " having if it is about results"
                if steps == ["filter"]
                else f"{_TWO_COMPUTATIONS}; or write the fields as then if they are made of results"
                if steps == ["map"]
                else _TWO_COMPUTATIONS
            )
            reader.bad(
                fields[name],
                f"{name} is for computations with a window, not for {', '.join(steps)}; {fix}",
            )
    kinds = [name for name in ("deduplicate", "top", "branch") if name in fields]
    others = [name for name in steps if name not in (*kinds, "match")]
    if len(kinds) > 1 or (kinds and others):
        first, second = [*kinds, *others][:2]
        reader.bad(
            fields[second], f"a computation does one of {first} and {second}; {_TWO_COMPUTATIONS}"
        )
    if "branch" in fields:
        if "output" in fields:
            reader.bad(fields["output"], "the streams of branch are the outputs; leave out output")
    elif "output" not in fields:
        reader.missing(node, "output", "nothing could read the results; write output: STREAM")


# --- inputs and outputs ---------------------------------------------------------------------------


def _inputs(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode]
) -> tuple[InputSpec, ...]:
    input_node = fields.get("input")
    if input_node is None or not (input_node.value or input_node.is_scalar):
        if node.is_map:
            reader.missing(node, "input", f"write for example input: {INPUT}")
        return ()
    if isinstance(input_node.value, dict):
        return tuple(
            InputSpec(stream, read_input_key(reader, child))
            for stream, child in input_node.value.items()
            if reader.check_name(child, stream, "stream")
        )
    names = [reader.name(item, "stream") for item in reader.items(input_node)]
    return tuple(InputSpec(stream, OWN_KEY) for stream in dict.fromkeys(names) if stream)


def _outputs(reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode]) -> tuple[str, ...]:
    output_node = fields.get("output")
    if output_node is None:
        if "window" in fields and "callback" not in fields:
            reader.missing(node, "output", "nothing could read the results; write output: STREAM")
        return ()
    if output_node.is_map:
        reader.bad(output_node, "must be the name of a stream or a list of names, not a map")
        return ()
    names = []
    for item in reader.items(output_node):
        name = reader.name(item, "stream")
        if name == DEAD_LETTERS:
            reader.bad(
                item,
                f"{DEAD_LETTERS!r} is filled by the system (with records that fail); choose another"
                " name",
            )
        elif name:
            names.append(name)
    if len(names) > 1 and "window" in fields and "callback" not in fields:
        reader.bad(
            output_node, "a computation with a window has one output; its consumers may be many"
        )
    return tuple(dict.fromkeys(names))
