"""The decimals of all streams of a pipeline: from the sources through the computations to the
sinks. What cannot take them is refused; nothing computes with them as if they were whole numbers,
or floats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millwheel.core.aggregates.functions import FUNCTIONS as AGGREGATES
from millwheel.core.decimals.declared import MOST_DIGITS, decimal_form
from millwheel.core.instants.declared import KIND
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    AggregateSpec,
    AggregationSpec,
    BoundSpec,
    BranchesSpec,
    DeduplicateSpec,
    IntervalJoinSpec,
    JoinSpec,
    OverSpec,
    RegularJoinSpec,
    StepKind,
    StepsSpec,
    TopSpec,
)
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.typed.decimals import Fields, has_decimals, in_units, scales_of
from millwheel.language.spec.typed.expressions import Path, changed

Find = Callable[..., YamlNode]
_SAME = ("sum", "min", "max", "first", "last")
"""Aggregates whose result is of the kind of their argument."""
_COUNTS = ("count", "count_distinct", "approx_count_distinct")
_SINKS = ("files", "kafka", "postgres", "stdout")
_FORMATS = ("", "json", "jsonl", "csv", "parquet")
_LISTS = ("collect", "top_k")
"""Aggregates whose result is a list of what is of the kind of their argument."""


def with_decimals(reader: NodeReader, spec: PipelineSpec, find: Find) -> PipelineSpec:
    """The pipeline whose computations take decimals as whole units, and whose sinks know their
    scales. Notes every place where that cannot be. ``find`` has the node at a path."""
    if not any(stream.decimals for stream in spec.streams):
        return spec
    flow = _Flow(reader, spec, find)
    flow.run()
    for sink in spec.sinks:
        flow.check_sink(sink)
    made = {each.name: each for each in flow.made}
    return replace(
        spec,
        streams=tuple(map(flow.of_table, spec.streams)),
        computations=tuple(made.get(each.name, each) for each in spec.computations),
        scales={name: found for name, each in flow.kinds.items() if (found := scales_of(each))},
    )


@dataclass(slots=True)
class _Flow:
    reader: NodeReader
    spec: PipelineSpec
    find: Find
    kinds: dict[str, Fields] = field(default_factory=dict)
    """The kinds of the fields of each stream."""
    made: list[ComputationSpec] = field(default_factory=list)

    def run(self) -> None:
        """Go through the computations, each behind those that feed it."""
        for stream in self.spec.streams:
            if stream.source is not None:
                self.kinds[stream.name] = _declared(stream)
        waiting = list(self.spec.computations)
        while waiting:
            fed = {name for each in waiting for name in _outputs(each)}
            ready = [each for each in waiting if not fed.intersection(_inputs(each))]
            for computation in ready or waiting:
                self._take(computation, cyclic=not ready)
            waiting = [each for each in waiting if each not in ready] if ready else []

    def check_sink(self, sink: SinkSpec) -> None:
        """Note a sink that has no form for decimals."""
        form = sink.options.get("format", "")
        form = str(next(iter(form), "") if isinstance(form, Mapping) else form)
        takes = sink.kind in _SINKS and form in _FORMATS
        if has_decimals(self.kinds.get(sink.stream, {})) and not takes:
            told = f" with the format {form}" if form else ""
            self.reader.bad(
                self.find("sinks", sink.stream),
                f"{sink.kind}{told} takes no decimals, and {sink.stream} has some. They go to"
                f" {', '.join(_SINKS)}, as {', '.join(filter(None, _FORMATS))}; in front of others,"
                " write map with float(…)",
            )
        columns = sink.options.get("fields")
        for name, kind in columns.items() if isinstance(columns, Mapping) else ():
            scale = self.kinds.get(sink.stream, {}).get(name)
            if isinstance(scale, int) and not _holds(str(kind), scale):
                self.reader.bad(
                    self.find("sinks", sink.stream, sink.kind, "fields", name),
                    f"{kind} cannot hold all digits of {name}, a decimal with {scale} behind the"
                    f" point; write decimal({MOST_DIGITS}, {scale})",
                )

    def of_table(self, stream: StreamSpec) -> StreamSpec:
        """The stream, with the expression of its table over units."""
        if stream.table is None or not stream.table.delete or not stream.decimals:
            return stream
        path = ("streams", stream.name, "table", "delete")
        text, _ = self.in_units(stream.table.delete, _declared(stream), path)
        return replace(stream, table=replace(stream.table, delete=text))

    def _take(self, computation: ComputationSpec, cyclic: bool) -> None:
        inputs = {name: self.kinds.get(name, {}) for name in _inputs(computation)}
        taken = _merged(list(inputs.values()))
        one = _One(self, computation, inputs, taken or {})
        if not any(map(has_decimals, inputs.values())):
            pass
        elif taken is None and not isinstance(computation.work, _JOINS):
            one.bad((), "its inputs have decimals in fields that differ. Declare them alike")
        elif cyclic:
            one.bad((), "it is part of a cycle, which cannot have decimals. Declare float")
        else:
            one.through()
        self.made.append(one.computation)
        if computation.late_side:
            one.outputs[computation.late_side] = taken or {}
        for name, kinds in one.outputs.items():
            before = self.kinds.setdefault(name, kinds)
            if has_decimals(before) or has_decimals(kinds):
                both = _merged([before, kinds])
                if both is None:
                    one.bad((), f"the stream {name!r} gets other decimals from elsewhere")
                self.kinds[name] = both or before

    def in_units(self, text: str, fields: Fields, path: Path) -> tuple[str, Any]:
        """The expression over units, and its kind."""
        try:
            found = in_units(text, self.reader.language.compile(text).tree, fields)
            self.reader.language.compile(found.text)  # it may have become too long
        except ValueError as error:
            self.reader.bad(self.find(*path), str(error))
            return text, ""
        return found.text, found.kind


@dataclass(slots=True)
class _One:
    """A computation whose inputs have decimals."""

    flow: _Flow
    computation: ComputationSpec
    inputs: Mapping[str, Fields]
    fields: Fields
    """Those of all inputs; none where these differ, as those of a join may."""
    kinds: dict[Path, Any] = field(default_factory=dict)
    """The kinds of its expressions."""
    outputs: dict[str, Fields] = field(default_factory=dict)

    def bad(self, path: Path, problem: str) -> None:
        """Note a problem of it."""
        at = self.flow.find("computations", self.computation.name, *path)
        self.flow.reader.bad(at, problem)

    def through(self) -> None:
        """Change its expressions, and find the kinds of its results."""
        work = self.computation.work
        if isinstance(work, _JOINS):
            self._join(work)
        elif isinstance(work, StepsSpec):
            self._steps(work)
        elif isinstance(work, BranchesSpec | TopSpec | DeduplicateSpec):
            self._expressions()
            rank = work.rank if isinstance(work, TopSpec) else ""
            self._give({**self.fields, rank: "int"} if rank else self.fields)
        elif isinstance(work, AggregationSpec | OverSpec) and work.aggregates:
            self._expressions()
            self._give(self._results())
        else:
            self.bad(
                (),
                "it does not take decimals, and its input has some. Steps, branches, aggregations,"
                " `top`, `deduplicate`, `over` and joins do; in front of anything else, write map"
                " with float(…)",
            )

    def _join(self, work: JoinSpec | RegularJoinSpec | IntervalJoinSpec) -> None:
        self._expressions()
        scales = [
            [each if has_decimals(each) else None for each in self._key(of).values()]
            for of in self.computation.inputs
        ]
        if any(each != scales[0] for each in scales):
            self.bad(("input",), "decimals of its keys differ, or meet others. Declare them alike")
        kinds = self.inputs
        if not isinstance(work, JoinSpec) and not work.kind.in_pairs:
            kinds = self.inputs[self.computation.inputs[0].stream]
        if isinstance(work, IntervalJoinSpec):
            froms, untils = (tuple(map(self._bound, each)) for each in (work.froms, work.untils))
            work = replace(work, froms=froms, untils=untils)
            self.computation = replace(self.computation, work=work)
        self._give(kinds)

    def _bound(self, bound: BoundSpec) -> BoundSpec:
        return replace(bound, expression=self.of(bound.expression, self.inputs, ("join",))[0])

    def _give(self, fields: Fields) -> None:
        for name in _outputs(self.computation):
            self.outputs[name] = fields

    def of(self, text: str, fields: Fields, path: Path) -> tuple[str, Any]:
        """An expression over units, and its kind."""
        return self.flow.in_units(text, fields, ("computations", self.computation.name, *path))

    def _expressions(self) -> None:
        """Change the expressions over records."""

        def change(text: str, path: Path) -> str:
            fields = self.inputs[path[1]] if path[0] == "input" else self.fields
            made, kind = self.of(text, fields, path)
            self.kinds.setdefault(path, kind)
            return made

        self.computation = changed(self.computation, change)

    def _key(self, given: InputSpec) -> dict[str, Any]:
        """The kinds of the parts of the key of an input."""
        if given.key.plain:
            fields = self.inputs[given.stream]
            return {name: fields.get(name, "") for name in given.key.names}
        return {
            name: self.kinds.get(("input", given.stream, "key", name), "")
            for name in given.key.fields
        }

    def _steps(self, work: StepsSpec) -> None:
        fields: Fields = self.fields
        steps = []
        for step in work.steps:
            kind = step.kind.value
            if step.function:
                self.bad(
                    (),
                    f"{step.function} would get decimals as whole units; write map with float(…)"
                    " in front of it, or an expression",
                )
                return
            made = {name: self.of(text, fields, (kind, name)) for name, text in step.fields.items()}
            text, whole = self.of(step.expression, fields, (kind,)) if step.expression else ("", "")
            steps.append(
                replace(
                    step, expression=text, fields={name: each for name, (each, _) in made.items()}
                )
            )
            if step.kind is StepKind.FILTER:
                continue
            fields = {name: each for name, (_, each) in made.items()}
            if step.kind is StepKind.FLAT_MAP and isinstance(whole, list):
                whole = whole[0]
            if not made and isinstance(whole, Mapping):
                fields = whole
            elif not made and has_decimals(whole):
                self.bad((kind,), "a decimal alone is no record: write map: {NAME: …}")
        self.computation = replace(self.computation, work=replace(work, steps=tuple(steps)))
        self._give(fields)

    def _results(self) -> Fields:
        """The kinds of the fields of its results."""
        work = self.computation.work
        assert isinstance(work, AggregationSpec | OverSpec)
        kinds = {
            name: kind for each in self.computation.inputs for name, kind in self._key(each).items()
        }
        kinds.update({each.name: self._aggregate(each) for each in work.aggregates})
        if isinstance(work, OverSpec):
            return {**self.fields, **kinds}
        if work.queryable and has_decimals(kinds):
            self.bad(("queryable",), "queries would show decimals as whole units; remove queryable")
        then = {}
        for name, text in work.then.items():
            then[name], kinds[name] = self.of(text, kinds, ("then", name))
        having = self.of(work.having, kinds, ("having",))[0] if work.having else ""
        self.computation = replace(self.computation, work=replace(work, then=then, having=having))
        return kinds

    def _aggregate(self, aggregate: AggregateSpec) -> Any:
        """The kind of what it gives."""
        name, path = aggregate.function, ("aggregate", aggregate.name)
        kind = self.kinds.get(path, "") if aggregate.argument else ""
        if name in _SAME:
            return kind
        if name in _LISTS:
            return [kind]
        if name in AGGREGATES and AGGREGATES[name].of_rows:
            rank = aggregate.options.get("rank")
            row = {**self.fields, rank: "int"} if rank else self.fields
            return [row] if name == "top_rows" else row
        if ":" in name:
            self.bad(path, f"{name} would give decimals as whole units; write float(…) before it")
        elif name not in _COUNTS and has_decimals(kind):
            cure = "then: {NAME: total / n}, of a sum and a count, or " if name == "mean" else ""
            self.bad(path, f"{name} takes no decimal; write {cure}float(…)")
        return "int" if name in _COUNTS else ""


def _holds(column: str, scale: int) -> bool:
    """Whether a column of a sink has all digits behind the point of a decimal."""
    digits = _COLUMN.fullmatch(column.replace(" ", ""))
    return column in ("float", "str") if digits is None else int(digits[1]) >= scale


_COLUMN = re.compile(r"decimal\(\d+,(\d+)\)")
_JOINS = (JoinSpec, RegularJoinSpec, IntervalJoinSpec)


def _declared(stream: StreamSpec) -> Fields:
    scales = {name: decimal_form(kind).scale for name, kind in stream.decimals.items()}
    return {**stream.fields, **dict.fromkeys(stream.times, KIND), **scales}


def _merged(streams: list[Fields]) -> Fields | None:
    """The fields of records of any of the streams; None where some have other decimals."""
    scales = [scales_of(each) for each in streams]
    if any(each != scales[0] for each in scales):
        return None
    found: dict[str, Any] = {}
    for fields in streams:
        for name, kind in fields.items():
            found[name] = kind if found.get(name, kind) == kind else ""
    return found


def _inputs(computation: ComputationSpec) -> list[str]:
    return [each.stream for each in computation.inputs]


def _outputs(computation: ComputationSpec) -> set[str]:
    """The streams that it produces."""
    branches = computation.work.branches if isinstance(computation.work, BranchesSpec) else ()
    side = [computation.late_side] if computation.late_side else []
    return {*computation.outputs, *(each.stream for each in branches), *side}
