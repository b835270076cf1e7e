from __future__ import annotations

from pathlib import Path
from typing import Any

from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.visitors import NUMBER, numbered
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.language.spec import load_pipeline
from tests.unit.engine.workers.operators.combinations import written


def _load(folder: Path, text: str) -> PipelineSpec:
    return load_pipeline(
        written(folder, f"\ncomputations:\n  people: {{{text}, output: counts}}\n")
    )


def test_visitors_become_a_dictionary_and_a_count_of_numbers(tmp_path: Path) -> None:
    text = (
        "input: {hits: {key: page}}, uv: {of: user, every: 10us, per: 100us, partitions: 8}, where:"
        " size > 0"
    )
    ids, people = _load(tmp_path, text).computations
    assert ids.inputs[0].key == KeySpec(KeyKind.FIELD, ("user",), partitions=8)
    assert ids.work == DictionarySpec("user", NUMBER, 8, ("page", "size"))
    assert (people.inputs[0].stream, people.inputs[0].key.names) == (ids.outputs[0], ("page",))
    assert [(each.name, each.function, each.argument) for each in people.aggregates] == [
        ("visitors", "count_distinct", NUMBER)
    ]
    assert people.windowed is not None
    assert people.windowed.window.options == {"size_us": 100, "every_us": 10, "changes": False}


def test_the_dictionary_forgets_after_the_time_to_live(tmp_path: Path) -> None:
    text = "input: {hits: {key: page}}, uv: {of: user, every: 10us, per: 100us, ttl: 200us}"
    ids, people = _load(tmp_path, text).computations
    assert (ids.work.ttl_us, people.work.numbered) == (200, None)


def test_a_key_function_gets_all_fields(tmp_path: Path) -> None:
    text = "input: {hits: {key: 'follow:Follow'}}, uv: {of: user, every: 10us, per: 100us}"
    ids, _ = _load(tmp_path, text).computations
    assert ids.work.keep == ()


def test_approximate_counts_need_no_dictionary(tmp_path: Path) -> None:
    text = (
        "input: {hits: {key: page}}, uv: {of: user, every: 10us, per: 100us, approximate: true, as:"
        " about}"
    )
    [people] = _load(tmp_path, text).computations
    assert [(each.name, each.function, each.argument) for each in people.aggregates] == [
        ("about", "approx_count_distinct", "user")
    ]


def test_other_pipelines_stay_as_they_are(tmp_path: Path) -> None:
    spec: Any = _load(
        tmp_path, "input: {hits: {key: page}}, window: {tumbling: 10us}, aggregate: {n: count}"
    )
    assert numbered(spec, lambda text: ()) is spec


def test_the_dictionary_keeps_the_fields_that_expressions_of_the_key_read(tmp_path: Path) -> None:
    key = "{half: size // 2, page: page}"
    text = f"input: {{hits: {{key: {key}}}}}, uv: {{of: user, every: 10us, per: 100us}}"
    ids, people = _load(tmp_path, text).computations
    assert ids.work.keep == ("page", "size")
    assert people.inputs[0].key.names == ("half", "page")
