"""Every source, sink and lookup of a pipeline file is a class in Python, with all its options."""

from __future__ import annotations

import dataclasses
import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millwheel
from millwheel import AvroFormat, FileSink, KafkaSink, Pipeline, SchemaRegistry, StdoutSink
from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.connect.formats.options import RegistryOptions
from millwheel.connect.options import options_of
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.language.schema.parts import pipeline_schema
from millwheel.language.spec.pipelines import check_document
from millwheel.language.spec.python_files import Document
from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.problems import Problems
from millwheel.python.fluent import kinds
from millwheel.python.fluent import option_values as option_values_module
from millwheel.python.fluent.ends import (
    DeclaredEnd,
    DeclaredLookup,
    DeclaredSink,
    DeclaredSource,
    kind_of,
)
from tests.kinds import INSIDE, modules, option_values
from tests.kinds import kinds as declared_kinds
from tests.unit.python.fluent.test_twins import without_lines

KINDS, VALUES = declared_kinds(), option_values()
EVERY = sorted(KINDS)


def test_the_modules_are_as_the_declarations_make_them() -> None:
    for path, text in modules().items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m tests.kinds --write"


def test_every_kind_of_a_pipeline_file_has_a_class_of_its_own() -> None:
    for known, base in (
        (SOURCES, DeclaredSource),
        (SINKS, DeclaredSink),
        (LOOKUPS, DeclaredLookup),
    ):
        made = [
            each
            for each in vars(kinds).values()
            if inspect.isclass(each) and issubclass(each, base)
        ]
        assert sorted(each._kind for each in made if each._kind) == sorted(known)
    assert {*KINDS, *VALUES} <= set(millwheel.__all__)


@pytest.mark.parametrize("name", EVERY)
def test_every_option_of_the_schema_is_an_argument(name: str) -> None:
    form = KINDS[name].form
    known = pipeline_schema()["$defs"][form.__name__]["properties"] if form is not None else {}
    assert {each.name for each in dataclasses.fields(getattr(kinds, name))} == set(known)


@pytest.mark.parametrize("name", [name for name in EVERY if KINDS[name].form is not None])
def test_a_class_says_what_each_of_its_options_is(name: str) -> None:
    text = " ".join((getattr(kinds, name).__doc__ or "").replace("``", "`").split())
    form = KINDS[name].form
    assert form is not None
    for option, declared in options_of(form).items():
        assert f"{option}: {declared.plain()}" in text


@pytest.mark.parametrize("name", EVERY)
def test_every_option_arrives_as_the_same_option_of_a_pipeline_file(name: str) -> None:
    form = KINDS[name].form
    examples = (
        {option: each.example for option, each in options_of(form).items()}
        if form is not None
        else {}
    )
    made = getattr(kinds, name)(**{option: _data(example) for option, example in examples.items()})
    assert _of_python(made) == _of_yaml(made, examples)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_every_value_with_options_arrives_as_its_map(name: str) -> None:
    """The values within, such as the registry of a format, as objects of their class, too."""
    declared = VALUES[name]
    assert declared.form is not None
    examples = {option: _data(each.example) for option, each in options_of(declared.form).items()}
    given = {
        option: getattr(millwheel, INSIDE[RegistryOptions])(**value)
        if option == "registry"
        else value
        for option, value in examples.items()
    }
    made = getattr(option_values_module, name)(**given)
    whole = {declared.kind: examples} if declared.kind else examples
    assert FileSink("out", made).options() == {"path": "out", "format": whole}


def test_what_has_a_type_in_python_may_be_given_as_that() -> None:
    assert _of_python(FileSink(Path("out"), flush=timedelta(seconds=2))) == _of_python(
        FileSink("out", flush="2s")
    )
    form = {"avro": {"schema": {"type": "string"}, "registry": {"url": "http://r"}}}
    made = AvroFormat(schema={"type": "string"}, registry=SchemaRegistry("http://r"))
    assert _of_python(KafkaSink("b:1", "clicks", made)) == _of_python(
        KafkaSink("b:1", "clicks", form)
    )


def _of_python(end: DeclaredEnd) -> PipelineSpec:
    p = Pipeline("p")
    source = end if isinstance(end, DeclaredSource) else millwheel.InjectionSource()
    stream = p.read("s", source, timestamp="t", id="i")
    if isinstance(end, DeclaredLookup):
        stream.key_by("k").look_up(end, field="found", output="o")
    stream.write(end if isinstance(end, DeclaredSink) else StdoutSink())
    return _spec(p.millwheel_document("p.yaml", "code"))


def _of_yaml(end: DeclaredEnd, examples: dict[str, str]) -> PipelineSpec:
    def lines(indent: int, *, here: bool, otherwise: str) -> str:
        if not here:
            return f" {otherwise}"
        if not examples:
            return f" {{{kind_of(end)}: {{}}}}"
        inner = "".join(
            f"\n{' ' * (indent + 2)}{name}: {example}" for name, example in examples.items()
        )
        return f"\n{' ' * indent}{kind_of(end)}:{inner}"

    text = "pipeline: p\nstreams:\n  s:\n    timestamp: t\n    id: i\n    source:"
    text += lines(6, here=isinstance(end, DeclaredSource), otherwise="{injection: {}}")
    text += "\nsinks:\n  s:" + lines(
        4, here=isinstance(end, DeclaredSink), otherwise="{stdout: {}}"
    )
    if isinstance(end, DeclaredLookup):
        text += "\ncomputations:\n  o:\n    input: {s: {key: k}}\n    output: o\n"
        text += "    enrich:\n      as: found\n      lookup:"
        text += lines(8, here=True, otherwise="")
    problems = Problems("p.yaml")
    top = parse(text, problems)
    assert top is not None, problems.found
    return _spec(Document(top, problems))


def _spec(document: Document) -> PipelineSpec:
    return without_lines(check_document(document, {}, {}, check_code=False)[0])


def _data(example: str) -> Any:
    top = parse(f"x: {example}", Problems("x.yaml"))
    assert top is not None
    return top.data()["x"]
