from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.pipeline.dictionaries import (
    ids_of,
    partition_of,
    partitioned,
    partitions_of_numbers,
    partitions_of_text,
)
from millwheel.errors import RecordError


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
