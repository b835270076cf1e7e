"""Named queries against the computations that they ask."""

from __future__ import annotations

from millwheel.connect.own_functions import named_alone
from millwheel.core.expressions.language import Formula, formula_of
from millwheel.core.model.times import duration_text
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec, QuerySpec
from millwheel.core.pipeline.work import SlicesSpec
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.problems import unknown
from millwheel.language.spec.reading.reader import NodeReader
from millwheel.language.spec.typed.formulas import typed_formula


def check_queries(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """Note each query for a value that does not exist."""
    computations = {computation.name: computation for computation in spec.computations}
    for query in spec.queries:
        problem = _problem(query, computations, spec)
        if problem:
            reader.bad(find(top, "queries", query.name), problem)


def _problem(query: QuerySpec, computations: dict[str, ComputationSpec], spec: PipelineSpec) -> str:
    if query.name in computations:
        return (
            "is the name of a computation, too, and both could be asked for; give the query another"
            " name"
        )
    compile_text = named_alone(spec.functions).compile
    formula = formula_of(query.formula, compile_text)
    for name, value in formula.used:
        if name not in computations:
            return unknown("computation", name, list(computations))
        computation = computations[name]
        values = [aggregate.name for aggregate in computation.aggregates]
        if value and values and value not in values:
            return unknown(f"value of {name}", value, values)
        if not value and len(values) > 1:
            return f"{name} has {len(values)} values; name one, such as {name}.{values[0]}"
        keep_us = computation.work.keep_us if isinstance(computation.work, SlicesSpec) else None
        if keep_us is not None and (query.window_us or 0) > keep_us:
            return f"the window is longer than {name} keeps its slices, {duration_text(keep_us)}"
    return _wrong_keys(query, formula) or _inexact(query, formula, spec)


def _inexact(query: QuerySpec, formula: Formula, spec: PipelineSpec) -> str:
    try:
        typed_formula(query.formula, formula, spec.kept, named_alone(spec.functions).compile)
    except ValueError as error:
        return str(error)
    return ""


def _wrong_keys(query: QuerySpec, formula: Formula) -> str:
    for name, parts in query.keys.items():
        if name not in formula.computations:
            return f"keys names {name}, which the formula does not ask"
        for part in parts:
            if part not in query.key:
                return (
                    f"the key of {name} needs {part}, which is not part of key:"
                    f" [{', '.join(query.key)}]"
                )
    return ""
