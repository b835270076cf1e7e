"""The ``computations:`` part of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millwheel.core.aggregate_functions import FUNCTIONS, make_aggregator
from millwheel.core.expressions import compile_expression
from millwheel.core.panes import Accumulation, OutputTime
from millwheel.core.spec import (
    DEAD_LETTERS,
    AggregateSpec,
    ComputationSpec,
    Delivery,
    InputSpec,
    KeyKind,
    KeySpec,
    Productions,
    WindowSpec,
)
from millwheel.core.trigger_trees import trigger_from_tree
from millwheel.core.window_specs import window_from_spec
from millwheel.spec.document import Section, hint, kind_of

_FIELDS = (
    "input output callback options window aggregate where trigger accumulation allowed_lateness output_time late "
    "delivery productions max_attempts shards"
).split()
_WINDOW_ONLY = ("aggregate", "trigger", "accumulation", "allowed_lateness", "output_time", "late", "where")


def read_computation(name: str, section: Section) -> ComputationSpec:
    """One computation, with every problem noted at its line."""
    section.allow(*_FIELDS)
    callback = section.text("callback")
    if bool(callback) == ("aggregate" in section):
        section.problems.add(
            section.line, section.place, "needs either a callback (callback: module:Class) or an aggregation (window: and aggregate:)"
        )
    if callback and ":" not in callback:
        section.bad("callback", f"{callback!r} must be module:Class")
    for field in _WINDOW_ONLY:
        if callback and field in section:
            section.bad(field, f"{field} belongs to an aggregation; a callback does this in its own code")
    spec = ComputationSpec(
        name=name,
        inputs=_inputs(section),
        outputs=_outputs(section, bool(callback)),
        callback=callback,
        options=dict(section.section("options").data),
        window=_window(section) if "aggregate" in section or "window" in section else None,
        aggregates=_aggregates(section),
        condition=_expression(section, "where"),
        trigger=_trigger(section),
        accumulation=section.choice("accumulation", [a.value for a in Accumulation], "discarding"),
        allowed_lateness_us=section.duration("allowed_lateness", 0) or 0,
        output_time=section.choice("output_time", [t.value for t in OutputTime], "end_of_window"),
        late=_late(section),
        delivery=Delivery(section.choice("delivery", [d.value for d in Delivery], "exactly_once")),
        productions=Productions(section.choice("productions", [p.value for p in Productions], "strong")),
        max_attempts=section.number("max_attempts", 3, least=1) or 3,
        shards=section.number("shards", None, least=1),
        where=f"{section.problems.file}:{section.line}",
    )
    return spec


def _inputs(section: Section) -> tuple[InputSpec, ...]:
    given = section.get("input")
    if given is None:
        section.problems.add(section.line, section.place, "has no input; write input: {STREAM: {key: FIELD}}")
        return ()
    if isinstance(given, Mapping):
        inner = section.section("input")
        return tuple(InputSpec(str(stream), _key(inner, stream)) for stream in given)
    return tuple(InputSpec(stream, KeySpec(KeyKind.RECORD)) for stream in section.names("input"))


def _key(inner: Section, stream: str) -> KeySpec:
    section = inner.section(stream)
    section.allow("key")
    key = section.get("key")
    if key is None:
        return KeySpec(KeyKind.RECORD)
    if isinstance(key, list) and key and all(isinstance(part, str) for part in key):
        return KeySpec(KeyKind.FIELDS, tuple(key)) if len(key) > 1 else KeySpec(KeyKind.FIELD, tuple(key))
    if not isinstance(key, str) or not key:
        section.bad("key", f"must be a field, a list of fields, or module:function, not {kind_of(key)}")
        return KeySpec(KeyKind.RECORD)
    return KeySpec(KeyKind.FUNCTION if ":" in key else KeyKind.FIELD, (key,))


def _outputs(section: Section, callback: bool) -> tuple[str, ...]:
    names = section.names("output")
    if not names and not callback:
        section.problems.add(section.line, section.place, "has no output; name the stream of its results: output: NAME")
    if DEAD_LETTERS in names:
        section.bad("output", f"{DEAD_LETTERS!r} is filled by the system; choose another name")
    return names


def _window(section: Section) -> WindowSpec | None:
    given = section.section("window")
    if not given.data:
        section.problems.add(section.line, section.place, "an aggregation needs a window, for example window: {tumbling: 1m}")
        return None
    spec = _window_of(given)
    if spec is not None and spec.kind != "custom":
        try:
            window_from_spec(spec)
        except (ValueError, TypeError) as ex:
            section.bad("window", str(ex))
            return None
    return spec


_WINDOWS: dict[str, tuple[str, ...]] = {
    "tumbling": ("offset", "time_zone"),
    "sliding": ("every", "offset", "emit"),
    "session": (),
    "global": (),
    "count": (),
    "cumulative": ("every", "time_zone"),
    "custom": (),
}


def _window_of(given: Section) -> WindowSpec | None:
    kind = next((kind for kind in _WINDOWS if kind in given), None)
    if kind is None:
        first = next(iter(given.data))
        given.bad(first, f"unknown window {first!r}{hint(first, _WINDOWS)}")
        return None
    given.allow(kind, *_WINDOWS[kind])
    options: dict[str, Any] = {}
    if kind in ("tumbling", "sliding", "cumulative"):
        options["size_us"] = given.duration(kind, 60_000_000)
    if kind == "session":
        options["gap_us"] = given.duration(kind, 60_000_000)
    if kind == "count":
        options["count"] = given.number(kind, 1, least=1)
    if kind == "custom":
        options["factory"] = given.text(kind)
    if kind in ("sliding", "cumulative"):
        if "every" not in given:
            given.bad(kind, f"a {kind} window needs every:, how often it outputs, for example every: 1m")
        options["every_us"] = given.duration("every", options["size_us"])
    if "offset" in given:
        options["offset_us"] = given.duration("offset", 0)
    if "time_zone" in given:
        options["time_zone"] = given.text("time_zone")
    if "emit" in given:
        options["changes"] = given.choice("emit", ("changes", "every"), "every") == "changes"
    return WindowSpec(kind, options)


def _aggregates(section: Section) -> tuple[AggregateSpec, ...]:
    inner = section.section("aggregate")
    return tuple(found for name in inner.data if (found := _aggregate(inner, str(name))) is not None)


def _aggregate(inner: Section, name: str) -> AggregateSpec | None:
    given = inner.get(name)
    if isinstance(given, str):
        return _named_aggregate(inner, name, AggregateSpec(name, given))
    if not isinstance(given, Mapping) or not given:
        inner.bad(name, f"must be a function, such as count, or {{sum: FIELD}}, not {kind_of(given)}")
        return None
    section = inner.section(name)
    function = str(next(iter(section.data)))
    argument, condition, options = section.get(function), "", dict(section.data)
    del options[function]
    if isinstance(argument, Mapping):
        options.update(argument)
        argument = options.pop("of", None)
    if "where" in options:
        condition = str(options.pop("where"))
        _check_expression(inner, name, condition)
    text = "" if argument is None else str(argument)
    if text and not text.isidentifier():
        _check_expression(inner, name, text)
    return _named_aggregate(inner, name, AggregateSpec(name, function, text, condition, options))


def _named_aggregate(inner: Section, name: str, spec: AggregateSpec) -> AggregateSpec | None:
    if spec.function not in FUNCTIONS and ":" not in spec.function:
        inner.bad(name, f"unknown function {spec.function!r}{hint(spec.function, FUNCTIONS)}, or module:Class of your own")
        return None
    try:
        needs = ":" not in spec.function and make_aggregator(spec.function, spec.options).needs_argument
    except ValueError as ex:
        inner.bad(name, str(ex))
        return None
    if needs and not spec.argument:
        inner.bad(name, f"{spec.function} needs a field or an expression; write {{{spec.function}: FIELD}}")
        return None
    return spec


def _expression(section: Section, name: str) -> str:
    text = section.text(name)
    if text:
        _check_expression(section, name, text)
    return text


def _check_expression(section: Section, name: str, text: str) -> None:
    try:
        compile_expression(text)
    except ValueError as ex:
        section.bad(name, str(ex))


def _trigger(section: Section) -> Any:
    tree = section.get("trigger")
    if tree is not None:
        try:
            trigger_from_tree(tree, lambda name: name)
        except (ValueError, TypeError) as ex:
            section.bad("trigger", str(ex))
    return tree


def _late(section: Section) -> str:
    late = section.text("late", "drop")
    if late not in ("drop", "refire") and not (late.startswith("side:") and len(late) > 5):
        section.bad("late", f"unknown value {late!r}; write drop, refire, or side:STREAM")
        return "drop"
    return late
