"""The decimals and times of all streams of a pipeline: from the sources through the computations to
the sinks. Nodes that cannot take decimals are refused; nothing computes with them as if they were
whole numbers, or floats."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from millwheel.adapters.secret_values import unrevealed
from millwheel.connect.kinds import build_lookup
from millwheel.connect.lookups.base import Lookup
from millwheel.connect.own_functions import expressions_in
from millwheel.core.instants.decimals import MOST_DIGITS, decimal_form
from millwheel.core.instants.time_forms import KIND
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    KeptKinds,
    PipelineSpec,
    SinkSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import LookupSpec
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.typed.computations import DecimalWork, merged, outputs_of
from millwheel.language.spec.typed.decimals import Fields, has_decimals, in_units, scales_of
from millwheel.language.spec.typed.expressions import Path, declared_kinds, expressions_of
from millwheel.language.spec.typed.mistakes import mistakes_in, mistakes_of_bounds

Find = Callable[..., YamlNode]
_SINKS = ("files", "kafka", "postgres", "stdout")
_FORMATS = ("", "json", "jsonl", "csv", "parquet", "avro", "protobuf")


def with_decimals(
    reader: NodeReader, spec: PipelineSpec, find: Find
) -> tuple[PipelineSpec, Mapping[str, Fields]]:
    """The pipeline whose computations take decimals as whole units, and compare times with times
    where a text is written; and whose sinks have the scales of decimals. Notes every place where
    that cannot be, and every expression that fails for each record because of the kinds of its
    fields. Returns the kinds of the fields of each stream, too, as far as they are certain.
    ``find`` has the node at a path."""
    flow = _Flow(reader, spec, find)
    flow.run()
    for sink in spec.sinks:
        flow.check_sink(sink)
    streams = tuple(map(flow.of_table, spec.streams))
    flow.note_mistakes()
    made = {each.name: each for each in flow.made}
    typed = replace(
        spec,
        streams=streams,
        computations=tuple(made.get(each.name, each) for each in spec.computations),
        kept=flow.kept if any(map(_in_decimals, flow.kept.values())) else {},
        scales={name: scales for name, each in flow.kinds.items() if (scales := scales_of(each))},
    )
    names = {*flow.kinds, *(stream.name for stream in spec.streams)}
    return typed, {name: flow.kinds_of(name) for name in names}


def _in_decimals(kept: KeptKinds) -> bool:
    return has_decimals(kept.values) or any(map(has_decimals, kept.key))


@dataclass(slots=True)
class _Flow:
    reader: NodeReader
    spec: PipelineSpec
    find: Find
    kinds: dict[str, Fields] = field(default_factory=dict)
    """The kinds of the fields of each stream."""
    made: list[ComputationSpec] = field(default_factory=list)
    kept: dict[str, KeptKinds] = field(default_factory=dict)
    """By computation."""
    mistakes: dict[tuple[Path, str], bool] = field(default_factory=dict)
    """Wrong expressions, and whether declared fields make them wrong: then they are refused. Kinds
    that follow through computations may be others at run time: then it is a warning."""

    def run(self) -> None:
        """Go through the computations, each behind those that feed it."""
        for stream in self.spec.streams:
            if stream.source is not None:
                self.kinds[stream.name] = _declared(stream)
        waiting = list(self.spec.computations)
        while waiting:
            fed = {name for each in waiting for name in outputs_of(each)}
            ready = [each for each in waiting if not fed.intersection(_inputs(each))]
            for computation in ready or waiting:
                self._take(computation, cyclic=not ready)
            waiting = [each for each in waiting if each not in ready] if ready else []

    def note_mistakes(self) -> None:
        """Note all that was found, each once: the first step of several is read twice."""
        for (path, problem), refused in self.mistakes.items():
            node = self.find(*path)
            if refused:
                self.reader.bad(node, problem)
            else:
                self.reader.problems.warn(node.line, node.path, problem)

    def check_sink(self, sink: SinkSpec) -> None:
        """Note a sink that has no form for decimals."""
        form = sink.options.get("format", "")
        form = str(next(iter(form), "") if isinstance(form, Mapping) else form)
        takes = sink.kind in _SINKS and form in _FORMATS
        if has_decimals(self.kinds.get(sink.stream, {})) and not takes:
            written = f" with the format {form}" if form else ""
            self.reader.bad(
                self.find("sinks", sink.stream),
                f"{sink.kind}{written} takes no decimals, and {sink.stream} has some. They go to"
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
        text, _ = self._in_units((), stream.table.delete, _declared(stream), path)
        return replace(stream, table=replace(stream.table, delete=text))

    def _take(self, computation: ComputationSpec, cyclic: bool) -> None:
        one = DecimalWork(
            computation,
            {each.stream: self.kinds_of(each.stream) for each in computation.inputs},
            partial(self._in_units, ("computations", computation.name)),
            partial(self._note, ("computations", computation.name)),
            self._lookup,
        )
        path, compile_text = ("computations", computation.name), self.reader.language.compile
        if not computation.inputs:
            pass  # as is noted elsewhere
        elif not cyclic:
            one.through()
        elif one.given:
            one.note((), "it is part of a cycle, which cannot have decimals. Declare float")
        declared = declared_kinds(self.spec, computation)
        for text, inner in expressions_of(computation):
            tree = compile_text(text).tree
            self._find_mistakes((*path, *inner), tree, declared, refused=True)
        for word, problem in mistakes_of_bounds(self.spec, computation, compile_text):
            one.note(("join", "within", word), problem)
        self.made.append(one.computation)
        if one.kept is not None:
            self.kept[computation.name] = one.kept
        for name in outputs_of(computation):
            kinds = one.outputs.get(name)
            before = self.kinds.setdefault(name, kinds or {})
            both = merged([before, kinds]) if kinds is not None else before
            if both is None:
                one.note((), f"the stream {name!r} gets other decimals from elsewhere")
            # A record of one producer may have a field of any kind that the other's do not have.
            self.kinds[name] = {
                each: kind
                if not isinstance(kind, str) or kind == (kinds or {}).get(each) == before.get(each)
                else ""
                for each, kind in (both or before).items()
            }

    def kinds_of(self, name: str) -> Fields:
        """The kinds of the fields of a stream, declared where nothing else is certain."""
        declared, made = _declared(self.spec.stream(name)), self.kinds.get(name, {})
        return {**declared, **{of: kind or declared.get(of, "") for of, kind in made.items()}}

    def _lookup(self, work: LookupSpec) -> Lookup:
        with expressions_in(self.reader.language):
            return build_lookup(replace(work, options=unrevealed(work.options)), self.spec.folder)

    def _note(self, of: Path, path: Path, problem: str) -> None:
        self.reader.bad(self.find(*of, *path), problem)

    def _in_units(self, of: Path, text: str, fields: Fields, path: Path) -> tuple[str, Any]:
        """The expression over units, and its kind."""
        tree = self.reader.language.compile(text).tree
        try:
            typed = in_units(text, tree, fields)
            self.reader.language.compile(typed.text)  # it may have become too long
        except ValueError as error:
            self._note(of, path, str(error))
            return text, ""
        self._find_mistakes((*of, *path), tree, fields)
        return typed.text, typed.kind

    def _find_mistakes(
        self, path: Path, tree: ast.expr, fields: Fields, refused: bool = False
    ) -> None:
        declared = {name for stream in self.spec.streams for name in stream.times}
        for problem in mistakes_in(tree, fields, declared):
            self.mistakes[path, problem] = refused or self.mistakes.get((path, problem), False)


def _holds(column: str, scale: int) -> bool:
    """Whether a column of a sink has all digits behind the point of a decimal."""
    digits = _COLUMN.fullmatch(column.replace(" ", ""))
    return column in ("float", "str") if digits is None else int(digits[1]) >= scale


_COLUMN = re.compile(r"decimal\(\d+,(\d+)\)")


def _declared(stream: StreamSpec) -> Fields:
    scales = {name: decimal_form(kind).scale for name, kind in stream.decimals.items()}
    return {**stream.fields, **dict.fromkeys(stream.times, KIND), **scales}


def _inputs(computation: ComputationSpec) -> list[str]:
    return [each.stream for each in computation.inputs]
