"""Each number is counted in the first of the sets that has it."""

from __future__ import annotations

from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.families.first_seen import among, first_seen

sets = st.lists(
    st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1)), max_size=5), max_size=9
)


@given(sets)
def test_each_number_is_in_the_first_set_that_has_it(given_sets: list[list[int]]) -> None:
    expected: dict[int, int] = {}
    for index, numbers in enumerate(given_sets):
        for number in numbers:
            expected.setdefault(number, index)
    found = first_seen([[array("Q", sorted(numbers))] for numbers in given_sets])
    if found is None:
        assert max(expected) >> 64 - len(given_sets).bit_length()
        return
    assert dict(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected
    assert found[0].tolist() == sorted(expected)


@given(st.sets(st.one_of(st.integers(0, 50), st.integers(0, 2**64 - 1)), min_size=1), st.data())
def test_some_of_the_numbers_are_found_among_them(numbers: set[int], data: st.DataObject) -> None:
    some = data.draw(st.sets(st.sampled_from(sorted(numbers))))
    found = among(np.array(sorted(numbers), np.uint64), np.array(sorted(some), np.uint64))
    assert found.tolist() == [number in some for number in sorted(numbers)]
