"""The JSON Schema of a pipeline file: its parts as they are declared, and the parts that depend on
installed packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.core.windows.trees import FORMS, NAMES, InnerTriggers, TriggerForm
from millwheel.language.schema import words as w
from millwheel.language.schema.ends import end
from millwheel.language.schema.words import Schema
from millwheel.language.spec.parts.joins import ENRICH
from millwheel.language.spec.parts.lookups import LOOKUP
from millwheel.language.spec.parts.steps import STEP
from millwheel.language.spec.pipelines import PIPELINE

_OBJECT = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"


@dataclass(frozen=True, slots=True)
class Installed:
    """The kinds that installed packages add."""

    sources: Sequence[str] = ()
    sinks: Sequence[str] = ()
    lookups: Sequence[str] = ()


def pipeline_schema(more: Installed = Installed()) -> Schema:
    """The schema of a whole file."""
    definitions: dict[str, Schema] = {}
    step: Schema = {"$ref": "#/$defs/step"}
    defs = {
        **w.WORDS,
        "source": end(SOURCES, definitions, more.sources),
        "sink": end(SINKS, definitions, more.sinks),
        "lookup": end(LOOKUPS, definitions, more.lookups),
        "step": {**w.part(STEP), "minProperties": 1},
        "steps": {"type": "array", "items": step, "minItems": 1},
        "enrich": {"if": {"required": ["lookup"]}, "then": w.part(LOOKUP), "else": w.part(ENRICH)},
        "aggregate": _aggregate(),
        "trigger": _trigger(),
    }
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A MillWheel pipeline",
    }
    return {**head, **w.part(PIPELINE), "$defs": {**defs, **dict(sorted(definitions.items()))}}


def _aggregate() -> Schema:
    own = {"type": "string", "pattern": _OBJECT}
    # one of its names is that of an object; its options are those of its class
    by_name: Schema = {"not": {"propertyNames": {"not": {"pattern": _OBJECT}}}}
    calls = (
        {"required": [name], "propertyNames": {"enum": sorted({name, "where", *function.options})}}
        for name, function in FUNCTIONS.items()
    )
    call: Schema = {
        "type": "object",
        "properties": {**dict.fromkeys(sorted(FUNCTIONS), w.ANY), "where": w.EXPRESSION},
        "anyOf": [*calls, by_name],
    }
    return w.either({"enum": sorted(FUNCTIONS)}, own, w.PARAMETER, call)


def _trigger() -> Schema:
    forms = {name: _argument(form) for name, form in FORMS.items()}
    kinds = {name: forms.get(name, w.ANY) for name in NAMES}
    return w.either({"enum": list(NAMES)}, w.PARAMETER, w.exactly_one(kinds))


def _argument(form: TriggerForm) -> Schema:
    tree: Schema = {"$ref": "#/$defs/trigger"}
    if form.inner is InnerTriggers.ONE:
        return tree
    if form.inner is InnerTriggers.SEVERAL:
        return {"type": "array", "items": tree, "minItems": 1}
    if form.inner is InnerTriggers.NAMED:
        named = w.fields(dict.fromkeys(form.names, tree), form.names if form.needed else ())
        return named if form.needed else w.either(named, {"type": "null"})
    return w.ANY
