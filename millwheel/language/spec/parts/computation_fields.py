"""The fields of a computation, declared once: the reader and the JSON Schema follow. Sources have
``on_error``, too."""

from __future__ import annotations

from dataclasses import replace

from millwheel.core.model.failures import DEAD_LETTER, SHARE, STOP, OnError
from millwheel.core.pipeline.spec import ComputationSpec, Delivery, Productions
from millwheel.core.pipeline.work import FiringSpec
from millwheel.core.windows.panes import Accumulation, OutputTime
from millwheel.language.spec.key_notation import KEY
from millwheel.language.spec.parts.aggregates import AGGREGATE, RESULTS, SKEW
from millwheel.language.spec.parts.joins import JOINS
from millwheel.language.spec.parts.rows import OVER
from millwheel.language.spec.parts.slices import SLICES
from millwheel.language.spec.parts.steps import ORDER, SORTING, STEPS
from millwheel.language.spec.parts.visitors import DICTIONARY, UV
from millwheel.language.spec.parts.windows import LATE, TRIGGER, WINDOW
from millwheel.language.spec.reading.nodes import YamlNode
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
    Percent,
)
from millwheel.language.spec.reading.reader import NodeReader

_WORDS = {"dead_letter": DEAD_LETTER, "stop": STOP}
_SHARE = FilePart(
    "{stop_above: 10%, of_at_least: 100}",
    {
        "stop_above": Field(
            "stop_above",
            Percent("to continue whatever fails, write on_error: dead_letter"),
            "the run stops when more than this share of the recent calls failed",
        ),
        "of_at_least": Field(
            "of_at_least", Number(1, 1_000_000_000), "how many calls there must be for that"
        ),
    },
    SHARE,
)


def _read(reader: NodeReader, node: YamlNode) -> OnError:
    if node.is_map:
        return replace(SHARE, **_SHARE.read(reader, node))
    if node.is_scalar and node.text in _WORDS:
        return _WORDS[node.text]
    text = f"must be dead_letter, stop, or for example {_SHARE.example}, not {node.kind()}"
    reader.bad(node, text)
    return SHARE


ON_ERROR = Field(
    "on_error",
    Own((Choice(tuple(_WORDS)), _SHARE), _read),
    "[when failures stop the run](pipeline.md#on_error)",
    default="more than 10% of at least 100",
)
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
"""The guarantee and the size of any computation."""
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
