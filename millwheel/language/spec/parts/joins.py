"""``join:`` and ``enrich:`` of a computation.

join: left
join: {kind: left, ttl: 7d}
enrich: {with: prices, missing: drop}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from millwheel.core.pipeline.keys import KeyKind
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.tables import COPIES, MOST_COPIES
from millwheel.core.pipeline.work import (
    BoundSpec,
    BroadcastSpec,
    EnrichSpec,
    FiringSpec,
    IntervalJoinSpec,
    JoinKind,
    JoinSpec,
    Missing,
    RegularJoinSpec,
    WindowSpec,
)
from millwheel.core.windows.panes import Accumulation
from millwheel.language.spec.key_notation import key_names
from millwheel.language.spec.parts.aggregates import WINDOW_FIELDS
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.parts import (
    ByteSize,
    Choice,
    Duration,
    Entries,
    ExpressionText,
    Field,
    FilePart,
    Flag,
    Items,
    NameText,
    Number,
    Own,
    Short,
    Text,
)
from millwheel.language.spec.reading.problems import unknown
from millwheel.language.spec.reading.reader import NodeReader

_TWO = "input: {orders: {key: product}, prices: {key: product}}"
MISSING = Field(
    "missing",
    Choice(tuple(kind.value for kind in Missing), Missing),
    "the treatment of a record that finds nothing: `keep` (`null` in its place), `drop` (counted as"
    " `unmatched`) or `dead_letter`",
)
BROADCAST_BYTES = 64_000_000
"""How large a table may be that each worker holds whole, unless another limit is given: some 200 MB
of a worker with short rows, and a second or two to read it again after a restart."""
_BROADCAST = FilePart(
    "{limit: 64MB}",
    {
        "limit": Field(
            "limit_bytes",
            ByteSize(1_000, 16 << 30),
            "how large the table may be, by the encoded keys and rows; the run stops where it is"
            " larger",
            default="64MB",
        ),
        "copies": Field(
            "copies",
            Number(2, MOST_COPIES),
            "of a table that goes on: how many copies of it there are. Each is in one shard, so"
            " that more shards have nothing to do",
            default=str(COPIES),
        ),
    },
    BroadcastSpec(BROADCAST_BYTES),
)


def _read_broadcast(reader: NodeReader, node: YamlNode) -> BroadcastSpec | None:
    """Whether a table is held whole; ``true``, ``false`` or its limit."""
    if node.is_map:
        return BroadcastSpec(**{"limit_bytes": BROADCAST_BYTES, **_BROADCAST.read(reader, node)})
    if type(node.value) is not bool:
        reader.bad(
            node, f"must be true, false or a limit such as {{limit: 64MB}}, not {node.kind()}"
        )
    return BroadcastSpec(BROADCAST_BYTES) if node.value is True else None


ENRICH = FilePart(
    "{with: prices}",
    {
        "with": Field(
            "stream",
            Own((NameText("stream"),), Text("prices").read),
            "the input whose records are added; each of them is a *version* for its key",
            "which input is added; write for example {with: prices}",
        ),
        "as": Field(
            "name",
            Text("price"),
            "the name of the field that gets them",
            default="that of the stream",
        ),
        "missing": MISSING,
        "as_of": Field(
            "waits",
            Choice(("timestamp", "arrival"), lambda word: word == "timestamp"),
            "`timestamp`: the latest version as of the record's own time. The record waits until"
            " the watermark has passed that, so results do not depend on what arrived first. A"
            " version counts for records of its own time. `arrival`: the arrived version with the"
            " latest time; nothing waits",
        ),
        "broadcast": Field(
            "broadcast",
            Own((Flag(), _BROADCAST), _read_broadcast),
            "the [whole table](joins.md#broadcast) is in each worker, or in some copies if it goes"
            " on, and the other input is not divided by the key: for small tables; `{limit: 64MB}`"
            " says how large one may be, by its encoded keys and rows",
            default="`false`",
        ),
    },
    EnrichSpec("", ""),
)
_EXAMPLE = "{orders: 7d, prices: never}"
_LIFE = Duration(1, never=True)
_LIVES = Entries(_LIFE, _EXAMPLE, named=True)


def _life_of(node: YamlNode) -> Duration | Entries:
    return _LIVES if node.is_map else _LIFE


_BOUNDS = Items(ExpressionText("orders.expires"))
_WITHIN = FilePart(
    "{before: 10s, after: 0s}",
    {
        "before": Field(
            "before", Duration(), "how far the second record may lie before the first", default="0s"
        ),
        "after": Field("after", Duration(), "how far behind it", default="0s"),
        "from": Field(
            "from", _BOUNDS, "a time that a record names; its partner does not lie before it"
        ),
        "until": Field(
            "until",
            _BOUNDS,
            "a time that a record names, in place of `after` (of the first input) or `before`; its"
            " partner does not lie behind it",
        ),
    },
)
JOIN = FilePart(
    "{kind: left, ttl: 7d}",
    {
        "kind": Field(
            "kind",
            Choice(
                tuple(kind.value for kind in JoinKind),
                JoinKind,
                {"full": "a full join is called outer; write outer"},
            ),
            "`inner`, `left`, `right`, `outer`, `semi` or `anti`",
            "which records come without a partner; write for example kind: left",
        ),
        "ttl": Field(
            "ttl",
            Own((_LIFE, _LIVES), lambda reader, node: _life_of(node).read(reader, node)),
            "without a window: a record is forgotten so long after its last change (event time);"
            f" also one for each input, `{_EXAMPLE}`",
            default="never",
        ),
        "within": Field(
            "within",
            _WITHIN,
            "without a window: [how far apart](joins.md#within-an-interval) the"
            " times of a pair may be",
            default="any",
        ),
    },
)
"""The settings of a join."""
JOINS = {
    "join": Field(
        "",
        Short("kind", JOIN),
        "[pairs](pipeline.md#join) of the records of two inputs or more, in a window or whenever"
        " they come: which come without a partner",
    ),
    "enrich": Field(
        "",
        Own(("enrich",)),
        "[the latest record of the key in another stream](pipeline.md#enrich), or the answer"
        " of [another system](lookups.md)",
    ),
}
"""The fields of a computation that brings two things together."""
_BOUND = "write fields of one input with its name, for example until: orders.expires"
_ANOTHER_AS = "choose another name, for example as: found"
_NOT_FOR_JOIN = ("aggregate", "where", "output_time", "queryable")
_OF_WINDOWS = ("trigger", "allowed_lateness")
"""Options that let a window fire more than once."""


def read_join(
    reader: NodeReader, node: YamlNode, fields: Mapping[str, YamlNode], inputs: Sequence[InputSpec]
) -> JoinKind | RegularJoinSpec | IntervalJoinSpec | None:
    """The kind of a join in windows, or a join without; None if there is none."""
    join_node = fields.get("join")
    if join_node is None:
        return None
    windowed = "window" in fields
    for name in (*_NOT_FOR_JOIN, *(() if windowed else (*_OF_WINDOWS, "accumulation"))):
        if name in fields:
            reader.bad(fields[name], _why_not(name, windowed))
    if windowed:
        _check_again(reader, fields)
    _check_window(reader, fields)
    _check_names(reader, join_node, inputs, WINDOW_FIELDS if windowed else ())
    values = JOINS["join"].value(reader, join_node, {})
    kind: JoinKind = values.get("kind", JoinKind.INNER)
    _check_inputs(reader, join_node, inputs, _why_two(kind, windowed, values))
    if not windowed:
        _check_weak(reader, fields.get("productions"))
        if "within" in values:
            return _interval(reader, join_node, kind, values["within"], inputs)
        return RegularJoinSpec(kind, _lives(reader, join_node, values.get("ttl"), inputs))
    for name in ("ttl", "within"):
        if name in values:
            reader.bad(
                join_node.value[name],
                f"a window keeps its records until it closes; leave out {name}, or leave out"
                " window",
            )
    return kind


def _why_two(kind: JoinKind, windowed: bool, values: Mapping[str, Any]) -> str:
    """Why a join takes no third input; empty if it does."""
    chain = "join the others in a computation before or behind it"
    if "within" in values and not windowed:
        return f"a join within an interval takes two inputs; {chain}"
    if kind is JoinKind.RIGHT:
        return "of several inputs the first is kept: write left, with the input to keep first"
    if not kind.in_pairs:
        return f"{kind.value} takes two inputs; {chain}"
    if kind is not JoinKind.INNER and values.get("ttl") is not None and not windowed:
        return (
            f"{kind.value} takes back nulls in place of rows, and could not find those that it"
            f" emitted for forgotten rows; leave out ttl, or {chain}"
        )
    return ""


def _check_weak(reader: NodeReader, node: YamlNode | None) -> None:
    """Which record makes a pair depends on which came first."""
    if node is not None and node.value == "weak":
        reader.bad(
            node,
            "weak productions leave before they are durable, and after a crash the other record of"
            " a pair could make it, so that it is lost or counted twice; leave it out",
        )


def _why_not(name: str, windowed: bool) -> str:
    behaviour = (
        "passes on records as they came, at the end of their window"
        if windowed
        else "without a window emits at once what each record changes"
    )
    return (
        f"a join {behaviour}: leave out {name}, and filter or aggregate in a computation before or"
        " behind it"
    )


def _check_again(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    """Check a join whose windows may fire more than once."""
    if "accumulation" in fields:
        reader.bad(
            fields["accumulation"],
            "a join whose window fires again emits what has changed since: new pairs, and what it"
            " takes back; leave out accumulation",
        )
    if not any(name in fields for name in _OF_WINDOWS):
        return
    _check_weak(reader, fields.get("productions"))
    late = fields.get("late")
    if late is not None and late.value == "refire":
        reader.bad(
            late,
            "refire would pair late records with each other alone; leave it out: allowed_lateness"
            " pairs them with all records of their window",
        )


def join_in_windows(kind: JoinKind, window: WindowSpec, firing: FiringSpec) -> JoinSpec:
    """The work of a join in windows. If they fire again, they must keep what they have emitted."""
    join = JoinSpec(kind=kind, window=window, firing=firing)
    if not join.changes:
        return join
    mode = Accumulation.RETRACTING.value
    return replace(join, firing=replace(firing, accumulation=mode))


def _interval(
    reader: NodeReader,
    node: YamlNode,
    kind: JoinKind,
    given: Mapping[str, Any],
    inputs: Sequence[InputSpec],
) -> IntervalJoinSpec:
    """A join of records near each other in time. Records are kept as long as a partner may come."""
    if "ttl" in node.value:
        reader.bad(
            node.value["ttl"],
            "within says how long records are kept: as long as a partner may come; leave out ttl",
        )
    streams = [each.stream for each in inputs]
    froms, untils = (
        tuple(
            BoundSpec(stream, text)
            for text in given.get(name, ())
            if (stream := _owner(reader, node.value["within"].value[name], text, streams))
        )
        for name in ("from", "until")
    )
    named = {each.stream for each in untils}
    before, after = (
        given.get(name, None if stream in named else 0)
        for name, stream in zip(("before", "after"), (streams[-1], streams[0]), strict=True)
    )
    return IntervalJoinSpec(kind, before, after, froms, untils)


def _owner(reader: NodeReader, node: YamlNode, text: str, streams: Sequence[str]) -> str:
    """The input whose records have a bound; "" for none, which is noted."""
    named = reader.language.compile(text).fields
    for name in named:
        if name not in streams:
            reader.bad(node, f"{unknown('input', name, streams, 'Inputs')}; {_BOUND}")
            return ""
    if len(named) != 1:
        reader.bad(
            node,
            f"{text} is computed of {len(named) or 'no'} inputs, and each record has its own bound"
            f" before its partner is known; {_BOUND}",
        )
        return ""
    return named[0]


def _lives(
    reader: NodeReader, node: YamlNode, given: Any, inputs: Sequence[InputSpec]
) -> tuple[int | None, ...]:
    """How long the records of each input are kept, in µs."""
    if not isinstance(given, dict):
        return tuple(given for _ in inputs)
    streams = [each.stream for each in inputs]
    for name, child in node.value["ttl"].value.items():
        if name not in streams:
            reader.bad(child, unknown("input", name, streams, "Inputs"))
    return tuple(given.get(stream) for stream in streams)


def read_enrich(
    reader: NodeReader, fields: Mapping[str, YamlNode], inputs: Sequence[InputSpec]
) -> EnrichSpec | None:
    """The enrichment of a stream; None if there is none, or it cannot be read."""
    enrich_node = fields.get("enrich")
    if enrich_node is None or is_lookup(enrich_node):
        return None
    if "window" in fields:
        reader.bad(
            fields["window"],
            "enrich handles one record at a time and has no windows; leave out window",
        )
    if "order_by" in fields:
        reader.bad(
            fields["order_by"],
            "as_of decides which version a record gets, and as_of: timestamp keeps their order;"
            " leave out order_by",
        )
    parts = ENRICH.nodes(reader, enrich_node)
    if "with" not in parts:
        return None
    _check_inputs(reader, enrich_node, inputs, f"write {_TWO}")
    values = ENRICH.values(reader, parts)
    stream, streams = values.get("stream"), [each.stream for each in inputs]
    if stream is None or stream not in streams:
        if stream is not None:
            reader.bad(parts["with"], unknown("input", stream, streams, "Inputs"))
        return None
    name = values.setdefault("name", stream)
    plain = (each.key for each in inputs if each.stream != stream and each.key.plain)
    keys = [field for key in plain for field in key.names]
    if name in keys:
        reader.bad(
            parts.get("as", enrich_node),
            f"{name!r} would replace the key of the records; {_ANOTHER_AS}",
        )
    return EnrichSpec(**values)


def is_lookup(node: YamlNode) -> bool:
    """Whether ``enrich`` asks another system instead of a stream."""
    return isinstance(node.value, dict) and "lookup" in node.value


def key_fields(node_input: InputSpec) -> tuple[str, ...]:
    """The fields that stand for an input's key; none for a function or the producer's key."""
    return node_input.key.fields


def keyless(computation: ComputationSpec, pipeline: PipelineSpec) -> str:
    """The input of a join or enrichment whose records have their partition as key; empty if there
    is none."""
    if not isinstance(computation.work, JoinSpec | RegularJoinSpec | IntervalJoinSpec | EnrichSpec):
        return ""
    own = {
        stream.name
        for stream in pipeline.streams
        if stream.source is not None and stream.source.kind != "injection" and not stream.id
    }
    inputs = [each.stream for each in computation.inputs if each.key.kind is KeyKind.RECORD]
    return next((stream for stream in inputs if stream in own), "")


def _check_inputs(
    reader: NodeReader, node: YamlNode, inputs: Sequence[InputSpec], why_two: str
) -> None:
    """``why_two``: the remedy for a third input; empty where it is allowed."""
    if len(inputs) < 2:
        reader.bad(node, f"takes two inputs, not {len(inputs)}; write {_TWO}")
        return
    if len(inputs) > 2 and why_two:
        reader.bad(node, f"takes two inputs, not {len(inputs)}: {why_two}")
        return
    first = inputs[0]
    for node_input in inputs:
        if node_input.key.nulls:
            reader.bad(
                node,
                f"matches records by equal keys, and a null equals no other; leave out null_key of"
                f" {node_input.stream}, or fill the field in before, for example with coalesce",
            )
    for other in inputs[1:]:
        _check_keys(reader, node, first, other)


def _check_keys(reader: NodeReader, node: YamlNode, first: InputSpec, second: InputSpec) -> None:
    if (first.key.kind is KeyKind.ALL) != (second.key.kind is KeyKind.ALL):
        reader.bad(
            node,
            "matches records by equal keys, and key: all of one input equals no key of the other;"
            " write it for both, or for none",
        )
    sizes = len(key_fields(first)), len(key_fields(second))
    if 0 not in sizes and sizes[0] != sizes[1]:
        reader.bad(
            node,
            f"matches records by equal keys, but {first.stream} has a key of {_count(sizes[0])},"
            f" {second.stream} of {_count(sizes[1])}; give both keys the same number of fields, in"
            " the same order",
        )


def _count(fields: int) -> str:
    return "one field" if fields == 1 else f"{fields} fields"


def _check_window(reader: NodeReader, fields: Mapping[str, YamlNode]) -> None:
    window = fields.get("window")
    emit = None if window is None or not window.is_map else window.value.get("emit")
    if emit is not None and emit.value == "changes":
        reader.bad(
            emit,
            "a join needs the records of whole windows, and emit: changes keeps none; leave out"
            " emit",
        )
    elif emit is not None and emit.value == "empty":
        reader.bad(
            emit,
            "a join makes pairs of records, and a window without records has none; leave out emit",
        )


def _check_names(
    reader: NodeReader, node: YamlNode, inputs: Sequence[InputSpec], bounds: Sequence[str]
) -> None:
    """A result has the key, the bounds of the window, and each record under the name of its
    stream."""
    row_fields = [*key_names(tuple(inputs)), *bounds]
    for node_input in inputs:
        if node_input.stream in row_fields:
            reader.bad(
                node,
                f"a result has the fields {', '.join(row_fields)}, and each record under the name"
                f" of its stream, but a stream is called {node_input.stream!r}; give the stream"
                " another name",
            )
