import pytest

from bench.stats import quantile, spread


def test_the_median_of_some_runs_lies_between_least_and_greatest() -> None:
    found = spread([4.0, 1.0, 2.0])
    assert (found.runs, found.median, found.least, found.greatest) == (3, 2.0, 1.0, 4.0)
    assert found.relative == pytest.approx(0.75)


def test_no_runs_have_no_median() -> None:
    with pytest.raises(ValueError, match="no runs"):
        spread([])


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_a_quantile_is_a_value_that_was_measured(share: float, value: int) -> None:
    assert quantile(list(range(1, 101)), share) == value
