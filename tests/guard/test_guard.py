"""The hot path costs no more than it did, counted in plain Python loops."""

from __future__ import annotations

import pytest

from tests.guard.baseline import allowed
from tests.guard.micro import MICROS, Micro, ratio


@pytest.mark.parametrize("micro", MICROS, ids=lambda micro: micro.name)
def test_it_costs_no_more_than_the_baseline_allows(micro: Micro) -> None:
    limit = allowed()[micro.name]
    # A neighbour on the same core may spoil one measurement, not three; a regression spoils all.
    found = min(ratio(micro), *(ratio(micro) for _ in range(2)))
    assert found <= limit, (
        f"{micro.name} costs {found:.2f} reference loops, allowed are {limit:.2f}"
    )


def test_twice_the_work_is_noticed() -> None:
    micro = MICROS[0]

    def twice():
        first, second = micro.prepare(), micro.prepare()
        return lambda: (first(), second())

    assert ratio(Micro("twice", twice, micro.reference)) > ratio(micro) * 1.4
