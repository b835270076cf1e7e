from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from typer.testing import CliRunner

from millwheel.connect.python_objects import OBJECT_NAME
from millwheel.core.model.times import duration_us
from millwheel.errors import SetupError
from millwheel.language.schema.command import schema_text, text_of, write_schema
from millwheel.language.schema.parts import Installed, pipeline_schema
from millwheel.language.schema.words import WORDS
from millwheel.language.spec.reading.reader import NAME
from millwheel.tools.cli.app import app
from tests.rooms import HOUSE
from tests.unit.language.spec.test_docs import EXAMPLES, _complete

FILES = sorted((*HOUSE.glob("examples/*/*.yaml"), *HOUSE.glob("bench/pipelines/*.yaml")))
PIPELINE = """
pipeline: p
streams: {hits: {source: {files: {path: x, format: jsonl, follow: true}}, timestamp: ts,
  fields: {size: int}}}
computations:
  counts:
    input: {hits: {key: path}}
    window: {tumbling: 1m}
    trigger: {after_watermark: {early: {after_count: 2}}}
    aggregate: {n: count, p: {quantile: size, q: 0.9}, own: {"mine:Own": size, k: 3}}
    output: counts
sinks: {counts: {files: {path: out, cut_records: "${cut}"}}}
"""


@cache
def validator() -> Draft202012Validator:
    schema = pipeline_schema(Installed(("ledger",), ("ledger", "latency")))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(text: str) -> list[Any]:
    return [error.message for error in validator().iter_errors(YAML(typ="safe").load(text))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_pipeline_of_the_repository_is_valid(file: Path) -> None:
    assert problems(file.read_text()) == []


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_of_the_page_is_valid(number: int) -> None:
    assert problems(_complete(EXAMPLES[number])) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("pipeline: p", "pipelin: p"),
        ("files: {path: x", "file: {path: x"),
        ("follow: true", "folow: true"),
        ("follow: true", "follow: 3"),
        ("size: int", "size: integer"),
        ("timestamp: ts", "timestmp: ts"),
        ("tumbling: 1m", "tumbling: 60"),
        ("tumbling: 1m", "tumblin: 1m"),
        ("after_count", "after_counts"),
        ("n: count", "n: cuont"),
        ("quantile: size", "quantil: size"),
        ("q: 0.9", "p: 0.9"),
        ("{quantile: size, q: 0.9}", "{quantile: size, q: 0.9, sum: size}"),
        ("input: {hits: {key: path}}", "inputs: {hits: {key: path}}"),
        ('cut_records: "${cut}"', "cut_records: many"),
        ("path: out,", ""),
    ],
)
def test_a_mistake_is_found(right: str, wrong: str) -> None:
    assert problems(PIPELINE) == []
    assert right in PIPELINE
    assert problems(PIPELINE.replace(right, wrong)) != []


# words.py


@pytest.mark.parametrize("text", ["a:b", "pkg.a:B.c", "a", ":b", "1a:b"])
def test_objects_are_named_as_the_reader_wants_it(text: str) -> None:
    assert bool(re.search(WORDS["object_name"]["pattern"], text)) == bool(
        OBJECT_NAME.fullmatch(text)
    )


@pytest.mark.parametrize("text", ["a", "a-b_C9", "a b", "", "x" * 65])
def test_names_are_those_of_the_reader(text: str) -> None:
    assert bool(re.search(WORDS["name"]["pattern"], text)) == bool(NAME.fullmatch(text))


@pytest.mark.parametrize("text", ["10s", "1h30m", "0.5s", "2 m"])
def test_durations_of_the_reader_are_durations(text: str) -> None:
    assert duration_us(text)
    assert re.search(WORDS["duration"]["pattern"], text)


# command.py


def test_the_published_schema_is_the_one_of_the_code() -> None:
    published = (HOUSE / "docs" / "pipeline.schema.json").read_text(encoding="utf-8")
    assert published == text_of(pipeline_schema()), (
        "run: millwheel schema docs/pipeline.schema.json"
    )


def test_the_command_prints_or_writes_it(tmp_path: Path) -> None:
    file = str(tmp_path / "here.json")
    assert f"$schema={file}" in CliRunner().invoke(app, ["schema", file]).output
    assert Path(file).read_text() == schema_text() == CliRunner().invoke(app, ["schema"]).output
    with pytest.raises(SetupError, match="cannot be written"):
        write_schema(str(tmp_path / "none" / "x.json"))


def test_every_example_names_the_published_schema() -> None:
    for path in HOUSE.glob("examples/*/*.yaml"):
        first = path.read_text().splitlines()[0]
        assert first.startswith("# yaml-language-server: $schema="), path
        assert (
            path.parent / first.partition("=")[2]
        ).resolve() == HOUSE / "docs" / "pipeline.schema.json"
