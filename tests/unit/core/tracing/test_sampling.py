"""Which records are sampled."""

from __future__ import annotations

import numpy as np

from millwheel.core.tracing.sampling import chosen_numbers, is_chosen, trace_id

NUMBERS = np.arange(1, 100_001, dtype=np.int64)


def test_about_the_share_is_chosen() -> None:
    assert 800 < len(chosen_numbers(0.01, "c", NUMBERS)) < 1_200
    assert 800 < sum(is_chosen(0.01, "c", f"id{number}") for number in range(100_000)) < 1_200
    assert chosen_numbers(0.0, "c", NUMBERS) == [] == chosen_numbers(0.5, "c", NUMBERS[:0])
    assert chosen_numbers(1.0, "c", NUMBERS[:3]) == [1, 2, 3]
    assert is_chosen(1.0, "c", "a")
    assert not is_chosen(0.0, "c", "a")


def test_the_choice_is_that_of_the_record_however_much_is_read_at_once() -> None:
    whole = chosen_numbers(0.01, "c", NUMBERS)
    parts = [
        number
        for start in range(0, 100_000, 777)
        for number in chosen_numbers(0.01, "c", NUMBERS[start:][:777])
    ]
    assert parts == whole
    assert set(whole) - set(chosen_numbers(0.01, "d", NUMBERS)), (
        "partitions must not choose the same offsets"
    )


def test_a_record_has_the_same_trace_whenever_it_is_read_and_no_other_has() -> None:
    assert trace_id("p", "c", 7) == trace_id("p", "c", 7)
    ids = {trace_id(p, c, n) for p in "pq" for c in "cd" for n in range(100)}
    assert len(ids) == 400
    assert all(0 < each < 1 << 128 for each in ids)
