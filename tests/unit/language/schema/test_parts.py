from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from millwheel.language.schema.parts import Installed, pipeline_schema
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
