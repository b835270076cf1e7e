import pytest

from bench.latency import Line, quantiles_ms, right


def test_every_record_must_be_seen_once_and_the_totals_add_up() -> None:
    seen: list[Line] = [(1.0, [(0, 1, 0.9), (1, 1, 0.9)]), (2.0, [(0, 2, 1.9)])]
    assert right(seen, 3)
    assert not right(seen, 4)
    assert not right([*seen, seen[-1]], 4)
    assert not right([*seen, (3.0, [(0, 2, 2.9)])], 4)


def test_the_first_seconds_are_left_out() -> None:
    seen: list[Line] = [(5.0, [(0, 1, 0.0)]), (10.001, [(0, 2, 10.0)]), (11.003, [(0, 3, 11.0)])]
    found = quantiles_ms(seen)
    assert found["p50_ms"] == pytest.approx(1.0, abs=1e-3)
    assert found["max_ms"] == pytest.approx(3.0, abs=1e-3)
