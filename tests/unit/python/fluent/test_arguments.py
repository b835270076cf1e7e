"""What a pipeline file can say, the methods of Python have as arguments, with the same words; and
they have nothing else."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

import pytest

from millwheel import agg
from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.language.spec.key_notation import KEY
from millwheel.language.spec.parts.computation_fields import COMPUTATION, DIALS
from millwheel.language.spec.parts.joins import ENRICH, JOIN
from millwheel.language.spec.parts.lookups import LOOKUP
from millwheel.language.spec.parts.slices import QUERY
from millwheel.language.spec.parts.streams import STREAM, WATERMARK
from millwheel.language.spec.pipelines import PIPELINE
from millwheel.language.spec.reading.parts import Choice, Field, FilePart, Own, Short
from millwheel.python.fluent.draft import DialOptions
from millwheel.python.fluent.pipeline import Pipeline
from millwheel.python.fluent.streams import Flow, Unkeyed
from millwheel.python.fluent.windowed_streams import GroupedStreams, RankedStreams, WindowedStream

_RESULTS = ("name", "output", "dials")
"""The arguments of every computation that the file has elsewhere."""


class Arguments(NamedTuple):
    """A method, and the fields of the file that its arguments are. ``called``: those with another
    name in Python. ``more``: arguments that are not a field. ``without``: words that are
    refused."""

    method: Callable[..., Any]
    fields: Mapping[str, Field]
    called: Mapping[str, str] = {}
    more: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()


def _of(*names: str, part: str = "") -> dict[str, Field]:
    """Fields of a computation, and those within one of them."""
    inner = COMPUTATION.fields[part].kind if part else FilePart("", {})
    assert isinstance(inner, FilePart)
    return {**{name: COMPUTATION.fields[name] for name in names}, **inner.fields}


def _within(field: Field, prefix: str) -> dict[str, Field]:
    """The fields of what may also be said in short."""
    assert isinstance(field.kind, Short)
    return {f"{prefix}_{name}": each for name, each in field.kind.part.fields.items()}


def _stream() -> dict[str, Field]:
    fields = {name: each for name, each in STREAM.fields.items() if name != "watermark"}
    times = _within(STREAM.fields["timestamp"], "timestamp")
    ids = _within(STREAM.fields["id"], "id")
    return {**fields, **WATERMARK.fields, **times, **ids}


def _top() -> dict[str, Field]:
    methods = ("streams", "computations", "sinks", "queries")
    return {name: each for name, each in PIPELINE.fields.items() if name not in methods}


_AGGREGATE = {"aggregate": "aggregates"}
METHODS = [
    Arguments(Pipeline.__init__, _top(), {"pipeline": "name"}),
    Arguments(
        Pipeline.read, _stream(), {"timestamp_field": "timestamp", "id_field": "id"}, ("stream",)
    ),
    Arguments(Pipeline.query, QUERY.fields, {}, ("name",)),
    Arguments(Unkeyed.key_by, KEY.fields, {}, ("more", "expressions")),
    Arguments(Flow.map, _of("map"), {"map": "function"}),
    Arguments(Flow.flat_map, _of("flat_map"), {"flat_map": "function"}),
    Arguments(Flow.filter, _of("filter"), {"filter": "function"}),
    Arguments(Flow.process, _of("callback", "options", "order_by", "output")),
    Arguments(Flow.branch, _of("branch", "match"), {"branch": "conditions"}),
    Arguments(
        Flow.join,
        {**JOIN.fields, **_of("window", "trigger", "allowed_lateness", "late")},
        {"kind": "how"},
        ("other",),
    ),
    Arguments(Flow.enrich, ENRICH.fields, {"with": "other", "as": "field"}),
    Arguments(Flow.look_up, LOOKUP.fields, {"as": "field"}),
    Arguments(
        Flow.window,
        _of("window", "allowed_lateness", "late", "output_time", "accumulation", "queryable"),
    ),
    Arguments(Flow.slices, _of("aggregate", "where", "late", part="slices"), _AGGREGATE),
    Arguments(Flow.unique_visitors, _of("where", part="uv"), {"as": "field", "emit": "changes"}),
    Arguments(Unkeyed.dictionary, _of(part="dictionary"), {"as": "field"}),
    Arguments(
        GroupedStreams.aggregate,
        _of(
            *("aggregate", "then", "having", "where"),
            *("trigger", "ttl", "accumulation", "queryable"),
        ),
        {**_AGGREGATE, "trigger": "every"},
        without=frozenset({"discarding"}),  # each version has all records of its group
    ),
    Arguments(RankedStreams.deduplicate, _of(part="deduplicate")),
    Arguments(RankedStreams.top, _of(part="top")),
    Arguments(RankedStreams.over, _of("aggregate", "where", part="over"), _AGGREGATE),
    Arguments(WindowedStream.trigger, _of("trigger", "accumulation")),
    Arguments(WindowedStream.aggregate, _of("aggregate", "then", "having", "where"), _AGGREGATE),
    Arguments(WindowedStream.process, _of("callback", "options", "where", "output")),
]


@pytest.mark.parametrize("given", METHODS, ids=lambda each: each.method.__qualname__)
def test_the_arguments_of_a_method_are_the_fields_of_the_file(given: Arguments) -> None:
    parameters = inspect.signature(given.method).parameters
    expected = {given.called.get(name, name) for name in given.fields}
    assert set(parameters) - {"self", *given.more, *_RESULTS} == expected - {*_RESULTS}
    for name, each in given.fields.items():
        written = parameters[given.called.get(name, name)]
        if "Literal" in str(written.annotation) and (words := {*_words(each.kind)}):
            literals = _literals(_hint(given.method, written.annotation))
            assert literals == words - given.without, name


def test_each_field_of_a_computation_is_an_argument_somewhere() -> None:
    said = {name for each in METHODS for name in each.fields}
    elsewhere = {"input", "steps", "slices", "over", "dictionary", "uv", "join", "enrich"}
    elsewhere |= {"deduplicate", "top"}  # methods of their own
    assert {*COMPUTATION.fields} == (said & {*COMPUTATION.fields}) | elsewhere | {*DIALS.fields}


def test_the_options_of_every_computation_are_those_of_the_file() -> None:
    hints = typing.get_type_hints(DialOptions)
    assert {*hints} == {*DIALS.fields}
    for name, annotation in hints.items():
        words = {*_words(DIALS.fields[name].kind)}
        assert _literals(annotation) == words, name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_options_of_an_aggregate_are_arguments_of_its_function(name: str) -> None:
    function, parameters = FUNCTIONS[name], {*inspect.signature(getattr(agg, name)).parameters}
    behind = {"by"} if function.of_rows and "of" in parameters else set()
    assert parameters - {"of", "where"} == {*function.options} - behind


def _words(kind: object) -> Iterator[str]:
    """The words of a choice, or of one among other shapes."""
    if isinstance(kind, Choice):
        yield from kind.words
    for each in kind.shapes if isinstance(kind, Own) else ():
        yield from _words(each)


def _literals(hint: object) -> set[str]:
    if get_origin(hint) is Literal:
        return {*get_args(hint)}
    return {word for part in get_args(hint) for word in _literals(part)}


def _hint(method: Callable[..., Any], annotation: str) -> Any:
    return eval(annotation, {**vars(typing), **inspect.unwrap(method).__globals__})
