"""The fields of a computation, declared once: the reader and the JSON Schema follow."""

from __future__ import annotations

from millwheel.core.pipeline.spec import ComputationSpec, Delivery, Productions
from millwheel.core.pipeline.work import FiringSpec
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.language.spec.parts.aggregates import AGGREGATE, SKEW
from millwheel.language.spec.parts.branches import ORDER, SORTING
from millwheel.language.spec.parts.joins import JOINS
from millwheel.language.spec.parts.on_error import ON_ERROR
from millwheel.language.spec.parts.slices import SLICES
from millwheel.language.spec.parts.steps import STEPS
from millwheel.language.spec.parts.windows import LATE, TRIGGER, WINDOW
from millwheel.language.spec.reading.parts import (
    Anything,
    Choice,
    Duration,
    Entries,
    ExpressionText,
    Field,
    FilePart,
    Items,
    NameText,
    Number,
    ObjectName,
    Own,
    Text,
)
from millwheel.language.spec.visitors.counts import UV
from millwheel.language.spec.visitors.dictionaries import DICTIONARY

FIRING = FilePart(
    "{accumulation: retracting}",
    {
        "accumulation": Field(
            "accumulation",
            Choice(tuple(kind.value for kind in Accumulation)),
            "what a window emits when it fires again",
        ),
        "allowed_lateness": Field(
            "allowed_lateness_us", Duration(), "how long a window stays open for late records"
        ),
        "output_time": Field(
            "output_time",
            Choice(tuple(kind.value for kind in OutputTime)),
            "the timestamp of results",
        ),
        "late": LATE,
    },
    FiringSpec(),
)
DIALS = FilePart(
    "{shards: 16}",
    {
        "delivery": Field(
            "delivery",
            Choice(tuple(kind.value for kind in Delivery), Delivery),
            "how often a record changes state",
        ),
        "productions": Field(
            "productions",
            Choice(tuple(kind.value for kind in Productions), Productions),
            "whether results are durable before they are sent",
        ),
        "max_attempts": Field(
            "max_attempts", Number(1, 1_000), "how often a record whose callback raises is tried"
        ),
        "shards": Field(
            "shards", Number(1, 4_096), "the number of pieces that the key space is cut into"
        ),
        "standby": Field(
            "standby", Number(0, 1), "1: a second worker follows each shard, to take it over"
        ),
        "on_error": ON_ERROR,
        "skew": SKEW,
    },
    ComputationSpec("", ()),
)
"""The guarantee and the size of a computation, whatever it does."""
KEY = FilePart(
    "{key: path}",
    {"key": Field("", Own((Items(Text("path")),)), "fields, or a function of yours")},
)
INPUT = "{hits: {key: path}}"
ENDS = {
    "input": Field(
        "",
        Own((Entries(Own((KEY, None)), INPUT, named=True), Items(NameText("stream")))),
        "streams, each with its key",
        f"write for example input: {INPUT}",
    ),
    "output": Field(
        "", Own((Items(NameText("stream")),)), "the stream, or streams, of its results"
    ),
}
CALLBACK = {
    "callback": Field(
        "",
        ObjectName("callbacks:Detector"),
        "module:Class, derived from millwheel.Computation",
    ),
    "options": Field(
        "",
        Entries(Anything(), "{threshold: 4}"),
        "arguments of the callback's constructor",
    ),
}
WINDOWED = {
    "window": WINDOW,
    "aggregate": AGGREGATE,
    "where": Field(
        "", ExpressionText("type == 'click'"), "records that do not satisfy it are left out"
    ),
    "trigger": TRIGGER,
    **FIRING.fields,
    "queryable": Field(
        "",
        Choice(("latest",)),
        "latest: the newest result of each key is kept to be asked",
    ),
}
OTHER_FORMS = {
    **STEPS,
    **SORTING,
    **JOINS,
    "slices": Field("", SLICES, "aggregates per slice of time, kept to be asked"),
    "dictionary": Field("", DICTIONARY, "a whole number for each value of a field"),
    "uv": Field("", UV, "unique visitors of the day so far, exactly"),
}
COMPUTATION = FilePart(
    "{input: {hits: {key: path}}, callback: callbacks:Detector, output: alerts}",
    {
        **ENDS,
        **CALLBACK,
        **OTHER_FORMS,
        "order_by": ORDER,
        **WINDOWED,
        **DIALS.fields,
    },
)
