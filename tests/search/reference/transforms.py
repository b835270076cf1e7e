"""What has no window: steps, branches, removal of copies, enrichment.

They are written as callbacks, because all of them have the tries and dead letters of callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from millwheel.api import Computation, MapState, ValueState
from millwheel.connect.lookups.base import NoAnswer
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.codec import encode_value
from millwheel.core.model.records import Record
from millwheel.core.pipeline.graph import takes_retractions
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    BranchesSpec,
    CallbackSpec,
    DeduplicateSpec,
    DictionarySpec,
    EnrichSpec,
    IntervalJoinSpec,
    LookupSpec,
    Missing,
    OverSpec,
    RegularJoinSpec,
    StepKind,
    StepSpec,
    StepsSpec,
    TopSpec,
)
from millwheel.core.windows.panes import as_retraction, retracted
from millwheel.errors import RecordError
from tests.search.questions import answer_of
from tests.search.reference.calls import CallNode
from tests.search.reference.engine import World, plain
from tests.search.reference.kept_joins import kept_join
from tests.search.reference.lookback import looking_back
from tests.search.reference.near_joins import near_join

_content = msgspec.msgpack.Encoder(order="deterministic").encode


def _read(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        if name in value:
            return value[name]
        there = ", ".join(sorted(map(str, value))) or "no fields"
    elif value is None:
        raise RecordError(
            f"null has no field {name!r}; where it may be null, write `x.{name} if x is not null"
            " else …`, or nulls: sql beside streams"
        )
    elif hasattr(value, name):
        return getattr(value, name)
    else:
        there = (
            ", ".join(getattr(value, "__struct_fields__", ()))
            or f"no fields, being {type(value).__name__}"
        )
    raise RecordError(f"the record has no field {name!r}; it has {there}")


class Steps(Computation):
    """Each step on each of the values that the one before gave."""

    def __init__(
        self, outputs: tuple[str, ...], steps: Sequence[StepSpec], load: Callable[[str], Any]
    ) -> None:
        self._outputs = outputs
        self._calls = [(step, _call(step, load)) for step in steps]

    def process_record(self, ctx: Any, record: Record) -> None:
        back = as_retraction(record.value)
        values = [record.value if back is None else back.value]
        for step, call in self._calls:
            values = [made for value in values for made in self._apply(step, call, value)]
        for value in values:
            for stream in self._outputs:
                ctx.produce(stream, value if back is None else retracted(value))

    def _apply(self, step: StepSpec, call: Callable[[Any], Any], value: Any) -> list[Any]:
        made = call(value)
        if step.kind is StepKind.FILTER:
            return [value] if made else []
        if step.kind is StepKind.MAP:
            return [made]
        if step.fields:
            [(name, entries)] = made.items()
            return [{**value, name: entry} for entry in entries]
        if not isinstance(made, Iterable) or isinstance(made, str | bytes | dict):
            raise RecordError(
                f"gave {made!r:.80}; it must give a list (or another iterable) of values"
            )
        return list(made)


def _call(step: StepSpec, load: Callable[[str], Any]) -> Callable[[Any], Any]:
    if step.function:
        return load(step.function)  # type: ignore[no-any-return]
    if step.expression:
        return compile_expression(step.expression).evaluate
    fields = {name: compile_expression(text) for name, text in step.fields.items()}
    return lambda value: {name: expression.evaluate(value) for name, expression in fields.items()}


class Branches(Computation):
    """The first branch that takes a record, or all that do."""

    def __init__(self, spec: BranchesSpec) -> None:
        self._spec = spec

    def process_record(self, ctx: Any, record: Record) -> None:
        back = as_retraction(record.value)
        asked = record.value if back is None else back.value
        taken: list[str] = []
        for branch in self._spec.branches:
            if branch.condition and (self._spec.match_all or not taken):
                if compile_expression(branch.condition).evaluate(asked):
                    taken.append(branch.stream)
        taken = taken or [branch.stream for branch in self._spec.branches if not branch.condition]
        for stream in taken:
            ctx.produce(stream, record.value)
        if not taken:
            ctx.count("unmatched")


def copies_of(spec: DeduplicateSpec, outputs: tuple[str, ...]) -> Computation:
    """Of equal records of a key, the first and those that are ``within`` later than it."""

    class Copies(Computation):
        seen: Any = MapState(int, ttl=spec.within_us)

        def process_record(self, ctx: Any, record: Record) -> None:
            equal = (
                [_read(record.value, name) for name in spec.fields] if spec.fields else record.value
            )
            identity = encode_value(equal)
            if identity in self.seen:
                ctx.count("deduplicated")
                return
            self.seen[identity] = record.timestamp
            for stream in outputs:
                ctx.produce(stream, record.value)

    return Copies()


class FirstRows(Computation):
    """All rows that came and were not taken back; after each record, all of them in order."""

    kept: Any = ValueState(list)
    owed: Any = ValueState(list)

    def __init__(self, spec: TopSpec, outputs: tuple[str, ...], takes_back: bool) -> None:
        self._spec = spec
        self._outputs = outputs
        self._takes_back = takes_back

    def process_record(self, ctx: Any, record: Record) -> None:
        back = as_retraction(record.value)
        row = plain(record.value if back is None else back.value)
        values = [self._value(row, text) for text in self._spec.by]
        entry = [values, 0 if self._takes_back else record.timestamp, row]
        kept, owed = list(self.kept.get() or []), list(self.owed.get() or [])
        before = self._first(kept)
        there = kept if back is not None else owed
        same = [each for each in there if text_of(each[2]) == text_of(row)]
        if same:
            there.remove(same[0])
        else:
            (owed if back is not None else kept).append(entry)
        self.kept.set(kept)
        self.owed.set(owed)
        after = self._first(kept)
        for stream in self._outputs:
            for row in _without(before, after):
                ctx.produce(stream, retracted(row))
            for row in _without(after, before):
                ctx.produce(stream, row)

    def _value(self, row: Any, text: str) -> Any:
        order, _, nulls = text.partition(" nulls ")
        named = order.removesuffix(" desc").removesuffix(" asc").strip()
        value = compile_expression(named).evaluate(row)
        if value is None and nulls:
            return value
        if type(value) not in (int, float, str):
            raise RecordError(f"{value!r} has no place in an order")
        return value

    def _first(self, kept: list[Any]) -> list[Any]:
        spec = self._spec
        rows = sorted(kept, key=lambda entry: text_of(entry[2]))
        rows.sort(key=lambda entry: entry[1], reverse=spec.latest)
        for number in reversed(range(len(spec.by))):
            order, _, nulls = spec.by[number].partition(" nulls ")
            there = [entry for entry in rows if entry[0][number] is not None]
            there.sort(
                key=lambda entry: (type(entry[0][number]) is str, entry[0][number]),
                reverse=order.endswith(" desc"),
            )
            without = [entry for entry in rows if entry[0][number] is None]
            rows = [*without, *there] if nulls == "first" else [*there, *without]
        first = [entry[2] for entry in rows[: spec.k]]
        if not spec.rank:
            return first
        return [{**row, spec.rank: place} for place, row in enumerate(first, 1)]


def _without(rows: list[Any], others: list[Any]) -> list[Any]:
    """The rows that are left when each of the others takes an equal one with it."""
    left = list(rows)
    for each in others:
        if each in left:
            left.remove(each)
    return left


def text_of(row: Any) -> bytes:
    """A record by its content."""
    return _content(row)


class Enriching(Computation):
    """The last version of the key that is not later than the record; of the latest time, whatever
    came. What is taken back is what was said of the last such record."""

    version: Any = ValueState()
    said: Any = ValueState(list)
    early: Any = ValueState(list)

    def __init__(self, spec: EnrichSpec, outputs: tuple[str, ...]) -> None:
        self._spec = spec
        self._outputs = outputs

    def process_record(self, ctx: Any, record: Record) -> None:
        spec, known, back = self._spec, self.version.get(), as_retraction(record.value)
        given = record.value if back is None else back.value
        fields = plain(given) if isinstance(given, Struct) else given
        if record.stream == spec.stream:
            self._learn(record.timestamp, plain(given), back is not None, known)
            return
        if back is not None:
            self._take_back(ctx, fields)
            return
        early = list(self.early.get() or [])
        if plain(fields) in early:
            early.remove(plain(fields))
            self.early.set(early)
            return
        if type(fields) is not dict:
            raise RecordError(
                f"enrich adds the field {spec.name!r}, and a {type(fields).__name__} has no fields"
            )
        found = None
        if known is not None and (not spec.waits or known[0] <= record.timestamp):
            found = known[1]
        if found is None and spec.missing is Missing.DEAD_LETTER:
            raise RecordError(
                f"{spec.stream} has no value for {record.key!r} up to {record.timestamp}"
            )
        made = [{**fields, spec.name: found}]
        if found is None and spec.missing is Missing.DROP:
            ctx.count("unmatched")
            made = []
        self.said.set([*(self.said.get() or []), [plain(fields), made]])
        for stream in self._outputs:
            for row in made:
                ctx.produce(stream, row)

    def _learn(self, at: int, value: Any, ends: bool, known: Any) -> None:
        if known is not None and at < known[0]:
            return
        if not ends:
            self.version.set([at, value])
        elif known is not None and text_of(known[1]) == text_of(value):
            self.version.set([at, None])

    def _take_back(self, ctx: Any, fields: Any) -> None:
        said = list(self.said.get() or [])
        for index in reversed(range(len(said))):
            if text_of(said[index][0]) == text_of(plain(fields)):
                for row in said.pop(index)[1]:
                    for stream in self._outputs:
                        ctx.produce(stream, retracted(row))
                self.said.set(said)
                return
        if self._spec.missing is Missing.DEAD_LETTER:
            raise RecordError("takes back a record that got nothing and is a dead letter")
        self.early.set([*(self.early.get() or []), plain(fields)])


class LookingUp(Computation):
    """Adds what another system knows of a record."""

    def __init__(self, spec: LookupSpec, outputs: tuple[str, ...]) -> None:
        self._spec = spec
        self._outputs = outputs

    def process_record(self, ctx: Any, record: Record) -> None:
        spec, fields = self._spec, plain(record.value)
        if type(fields) is not dict:
            raise RecordError(f"a lookup adds fields, and a {type(fields).__name__} has no fields")
        key = _read(fields, "u")
        found = None if key is None else answer_of(key)
        if isinstance(found, NoAnswer):
            raise RecordError(found.reason)
        if found is None:
            ctx.count("unmatched")
            if spec.missing is Missing.DROP:
                return
            if spec.missing is Missing.DEAD_LETTER:
                raise RecordError(f"{spec.kind} has nothing for {(key,)!r}")
        added = (
            {spec.name: found}
            if spec.name
            else {name: (found or {}).get(of) for name, of in spec.fields.items()}
        )
        for stream in self._outputs:
            ctx.produce(stream, {**fields, **added})


class Numbering(Computation):
    """A number for each life of a value. A life ends behind the eight eighths of the time to live
    that follow the one in which the value was seen last."""

    def __init__(
        self, spec: DictionarySpec, outputs: tuple[str, ...], pipeline: PipelineSpec
    ) -> None:
        self._spec = spec
        self._outputs = outputs
        self._pipeline = pipeline
        self._seen: dict[Any, list[int]] = {}
        self._given = 0

    def process_record(self, ctx: Any, record: Record) -> None:
        spec, value = self._spec, record.value[self._spec.of]
        eighth = (
            0
            if spec.ttl_us is None
            else max(record.timestamp, ctx._node.watermark) // (spec.ttl_us // 8)
        )
        known = self._seen.get((type(value), value))
        if known is None or eighth > known[1] + 8:
            known = self._seen[type(value), value] = [self._given, eighth]
            self._given += 1
        known[1] = max(known[1], eighth)
        names = spec.keep or self._pipeline.stream(record.stream).fields or record.value
        kept = {name: record.value[name] for name in names if name in record.value}
        for stream in self._outputs:
            ctx.produce(stream, {**kept, spec.name: known[0]})


def built(world: World, spec: ComputationSpec) -> CallNode:
    """The node of a computation without a window."""
    outputs = spec.outputs
    match spec.work:
        case EnrichSpec() as work:
            return CallNode(world, spec, Enriching(work, outputs), f"enrich with {work.stream}")
        case RegularJoinSpec():
            return kept_join(world, spec)
        case OverSpec():
            return looking_back(world, spec)
        case IntervalJoinSpec():
            return near_join(world, spec)
        case LookupSpec() as work:
            return CallNode(world, spec, LookingUp(work, outputs), f"lookup in {work.kind}")
        case DictionarySpec() as work:
            return CallNode(world, spec, Numbering(work, outputs, world.spec), "dictionary")
        case DeduplicateSpec() as work:
            return CallNode(world, spec, copies_of(work, outputs), "deduplicate")
        case TopSpec() as work:
            back = takes_retractions(spec, world.spec)
            return CallNode(
                world, spec, FirstRows(work, outputs, back), "top" if work.by else "deduplicate"
            )
        case BranchesSpec() as work:
            return CallNode(world, spec, Branches(work), "branch")
        case StepsSpec(steps=steps):
            named = ", ".join(_text(step) for step in steps)
            return CallNode(world, spec, Steps(outputs, steps, world.load), named)
    called = spec.work_as(CallbackSpec)
    made = world.load(called.callback)(**dict(called.options))
    return CallNode(world, spec, made, called.callback)


def _text(step: StepSpec) -> str:
    fields = "{" + ", ".join(f"{name}: {text}" for name, text in step.fields.items()) + "}"
    return f"{step.kind.value} {step.function or step.expression or fields}"
