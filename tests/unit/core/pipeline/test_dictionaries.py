from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.pipeline.dictionaries import (
    NUMBER,
    ids_of,
    numbered,
    partition_of,
    partitioned,
    partitions_of_numbers,
    partitions_of_text,
)
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.pipeline.work import DictionarySpec
from millwheel.errors import RecordError
from millwheel.language.spec import load_pipeline
from tests.unit.engine.workers.operators.combinations import written


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8)), st.integers(1, 5_000))
def test_text_in_columns_has_the_partition_that_it_has_alone(
    values: list[str], partitions: int
) -> None:
    assert partitions_of_text(values, partitions) == [
        partition_of(value, partitions) for value in values
    ]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 5_000))
def test_numbers_in_columns_have_the_partition_that_they_have_alone(
    values: list[int], partitions: int
) -> None:
    found = partitions_of_numbers(np.array(values, np.int64), partitions).tolist()
    assert found == [partition_of(value, partitions) for value in values]


def test_partitions_are_used_evenly_and_never_change() -> None:
    counts = np.bincount(
        partitions_of_text([f"device-{n}" for n in range(40_000)], 16), minlength=16
    )
    assert counts.min() > 2_200
    # State depends on these: a value whose partition changed would get a second number.
    assert [partition_of(value, 4096) for value in ("device-1", b"device-1", 7, -7)] == [
        1189,
        2582,
        1042,
        3053,
    ]


def test_ids_of_partitions_are_apart() -> None:
    assert len({*ids_of(np.repeat(np.arange(8), 50), np.tile(np.arange(50), 8), 8).tolist()}) == 400
    assert ids_of(np.array([3]), np.array([0]), 8).tolist() == [3]


@pytest.mark.parametrize("value", [1.5, True, None, 2**63, ["a"]])
def test_other_values_have_no_partition(value: object) -> None:
    with pytest.raises(RecordError, match="a dictionary needs text"):
        partition_of(value, 8)


def test_the_key_of_a_record_is_the_partition_of_its_field() -> None:
    assert partitioned(lambda row: row["device"], 64)({"device": "a"}) == partition_of("a", 64)


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
