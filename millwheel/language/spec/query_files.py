"""Named queries that come on their own, for a pipeline that runs: a file with ``queries:``, or one
formula."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from millwheel.connect.own_functions import named_alone
from millwheel.core.pipeline.spec import PipelineSpec, QuerySpec
from millwheel.language.spec.checks.queries import check_queries
from millwheel.language.spec.parts.queries import read_queries
from millwheel.language.spec.pipelines import PIPELINE
from millwheel.language.spec.reading.document import parse, read_text
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader

_EXAMPLE = "queries: {cpc: {formula: clicks.spend / clicks.n, window: 1h}}"


def load_queries(path: str, spec: PipelineSpec) -> tuple[QuerySpec, ...]:
    """The named queries of a YAML file, which may be a whole pipeline's, for the computations of
    ``spec``. Raises PipelineError with a sentence for each problem."""
    return _read(read_text(path), path, spec)


def one_query(name: str, formula: str, window: str, spec: PipelineSpec) -> tuple[QuerySpec, ...]:
    """One query by its parts. Raises PipelineError."""
    query = {"formula": formula, **({"window": window} if window else {})}
    return _read(msgspec.json.encode({"queries": {name: query}}).decode(), "the query", spec)


def _read(text: str, file: str, spec: PipelineSpec) -> tuple[QuerySpec, ...]:
    problems = Problems(file)
    top = parse(text, problems)
    if top is None:
        raise problems.error()
    reader = NodeReader(problems, language=named_alone(spec.functions))
    fields = reader.fields(top, [*PIPELINE.fields], _EXAMPLE)
    if "queries" not in fields and top.is_map:
        reader.missing(top, "queries", f"write for example {_EXAMPLE}")
    queries = read_queries(reader, fields.get("queries"))
    check_queries(reader, replace(spec, queries=queries), top)
    if problems.found:
        raise problems.error()
    return queries
