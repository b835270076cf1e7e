"""The fields of a computation, declared once: the reader and the JSON Schema follow."""

from __future__ import annotations

from millwheel.core.pipeline.spec import ComputationSpec, Delivery, Productions
from millwheel.core.pipeline.work import FiringSpec
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.language.spec.key_notation import KEY
from millwheel.language.spec.parts.aggregates import AGGREGATE, RESULTS, SKEW
from millwheel.language.spec.parts.branches import ORDER, SORTING
from millwheel.language.spec.parts.joins import JOINS
from millwheel.language.spec.parts.on_error import ON_ERROR
from millwheel.language.spec.parts.slices import SLICES
from millwheel.language.spec.parts.steps import STEPS
from millwheel.language.spec.parts.windows import LATE, TRIGGER, WINDOW
from millwheel.language.spec.ranked.over import OVER
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
)
from millwheel.language.spec.visitors.counts import UV
from millwheel.language.spec.visitors.dictionaries import DICTIONARY

FIRING = FilePart(
    "{accumulation: retracting}",
    {
        "accumulation": Field(
            "accumulation",
            Choice(tuple(kind.value for kind in Accumulation)),
            "[what a window emits when it fires again](pipeline.md#triggers)",
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
            "[how often a record changes state](pipeline.md#guarantees)",
        ),
        "productions": Field(
            "productions",
            Choice(tuple(kind.value for kind in Productions), Productions),
            "[whether results are durable](pipeline.md#guarantees) before they are sent",
        ),
        "max_attempts": Field(
            "max_attempts", Number(1, 1_000), "how often a record whose callback raises is tried"
        ),
        "shards": Field(
            "shards",
            Number(1, 4_096),
            "the number of pieces that the key space is cut into, also for a sink that only this"
            " computation feeds",
            default="two per worker",
        ),
        "standby": Field(
            "standby",
            Number(0, 1),
            "`1`: a second worker [follows each shard](scaling.md#standbys) and takes it over"
            " without replay",
        ),
        "on_error": ON_ERROR,
        "skew": SKEW,
    },
    ComputationSpec("", ()),
)
"""The guarantee and the size of a computation, whatever it does."""
INPUT = "{hits: {key: path}}"
ENDS = {
    "input": Field(
        "",
        Own((Entries(Own((KEY, None)), INPUT, named=True), Items(NameText("stream")))),
        "[streams, each with its key](pipeline.md#input)",
        f"write for example input: {INPUT}",
    ),
    "output": Field(
        "",
        Own((Items(NameText("stream")),)),
        "the stream of its results; a callback may have a list of them, or none",
        default="required but for callbacks",
    ),
}
CALLBACK = {
    "callback": Field(
        "",
        ObjectName("callbacks:Detector"),
        "`module:Class`, derived from `millwheel.Computation`; with a `window` it gets [the records"
        " of a window](pipeline.md#callbacks-with-a-window)",
    ),
    "options": Field(
        "",
        Entries(Anything(), "{threshold: 4}"),
        "arguments of the callback's constructor",
        default="none",
    ),
}
WINDOWED = {
    "window": WINDOW,
    "aggregate": AGGREGATE,
    **RESULTS,
    "where": Field(
        "",
        ExpressionText("type == 'click'"),
        "an [expression](expressions.md); records that do not satisfy it are left out",
        default="all",
    ),
    "trigger": TRIGGER,
    **FIRING.fields,
    "queryable": Field(
        "",
        Choice(("latest",)),
        "`latest`: the newest result of each key is kept to be [asked](queries.md#windows) (only"
        " with `aggregate`)",
        default="not kept",
    ),
}
OF_GROUPS = {
    "ttl": Field(
        "",
        Duration(1),
        "[how long a group is kept](pipeline.md#change-logs) without a record (event time), in a"
        " change log",
        default="for ever",
    ),
}
"""The fields of a change log alone."""
OTHER_FORMS = {
    **STEPS,
    **SORTING,
    **JOINS,
    "slices": Field(
        "",
        SLICES,
        "[aggregates per slice of time](queries.md#slices), kept to be asked for any window",
    ),
    "over": Field(
        "",
        OVER,
        "[each record with aggregates](pipeline.md#over) of itself and of those before it",
    ),
    "dictionary": Field(
        "", DICTIONARY, "[a whole number for each value of a field](pipeline.md#dictionary)"
    ),
    "uv": Field("", UV, "[unique visitors](unique-visitors.md) of the day so far, exactly"),
}
COMPUTATION = FilePart(
    "{input: {hits: {key: path}}, callback: callbacks:Detector, output: alerts}",
    {
        **ENDS,
        **CALLBACK,
        **OTHER_FORMS,
        "order_by": ORDER,
        **WINDOWED,
        **OF_GROUPS,
        **DIALS.fields,
    },
)
